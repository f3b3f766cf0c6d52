// The controls of an app on a table of knobs, with the progress of a long computation.

class Controls extends Form {
  constructor(model, el) {
    super(model, el);
    this.advance();
    if (model.get("progress") >= 0) this.beat();
  }

  build() {
    this.bar = h("progress", { max: 1, "aria-label": "Progress", data: { testid: "progress" } });
    this.work = h("div", { hidden: true, class: "work", data: { testid: "work" } }, h("span", {}, "Computing …"), this.bar,
      button("Stop", "stop", "Stops and shows what there is", () => this.wish("stop")));
    this.groups = [...new Set(this.rows.map((row) => row.knob.group))].map((name) => this.group(name));
    return [
      h("section", {}, h("h2", {}, "Scene"), this.picker, this.notes, this.work),
      ...this.groups,
      h("section", { class: "keep" }, h("h2", {}, "Keep"), this.link, button("Save data", "save-data", "Every number on show as a CSV file", () => this.wish("save"))),
    ];
  }

  listen() {
    this.on("progress", () => this.advance());
    this.on("beat", () => setTimeout(() => this.beat()));
    // The file itself may come after the count.
    this.on("saves", () => setTimeout(() => this.download(this.model.get("saved_name"))));
  }

  show(look) {
    super.show(look);
    if (this.model.get("look") === look) return;
    this.model.set("look", look);
    this.model.save_changes();
  }

  refresh() {
    super.refresh();
    for (const group of this.groups) group.hidden = [...group.querySelectorAll("[data-row]")].every((row) => row.hidden);
  }

  advance() {
    const done = this.model.get("progress");
    this.work.hidden = done < 0;
    if (done >= 0) this.bar.value = done;
  }

  // Asks for the next slice of a long computation.
  beat() {
    this.model.set("beaten", this.model.get("beat"));
    this.model.save_changes();
  }
}

function render({ model, el }) {
  const controls = new Controls(model, el);
  return () => controls.destroy();
}

export default { render };
