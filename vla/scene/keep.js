// Buttons that hand over files. PNG pictures are made here, by plotly's own button.

class Keep {
  constructor(model, el) {
    this.model = model;
    this.root = h("div", { class: "vla-sheet" }, h("div", { class: "tools", role: "group", "aria-label": "Keep" },
      button("Picture (PNG)", "save-png", "The picture as it is", () => this.picture()),
      model.get("labels").map((label) => button(label, `save-${label.replace(/\W+/g, "-").replace(/-$/, "").toLowerCase()}`, label, () => { model.set("wish", label); model.save_changes(); }))));
    el.replaceChildren(this.root);
    // The file itself may come after the count.
    this.saved = () => setTimeout(() => this.hand());
    model.on("change:saves", this.saved);
    this.schemes = matchMedia("(prefers-color-scheme: dark)");
    this.look = () => { this.root.dataset.look = isDark(this.schemes) ? "dark" : "light"; };
    this.schemes.addEventListener("change", this.look);
    this.host = new MutationObserver(this.look);
    for (const node of [document.body, document.documentElement]) this.host.observe(node, { attributes: true, attributeFilter: ["class", "data-theme"] });
    this.look();
  }

  destroy() {
    this.model.off("change:saves", this.saved);
    this.schemes.removeEventListener("change", this.look);
    this.host.disconnect();
  }

  // Elements sit in shadow roots.
  picture() {
    const find = (root) => {
      const here = [...root.querySelectorAll("[data-title^='Download plot']")];
      return here.concat(...[...root.querySelectorAll("*")].filter((node) => node.shadowRoot).map((node) => find(node.shadowRoot)));
    };
    for (const camera of find(document)) camera.click();
  }

  hand() {
    const data = this.model.get("saved");
    if (!data?.byteLength) return;
    const url = URL.createObjectURL(new Blob([data], { type: "application/octet-stream" }));
    h("a", { href: url, download: this.model.get("saved_name") }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}

function render({ model, el }) {
  const keep = new Keep(model, el);
  return () => keep.destroy();
}

export default { render };
