// The control panel of the stepping app: its groups, traces in files, and the keys meant for the stepper.

const MAX_FILE = 64 * 2 ** 20;
const PLAYER_KEYS = new Set([" ", "ArrowLeft", "ArrowRight", "Home", "End"]);

class Panel extends Form {
  build() {
    this.origin = h("p", { class: "origin", data: { testid: "origin" } });
    this.source = h("div", { class: "source", data: { testid: "source" } });
    return [
      h("section", {}, h("h2", {}, "Scene"), this.picker, this.notes, this.source),
      this.group("Stream"), this.group("Rules", this.origin), this.group("Knobs"),
      this.group("Fork"), this.group("Precision"), this.keep(),
    ];
  }

  keep() {
    this.file = h("input", { type: "file", hidden: true, data: { testid: "trace-file" }, onchange: () => this.upload() });
    return h("section", { class: "keep" }, h("h2", {}, "Keep"), this.link,
      button("Save trace", "save-trace", "Saves every recorded number as one file", () => this.wish("save")),
      button("Open trace", "open-trace", "Shows a trace that was saved before", () => this.file.click()), this.file);
  }

  listen() {
    this.on("origin", () => this.tell());
    this.on("source", () => this.tell());
    this.on("saved", () => this.download("vla-trace.zip"));
    this.keys = (event) => this.forward(event);
    document.addEventListener("keydown", this.keys);
    this.size = () => fit();
    window.addEventListener("resize", this.size);
    this.page = document.body.className;
    this.sizing = setInterval(() => { if (fit()) this.meet(player()); }, 50);
  }

  destroy() {
    super.destroy();
    document.removeEventListener("keydown", this.keys);
    window.removeEventListener("resize", this.size);
    clearInterval(this.sizing);
  }

  // The stepper's choice of light or dark holds for the whole page; auto is the page's own.
  meet(stepper) {
    clearInterval(this.sizing);
    stepper.addEventListener("change", () => {
      const { theme } = stepper.stepper.state;
      document.body.className = theme === "auto" ? this.page : this.page.replace(/\b(light|dark)\b/g, theme);
    });
  }

  send() {
    this.forkHere();
    super.send();
  }

  // A fork begins where the person stands: at this step, or the last before it that stores.
  forkHere() {
    const [before, now] = [this.model.get("values"), this.values()];
    if (before.fork !== "none" || now.fork === "none" || now.at !== before.at) return;
    const stepper = player()?.stepper;
    let step = stepper?.state.step ?? 0;
    while (step > 0 && !stepper.trace.writes[step - 1]) step--;
    if (step > 0) this.rows.find((row) => row.knob.key === "at").control.set(String(step));
  }

  wish(words) {
    super.wish(words);
    if (words.startsWith("open:")) player()?.focus({ preventScroll: true });
  }

  tell() {
    super.tell();
    this.origin.textContent = this.model.get("origin");
    const source = this.model.get("source");
    const back = h("button", { type: "button", data: { testid: "back" }, onclick: () => this.send() }, "Back to the scene");
    this.source.replaceChildren(...(source ? [h("p", {}, `Shown: the trace in ${source}.`), back] : []));
  }

  async upload() {
    const [file] = this.file.files;
    this.file.value = "";
    if (!file) return;
    if (file.size > MAX_FILE) {
      this.notes.replaceChildren(h("p", {}, `${file.name} is larger than ${MAX_FILE / 2 ** 20} MiB and was not read.`));
      return;
    }
    this.model.set("upload_name", file.name);
    this.model.set("upload", new DataView(await file.arrayBuffer()));
    this.wish("load");
  }

  // On a fresh page nothing has the focus: the stepper gets the keys that are meant for it.
  forward(event) {
    const idle = document.activeElement === document.body || document.activeElement === null;
    if (!idle || !PLAYER_KEYS.has(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    const stepper = player();
    if (!stepper) return;
    event.preventDefault();
    stepper.dispatchEvent(new KeyboardEvent("keydown", { key: event.key }));
  }
}

// Lets the picture fill the window below its top edge, so that a first screen needs no scrolling.
function fit() {
  const stepper = player();
  if (!stepper?.stepper) return false;
  const top = stepper.getBoundingClientRect().top + (document.getElementById("App")?.scrollTop ?? 0);
  stepper.stepper.set({ height: Math.round(Math.max(560, window.innerHeight - top - 4)) });
  return true;
}

// The stepper's element, wherever the page keeps it: hosts put widgets into shadow trees.
function player(within = document) {
  const found = within.querySelector(".vla-stepper");
  if (found) return found;
  for (const node of within.querySelectorAll("*")) {
    const inner = node.shadowRoot && player(node.shadowRoot);
    if (inner) return inner;
  }
  return null;
}

function render({ model, el }) {
  const panel = new Panel(model, el);
  return () => panel.destroy();
}

export default { render };
