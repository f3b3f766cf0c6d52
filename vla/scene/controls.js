// The controls of an app: draws the table of knobs it is given and sends texts back.
// No dependency, no request. Words from outside enter the page as text only.

const STOPS = 1000; // of a slider on a logarithmic scale

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (typeof value === "boolean") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null));
  return node;
}

function short(x) {
  const value = Number(Number(x).toPrecision(3));
  return value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential() : String(value);
}
const said = (knob) => `${knob.label}: ${knob.help}`;

function slider(knob, changed) {
  const { low, high } = knob;
  const log = !knob.step;
  let text = knob.default;
  const place = (value) => (log && value > 0 ? Math.round((STOPS * Math.log(value / low)) / Math.log(high / low)) : value);
  const stops = (at) => {
    const value = Number((low * (high / low) ** (at / STOPS)).toPrecision(3));
    return String(knob.kind === "int" ? Math.round(value) : value);
  };
  const range = h("input", {
    type: "range", min: log ? 0 : low, max: log ? STOPS : high, step: log ? 1 : knob.step,
    "aria-label": said(knob), data: { testid: "range", key: knob.key },
    oninput: () => { text = log ? stops(Number(range.value)) : range.value; number.value = short(text); tell(); changed(); },
  });
  const number = h("input", {
    type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false",
    "aria-label": said(knob), data: { testid: "number-input", key: knob.key },
    onchange: () => { text = number.value.trim() || knob.default; range.value = place(Number(text)); changed(); },
  });
  const tell = () => range.setAttribute("aria-valuetext", short(text));
  return {
    node: h("div", { class: "slider" }, range, number),
    get: () => text,
    set(given) { text = given; range.value = place(Number(given)); number.value = Number.isFinite(Number(given)) ? short(given) : given; tell(); },
  };
}

function choice(knob, changed) {
  const node = h("select", { "aria-label": said(knob), data: { testid: "choice", key: knob.key }, onchange: changed },
    knob.options.map((option) => h("option", { value: option.value }, option.words)));
  return { node, get: () => node.value, set(text) { node.value = text; } };
}

function flag(knob, changed) {
  const node = h("input", { type: "checkbox", "aria-label": said(knob), data: { testid: "flag", key: knob.key }, onchange: changed });
  return { node, get: () => (node.checked ? "1" : "0"), set(text) { node.checked = text === "1"; } };
}

function words(knob, changed) {
  let timer;
  const node = h("textarea", {
    rows: 2, maxlength: knob.high, spellcheck: "false", "aria-label": said(knob), data: { testid: "words", key: knob.key },
    oninput: () => { clearTimeout(timer); timer = setTimeout(changed, 300); },
  });
  return { node, get: () => node.value, set(text) { if (node.value !== text && node.getRootNode().activeElement !== node) node.value = text; } };
}

function names(knob, changed) {
  const boxes = knob.options.map((option) => {
    const box = h("input", { type: "checkbox", value: option.value, data: { testid: "rule", key: option.value }, onchange: changed });
    const mark = h("span", { class: option.hollow ? "swatch hollow" : "swatch", "aria-hidden": "true" });
    mark.style.setProperty("--rule", option.colour ?? "transparent");
    return h("label", { class: "rule" }, box, mark, h("span", {}, option.words));
  });
  const inputs = boxes.map((label) => label.firstChild);
  return {
    node: h("div", { class: "rules" }, boxes),
    get: () => inputs.filter((box) => box.checked).map((box) => box.value).join(","),
    set(text) { for (const box of inputs) box.checked = text.split(",").includes(box.value); },
  };
}

const KINDS = { int: slider, float: slider, choice, flag, text: words, names };

class Row {
  constructor(knob, changed) {
    this.knob = knob;
    this.control = KINDS[knob.kind](knob, changed);
    const wide = ["text", "names"].includes(knob.kind);
    const back = () => { this.control.set(knob.default); changed(); };
    this.reset = h("button", { type: "button", class: "default", title: `Back to ${knob.shown}`, data: { testid: "reset", key: knob.key }, onclick: back }, "default ", h("b", {}, wide ? "" : knob.shown));
    const help = h("p", { class: "help" }, knob.help, " ", this.reset);
    this.node = h("div", { class: wide ? "row wide" : "row", data: { row: knob.key } }, h("span", { class: "name" }, knob.label), this.control.node, help);
  }

  refresh(values) {
    const text = this.control.get();
    this.node.hidden = Object.entries(this.knob.idle).some(([key, idle]) => idle.includes(values[key]));
    this.reset.disabled = text === this.knob.default || (this.knob.kind !== "text" && text !== "" && Number(text) === Number(this.knob.default));
  }
}

class Controls {
  constructor(model, el) {
    this.model = model;
    const changed = () => { this.refresh(); this.send(); };
    this.rows = model.get("table").map((knob) => new Row(knob, changed));
    this.build();
    el.replaceChildren(this.root);
    this.listen();
    this.take();
    this.tell();
    this.address();
    this.advance();
    if (model.get("progress") >= 0) this.beat();
  }

  build() {
    const { model, rows } = this;
    const button = (text, name, title, act) => h("button", { type: "button", title, data: { testid: name }, onclick: act }, text);
    this.picker = h("select", { "aria-label": "Prepared scene", data: { testid: "preset" }, onchange: () => this.wish(`open:${this.picker.value}`) },
      h("option", { value: "", disabled: true }, "your own scene"),
      model.get("presets").map((preset) => h("option", { value: preset.name, title: preset.question }, preset.title)));
    this.notes = h("div", { class: "notes", role: "status", "aria-live": "polite", data: { testid: "notes" } });
    this.bar = h("progress", { max: 1, "aria-label": "Progress", data: { testid: "progress" } });
    this.work = h("div", { hidden: true, class: "work", data: { testid: "work" } }, h("span", {}, "Computing …"), this.bar,
      button("Stop", "stop", "Stops and shows what there is", () => this.wish("stop")));
    const groups = [...new Set(rows.map((row) => row.knob.group))];
    this.groups = groups.map((group) => h("details", { open: true, data: { group } }, h("summary", {}, group), rows.filter((row) => row.knob.group === group).map((row) => row.node)));
    this.link = button("Copy link", "copy-link", "Copies the address of exactly this scene", () => this.copy());
    this.root = h("form", { class: "vla-panel", "aria-label": "Controls", data: { testid: "panel" }, onsubmit: (event) => event.preventDefault() },
      h("section", {}, h("h2", {}, "Scene"), this.picker, this.notes, this.work),
      this.groups,
      h("section", { class: "keep" }, h("h2", {}, "Keep"), this.link, button("Save data", "save-data", "Every number on show as a CSV file", () => this.wish("save"))));
  }

  listen() {
    const { model } = this;
    this.handlers = {
      "change:values": () => { if (!this.own && !this.again) this.take(); },
      "change:answered": () => this.answer(),
      "change:notes": () => this.tell(),
      "change:progress": () => this.advance(), "change:beat": () => setTimeout(() => this.beat()),
      "change:preset": () => this.refresh(), "change:query": () => this.address(),
      "change:saves": () => setTimeout(() => this.download()), // the file itself may come after the count
    };
    for (const [event, handler] of Object.entries(this.handlers)) model.on(event, handler);
    this.schemes = matchMedia("(prefers-color-scheme: dark)");
    this.look = () => {
      const look = isDark(this.schemes) ? "dark" : "light";
      this.root.dataset.look = look;
      if (model.get("look") === look) return;
      model.set("look", look);
      model.save_changes();
    };
    this.schemes.addEventListener("change", this.look);
    this.host = new MutationObserver(this.look);
    for (const node of [document.body, document.documentElement]) this.host.observe(node, { attributes: true, attributeFilter: ["class", "data-theme"] });
    this.look();
  }

  destroy() {
    for (const [event, handler] of Object.entries(this.handlers)) this.model.off(event, handler);
    this.schemes.removeEventListener("change", this.look);
    this.host.disconnect();
    clearTimeout(this.late);
  }

  take() {
    const values = this.model.get("values");
    for (const row of this.rows) if (row.knob.key in values) row.control.set(values[row.knob.key]);
    this.refresh();
  }

  refresh() {
    const values = this.values();
    for (const row of this.rows) row.refresh(values);
    for (const group of this.groups) group.hidden = [...group.querySelectorAll("[data-row]")].every((row) => row.hidden);
    this.picker.value = this.model.get("preset");
  }

  values() {
    return Object.fromEntries(this.rows.map((row) => [row.knob.key, row.control.get()]));
  }

  // One message under way at a time; of what happens meanwhile only the latest is sent.
  send() {
    if (this.waiting) { this.again = true; return; }
    this.waiting = true;
    this.again = false;
    this.own = true;
    this.serial = this.model.get("serial") + 1;
    this.model.set("values", this.values());
    this.model.set("serial", this.serial);
    this.model.save_changes();
    this.own = false;
    clearTimeout(this.late);
    this.late = setTimeout(() => this.answer(true), 10000);
  }

  answer(late = false) {
    if (!late && this.model.get("answered") < this.serial) return;
    clearTimeout(this.late);
    this.waiting = false;
    if (this.again) this.send();
  }

  wish(text) {
    this.model.set("wish", text);
    this.model.save_changes();
  }

  tell() {
    this.notes.replaceChildren(...this.model.get("notes").map((note) => h("p", {}, note)));
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

  // The page's address says the scene; parts that belong to the server stay.
  address() {
    const search = new URLSearchParams(location.search);
    const query = this.model.get("query");
    for (const key of [...search.keys()]) if (!SERVER.has(key)) search.delete(key);
    for (const [key, text] of Object.entries(query)) search.set(key, text);
    const text = search.toString();
    history.replaceState(history.state, "", location.pathname + (text ? `?${text}` : "") + location.hash);
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(location.href);
      this.link.textContent = "Copied";
    } catch {
      this.link.textContent = "Copy the address bar";
    }
    setTimeout(() => { this.link.textContent = "Copy link"; }, 2000);
  }

  download() {
    const data = this.model.get("saved");
    if (!data?.byteLength) return;
    const url = URL.createObjectURL(new Blob([data], { type: "application/octet-stream" }));
    h("a", { href: url, download: this.model.get("saved_name") }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}

const SERVER = new Set(["file", "access_token", "refresh_token", "session_id", "view-as", "show-chrome", "kiosk", "include-code", "theme"]);

function isDark(schemes) {
  const { classList } = document.body;
  if (classList.contains("dark") || classList.contains("light")) return classList.contains("dark");
  return schemes.matches;
}

function render({ model, el }) {
  const controls = new Controls(model, el);
  return () => controls.destroy();
}

export default { render };
