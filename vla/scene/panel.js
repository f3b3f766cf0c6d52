// The control panel of the stepping app: draws the table of knobs it is given, sends texts back.
// No dependency, no request. Words from outside enter the page as text only.

const STOPS = 1000; // of a slider on a logarithmic scale
const MAX_FILE = 64 * 2 ** 20;
const PLAYER_KEYS = new Set([" ", "ArrowLeft", "ArrowRight", "Home", "End"]);

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

const short = (x) => String(Number(Number(x).toPrecision(3)));

// One control for each kind of knob. Each has a node, and get and set in texts.

class Slider {
  constructor(knob, changed) {
    this.knob = knob;
    const { low, high } = knob;
    const log = this.log = !knob.step;
    const named = { "aria-label": `${knob.label}: ${knob.help}` };
    this.range = h("input", {
      ...named, type: "range", min: log ? 0 : low, max: log ? STOPS : high, step: log ? 1 : knob.step,
      data: { testid: "range", key: knob.key },
      oninput: () => { this.number.value = short(this.text = this.fromRange()); changed(); },
    });
    this.number = h("input", {
      ...named, type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false",
      data: { testid: "number-input", key: knob.key },
      onchange: () => { this.text = this.number.value.trim() || knob.default; this.range.value = this.toRange(); changed(); },
    });
    this.node = h("div", { class: "slider" }, this.range, this.number);
  }

  fromRange() {
    const at = Number(this.range.value);
    if (!this.log) return String(at);
    const { low, high } = this.knob;
    return String(Number((low * (high / low) ** (at / STOPS)).toPrecision(3)));
  }

  toRange() {
    const value = Number(this.text);
    if (!this.log || !(value > 0)) return value;
    const { low, high } = this.knob;
    return Math.round((STOPS * Math.log(value / low)) / Math.log(high / low));
  }

  get() { return this.text; }

  set(text) {
    this.text = text;
    this.range.value = this.toRange();
    this.number.value = Number.isFinite(Number(text)) ? short(text) : text;
  }
}

class Choice {
  constructor(knob, changed) {
    this.knob = knob;
    this.node = h("select", { "aria-label": `${knob.label}: ${knob.help}`, data: { testid: "choice", key: knob.key }, onchange: changed },
      knob.options.map((option) => h("option", { value: option.value }, option.words)));
  }

  get() { return this.node.value; }

  set(text) { this.node.value = text; }
}

class Flag {
  constructor(knob, changed) {
    this.node = h("input", { type: "checkbox", "aria-label": `${knob.label}: ${knob.help}`, data: { testid: "flag", key: knob.key }, onchange: changed });
  }

  get() { return this.node.checked ? "1" : "0"; }

  set(text) { this.node.checked = text === "1"; }
}

class Words {
  constructor(knob, changed) {
    this.node = h("textarea", { rows: 3, maxlength: knob.high, spellcheck: "false", "aria-label": `${knob.label}: ${knob.help}`, data: { testid: "words", key: knob.key }, oninput: () => { clearTimeout(this.timer); this.timer = setTimeout(changed, 300); } });
  }

  get() { return this.node.value; }

  set(text) { if (this.node.value !== text) this.node.value = text; }
}

class Names {
  constructor(knob, changed) {
    this.boxes = knob.options.map((option) => {
      const box = h("input", { type: "checkbox", value: option.value, data: { testid: "rule", key: option.value }, onchange: changed });
      const mark = h("span", { class: option.hollow ? "swatch hollow" : "swatch", "aria-hidden": "true" });
      mark.style.setProperty("--rule", option.colour);
      return h("label", { class: "rule" }, box, mark, h("span", {}, option.words));
    });
    this.node = h("div", { class: "rules" }, this.boxes);
  }

  inputs() { return this.boxes.map((label) => label.firstChild); }

  get() { return this.inputs().filter((box) => box.checked).map((box) => box.value).join(","); }

  set(text) { for (const box of this.inputs()) box.checked = text.split(",").includes(box.value); }
}

const KINDS = { int: Slider, float: Slider, choice: Choice, flag: Flag, text: Words, names: Names };

class Row {
  constructor(knob, changed) {
    this.knob = knob;
    this.control = new KINDS[knob.kind](knob, changed);
    const back = () => { this.control.set(knob.default); changed(); };
    this.reset = h("button", { type: "button", class: "default", title: `Back to ${knob.shown}`, data: { testid: "reset", key: knob.key }, onclick: back }, "default ", h("b", {}, knob.kind === "text" || knob.kind === "names" ? "" : knob.shown));
    const wide = ["text", "names"].includes(knob.kind);
    const name = h("span", { class: "name" }, knob.label);
    this.help = h("span", {}, knob.help);
    const help = h("p", { class: "help" }, this.help, " ", this.reset);
    this.node = h("div", { class: wide ? "row wide" : "row", data: { row: knob.key } }, knob.kind === "names" ? null : name, this.control.node, help);
  }

  refresh(values) {
    const text = this.control.get();
    const { knob } = this;
    const foreign = knob.streams.length > 0 && !knob.streams.includes(values.stream);
    this.node.hidden = foreign || Object.entries(knob.idle).some(([key, idle]) => idle.includes(values[key]));
    this.reset.disabled = text === knob.default || (knob.step !== undefined && knob.kind !== "text" && Number(text) === Number(knob.default));
    const chosen = knob.options.find((option) => option.value === text);
    if (chosen?.help) this.help.textContent = chosen.help;
  }
}

class Panel {
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
  }

  build() {
    const { model } = this;
    const presets = model.get("presets");
    this.picker = h("select", { "aria-label": "Prepared scene", data: { testid: "preset" }, onchange: () => this.wish(`open:${this.picker.value}`) },
      h("option", { value: "", disabled: true }, "your own scene"), presets.map((preset) => h("option", { value: preset.name, title: preset.question }, preset.title)));
    this.notes = h("div", { class: "notes", role: "status", "aria-live": "polite", data: { testid: "notes" } });
    this.origin = h("p", { class: "origin", data: { testid: "origin" } });
    this.source = h("div", { class: "source", data: { testid: "source" } });
    this.root = h("form", { class: "vla-panel", "aria-label": "Controls", data: { testid: "panel" }, onsubmit: (event) => event.preventDefault() },
      h("section", {}, h("h2", {}, "Scene"), this.picker, this.notes, this.source),
      this.group("Stream", "Stream"), this.group("Rules", "Rules", this.origin), this.group("Knobs", "Knobs"), this.keep());
  }

  group(title, name, ...more) {
    return h("details", { open: true, data: { group: name } }, h("summary", {}, title), this.rows.filter((row) => row.knob.group === name).map((row) => row.node), more);
  }

  keep() {
    const button = (words, name, title, act) => h("button", { type: "button", title, data: { testid: name }, onclick: act }, words);
    this.file = h("input", { type: "file", hidden: true, data: { testid: "trace-file" }, onchange: () => this.upload() });
    this.link = button("Copy link", "copy-link", "Copies the address of exactly this scene and step", () => this.copy());
    return h("section", { class: "keep" }, h("h2", {}, "Keep"), this.link,
      button("Save trace", "save-trace", "Saves every recorded number as one file", () => this.wish("save")),
      button("Open trace", "open-trace", "Shows a trace that was saved before", () => this.file.click()), this.file);
  }

  listen() {
    const { model } = this;
    this.handlers = {
      "change:values": () => { if (!this.own && !this.again) this.take(); },
      "change:answered": () => this.answer(),
      "change:notes": () => this.tell(), "change:origin": () => this.tell(), "change:source": () => this.tell(),
      "change:preset": () => this.refresh(), "change:query": () => this.address(), "change:saved": () => this.download(),
    };
    for (const [event, handler] of Object.entries(this.handlers)) model.on(event, handler);
    this.keys = (event) => this.forward(event);
    document.addEventListener("keydown", this.keys);
    this.schemes = matchMedia("(prefers-color-scheme: dark)");
    this.look = () => { this.root.dataset.look = isDark(this.schemes) ? "dark" : "light"; };
    this.schemes.addEventListener("change", this.look);
    this.host = new MutationObserver(this.look);
    for (const node of [document.body, document.documentElement]) this.host.observe(node, { attributes: true, attributeFilter: ["class", "data-theme"] });
    this.look();
    this.size = () => fit();
    window.addEventListener("resize", this.size);
    this.page = document.body.className;
    this.sizing = setInterval(() => { if (fit()) this.meet(player()); }, 50);
  }

  destroy() {
    for (const [event, handler] of Object.entries(this.handlers)) this.model.off(event, handler);
    document.removeEventListener("keydown", this.keys);
    window.removeEventListener("resize", this.size);
    this.schemes.removeEventListener("change", this.look);
    this.host.disconnect();
    clearInterval(this.sizing);
    clearTimeout(this.late);
  }

  // The stepper's choice of light or dark holds for the whole page; auto is the page's own.
  meet(stepper) {
    clearInterval(this.sizing);
    stepper.addEventListener("change", () => {
      const { theme } = stepper.stepper.state;
      document.body.className = theme === "auto" ? this.page : this.page.replace(/\b(light|dark)\b/g, theme);
    });
  }

  // Python's values into the controls.
  take() {
    const values = this.model.get("values");
    for (const row of this.rows) if (row.knob.key in values) row.control.set(values[row.knob.key]);
    this.refresh();
  }

  values() {
    return Object.fromEntries(this.rows.map((row) => [row.knob.key, row.control.get()]));
  }

  refresh() {
    const values = this.values();
    for (const row of this.rows) row.refresh(values);
    this.picker.value = this.model.get("preset");
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

  wish(words) {
    this.model.set("wish", words);
    this.model.save_changes();
    if (words.startsWith("open:")) player()?.focus({ preventScroll: true });
  }

  tell() {
    const { model } = this;
    this.notes.replaceChildren(...model.get("notes").map((note) => h("p", {}, note)));
    this.origin.textContent = model.get("origin");
    const source = model.get("source");
    const back = h("button", { type: "button", data: { testid: "back" }, onclick: () => this.send() }, "Back to the scene");
    this.source.replaceChildren(...(source ? [h("p", {}, `Shown: the trace in ${source}.`), back] : []));
  }

  // The page's address says the scene; parts that belong to the server stay.
  address() {
    const search = new URLSearchParams(location.search);
    for (const key of ["step", "hidden", ...this.rows.map((row) => row.knob.key)]) search.delete(key);
    for (const [key, text] of Object.entries(this.model.get("query"))) search.set(key, text);
    const words = search.toString();
    history.replaceState(history.state, "", location.pathname + (words ? `?${words}` : "") + location.hash);
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

  download() {
    const data = this.model.get("saved");
    if (!data?.byteLength) return;
    const url = URL.createObjectURL(new Blob([data], { type: "application/octet-stream" }));
    h("a", { href: url, download: "vla-trace.zip" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
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

// As the stepper decides it, so that both look alike.
function isDark(schemes) {
  const { classList } = document.body;
  if (classList.contains("dark") || classList.contains("light")) return classList.contains("dark");
  return schemes.matches;
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
