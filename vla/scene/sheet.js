// A table that is sorted, searched and picked from. Words from outside enter the page as text only.

const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));

class Sheet {
  constructor(model, el) {
    this.model = model;
    this.handlers = [];
    this.search = h("input", { type: "search", placeholder: "find in the rows", "aria-label": "Find in the rows", maxlength: 60, data: { testid: "find" }, oninput: () => { clearTimeout(this.late); this.late = setTimeout(() => this.tell("find", this.search.value), 250); this.fill(); } });
    this.count = h("span", { class: "count", role: "status", data: { testid: "count" } });
    this.none = button("Clear picks", "clear-picks", "No row picked (Escape)", () => this.tell("picked", []));
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.caption = h("caption", {});
    this.root = h("section", { class: "vla-sheet", data: { testid: "sheet" }, onkeydown: (event) => { if (event.key === "Escape") { this.search.value = ""; this.tell("find", ""); this.tell("picked", []); } } },
      h("div", { class: "tools" }, this.search, this.count, this.none),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table, scrolls sideways" }, h("table", {}, this.caption, h("thead", {}, this.head), this.body)));
    el.replaceChildren(this.root);
    for (const trait of ["columns", "entries", "sort", "find", "picked", "caption"]) this.on(trait, () => this.plan());
    this.schemes = matchMedia("(prefers-color-scheme: dark)");
    this.look = () => { this.root.dataset.look = isDark(this.schemes) ? "dark" : "light"; };
    this.schemes.addEventListener("change", this.look);
    this.host = new MutationObserver(this.look);
    for (const node of [document.body, document.documentElement]) this.host.observe(node, { attributes: true, attributeFilter: ["class", "data-theme"] });
    this.look();
    this.search.value = model.get("find");
    this.show();
  }

  on(trait, handler) {
    this.handlers.push([`change:${trait}`, handler]);
    this.model.on(`change:${trait}`, handler);
  }

  destroy() {
    for (const [event, handler] of this.handlers) this.model.off(event, handler);
    this.schemes.removeEventListener("change", this.look);
    this.host.disconnect();
    clearTimeout(this.late);
  }

  plan() {
    if (this.planned) return;
    this.planned = true;
    queueMicrotask(() => { this.planned = false; this.show(); });
  }

  tell(trait, value) {
    this.model.set(trait, value);
    this.model.save_changes();
    this.show();
  }

  show() {
    const columns = this.model.get("columns"), sort = this.model.get("sort");
    const here = this.root.getRootNode().activeElement?.dataset?.column;
    this.caption.textContent = this.model.get("caption");
    if (this.root.getRootNode().activeElement !== this.search) this.search.value = this.model.get("find");
    const heads = columns.map((column) => {
      const down = sort === `-${column.key}`, up = sort === column.key;
      const next = up ? `-${column.key}` : column.key;
      const mark = h("span", { "aria-hidden": "true" }, up ? " ▲" : down ? " ▼" : "");
      const act = h("button", { type: "button", title: column.help || `Sort by ${column.label}`, data: { testid: "sort", column: column.key }, onclick: () => this.tell("sort", next) }, column.label, mark);
      return h("th", { scope: "col", "aria-sort": up ? "ascending" : down ? "descending" : "none", class: column.number ? "number" : "" }, act);
    });
    this.head.replaceChildren(...(this.model.get("picks") ? [h("td", {})] : []), ...heads);
    if (here) this.head.querySelector(`[data-column="${here}"]`)?.focus();
    this.fill();
  }

  rows() {
    const sort = this.model.get("sort"), key = sort.replace(/^-/, "");
    const at = this.model.get("columns").findIndex((column) => column.key === key);
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.model.get("entries").filter((entry) => words.every((word) => entry.words.some((text) => text.toLowerCase().includes(word))));
    if (at < 0) return found;
    const sign = sort.startsWith("-") ? -1 : 1;
    return found.sort((a, b) => {
      const [x, y] = [a.values[at], b.values[at]];
      if (x == null || y == null) return (x == null) - (y == null);
      return sign * order(x, y);
    });
  }

  fill() {
    const columns = this.model.get("columns"), picked = new Set(this.model.get("picked"));
    const picks = this.model.get("picks"), rows = this.rows(), all = this.model.get("entries").length;
    const here = this.root.getRootNode().activeElement?.dataset?.row;
    this.count.textContent = rows.length === all ? `${all} rows` : `${rows.length} of ${all} rows`;
    this.none.hidden = !picks || !picked.size;
    this.body.replaceChildren(...(rows.length ? rows.map((entry) => this.row(entry, columns, picks, picked)) : [h("tr", {}, h("td", { colspan: columns.length + 1, class: "none" }, all ? "No row has these words." : this.model.get("empty")))]));
    if (here) this.body.querySelector(`input[data-row="${CSS.escape(here)}"]`)?.focus();
  }

  row(entry, columns, picks, picked) {
    const box = picks && h("input", {
      type: "checkbox", checked: picked.has(entry.id), "aria-label": `Show the learning curve of ${entry.words[0]}, ${entry.id}`, data: { testid: "pick", row: entry.id },
      onchange: () => this.tell("picked", box.checked ? [...this.model.get("picked"), entry.id] : this.model.get("picked").filter((id) => id !== entry.id)),
    });
    const cells = columns.map((column, at) => {
      const value = entry.values[at];
      return h(at ? "td" : "th", { class: column.number ? "number" : "", ...(at ? {} : { scope: "row" }), data: { testid: "cell", column: column.key, value: value ?? "" } }, entry.words[at]);
    });
    return h("tr", { class: picked.has(entry.id) ? "picked" : "", data: { testid: "entry", id: entry.id } }, ...(picks ? [h("td", {}, box)] : []), ...cells);
  }
}

function render({ model, el }) {
  const sheet = new Sheet(model, el);
  return () => sheet.destroy();
}

export default { render };
