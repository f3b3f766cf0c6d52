// The ledger's cards: made once, then hidden and shown. Their HTML comes from Python, escaped there.

class Cards {
  constructor(model, el) {
    this.model = model;
    this.handlers = [];
    this.nodes = new Map();
    this.root = h("div", { class: "vla-claims", data: { testid: "cards" }, onclick: (event) => this.press(event) });
    this.list = h("div", { class: "claims" });
    this.root.append(this.list);
    el.replaceChildren(this.root);
    this.on("fresh", () => this.renew());
    this.on("shown", () => this.filter());
    this.on("busy", () => this.wait());
    this.on("cards", () => this.draw());
    this.schemes = matchMedia("(prefers-color-scheme: dark)");
    this.look = () => this.root.classList.toggle("dark", isDark(this.schemes));
    this.schemes.addEventListener("change", this.look);
    this.host = new MutationObserver(this.look);
    for (const node of [document.body, document.documentElement]) this.host.observe(node, { attributes: true, attributeFilter: ["class", "data-theme"] });
    this.look();
    this.draw();
  }

  on(trait, handler) {
    this.handlers.push([`change:${trait}`, handler]);
    this.model.on(`change:${trait}`, handler);
  }

  destroy() {
    for (const [event, handler] of this.handlers) this.model.off(event, handler);
    this.schemes.removeEventListener("change", this.look);
    this.host.disconnect();
  }

  draw() {
    this.nodes.clear();
    this.heads = new Map();
    this.list.replaceChildren();
    for (const { id, section, html } of this.model.get("cards")) {
      if (!this.heads.has(section)) {
        const head = h("h2", {}, section);
        this.heads.set(section, { head, ids: [] });
        this.list.append(head);
      }
      this.heads.get(section).ids.push(id);
      const node = made(html);
      this.nodes.set(id, node);
      this.list.append(node);
    }
    this.renew();
  }

  renew() {
    for (const [id, html] of Object.entries(this.model.get("fresh"))) {
      const before = this.nodes.get(id);
      if (!before || before.fresh === html) continue;
      const node = made(html);
      node.fresh = html;
      node.classList.add("chosen");
      before.replaceWith(node);
      this.nodes.set(id, node);
    }
    this.filter();
    this.wait();
  }

  filter() {
    const shown = new Set(this.model.get("shown"));
    for (const [id, node] of this.nodes) node.hidden = !shown.has(id);
    for (const { head, ids } of this.heads.values()) head.hidden = !ids.some((id) => shown.has(id));
    // One card alone is meant to be read whole.
    for (const details of shown.size === 1 ? this.list.querySelectorAll("article:not([hidden]) details") : []) details.open = true;
  }

  wait() {
    for (const one of this.list.querySelectorAll("[data-run]")) one.disabled = this.model.get("busy");
  }

  press(event) {
    const link = event.target.closest("a[href^='#']"), run = event.target.closest("[data-run]");
    const article = event.target.closest("article");
    if (!article || !(link || run)) return;
    event.preventDefault();
    this.model.set("asked", [this.model.get("asked")[0] + 1, link ? "open" : run.dataset.run, article.dataset.claim]);
    this.model.save_changes();
  }
}

function made(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content.firstElementChild;
}

function render({ model, el }) {
  const cards = new Cards(model, el);
  return () => cards.destroy();
}

export default { render };
