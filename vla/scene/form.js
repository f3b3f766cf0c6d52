// Knobs as controls, and the form that sends their texts to Python: put ahead of each app's own part.
// No dependency, no request. Words from outside enter the page as text only.

const STOPS = 1000; // of a slider on a logarithmic scale

// Parts of the address that belong to the server.
const SERVER = new Set(["file", "access_token", "refresh_token", "session_id", "view-as", "show-chrome", "kiosk", "include-code", "theme"]);

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

function button(words, name, title, act) {
  return h("button", { type: "button", title, data: { testid: name }, onclick: act }, words);
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
    rows: knob.high > 200 ? 3 : 2, maxlength: knob.high, spellcheck: "false", "aria-label": said(knob), data: { testid: "words", key: knob.key },
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
    // A choice that needs another stream isn't offered.
    refresh(values) { boxes.forEach((label, i) => { const { stream } = knob.options[i]; label.hidden = Boolean(stream) && stream !== values.stream; }); },
  };
}

const KINDS = { int: slider, float: slider, choice, flag, text: words, names };

class Row {
  constructor(knob, changed) {
    this.knob = knob;
    this.control = KINDS[knob.kind](knob, changed);
    const wide = ["text", "names"].includes(knob.kind);
    const back = () => { this.control.set(knob.default); changed(); };
    this.reset = h("button", { type: "button", class: "default", title: `Back to ${knob.shown}`, data: { testid: "reset", key: knob.key }, onclick: back }, wide ? "back to the default" : ["default ", h("b", {}, knob.shown)]);
    this.help = h("span", {}, knob.help);
    const help = h("p", { class: "help" }, this.help, " ", this.reset);
    const name = knob.kind === "names" ? null : h("span", { class: "name" }, knob.label);
    this.node = h("div", { class: wide ? "row wide" : "row", data: { row: knob.key } }, name, this.control.node, help);
  }

  refresh(values) {
    const text = this.control.get();
    const { knob } = this;
    this.control.refresh?.(values);
    const foreign = knob.streams.length > 0 && !knob.streams.includes(values.stream);
    this.node.hidden = foreign || Object.entries(knob.idle).some(([key, idle]) => idle.includes(values[key]));
    this.reset.disabled = text === knob.default || (knob.kind !== "text" && text !== "" && Number(text) === Number(knob.default));
    const chosen = knob.options.find((option) => option.value === text);
    if (chosen?.help) this.help.textContent = chosen.help;
  }
}

class Form {
  constructor(model, el) {
    this.model = model;
    this.handlers = [];
    const changed = () => { this.refresh(); this.send(); };
    this.rows = model.get("table").map((knob) => new Row(knob, changed));
    this.picker = h("select", { "aria-label": "Prepared scene", data: { testid: "preset" }, onchange: () => this.wish(`open:${this.picker.value}`) },
      h("option", { value: "", disabled: true }, "your own scene"),
      model.get("presets").map((preset) => h("option", { value: preset.name, title: preset.question }, preset.title)));
    this.notes = h("div", { class: "notes", role: "status", "aria-live": "polite", data: { testid: "notes" } });
    this.link = button("Copy link", "copy-link", "Copies the address of exactly this scene", () => this.copy());
    this.root = h("form", { class: "vla-panel", "aria-label": "Controls", data: { testid: "panel" }, onsubmit: (event) => event.preventDefault() });
    this.root.append(...this.build());
    el.replaceChildren(this.root);
    this.on("values", () => { if (!this.own && !this.again) this.take(); });
    this.on("answered", () => this.answer());
    this.on("notes", () => this.tell());
    this.on("preset", () => this.refresh());
    this.on("query", () => this.address());
    this.watch();
    this.listen();
    this.take();
    this.tell();
    this.address();
  }

  on(trait, handler) {
    this.handlers.push([`change:${trait}`, handler]);
    this.model.on(`change:${trait}`, handler);
  }

  // Light or dark, whenever the page or the system turns.
  watch() {
    this.schemes = matchMedia("(prefers-color-scheme: dark)");
    this.look = () => this.show(isDark(this.schemes) ? "dark" : "light");
    this.schemes.addEventListener("change", this.look);
    this.host = new MutationObserver(this.look);
    for (const node of [document.body, document.documentElement]) this.host.observe(node, { attributes: true, attributeFilter: ["class", "data-theme"] });
    this.look();
  }

  show(look) {
    this.root.dataset.look = look;
  }

  destroy() {
    for (const [event, handler] of this.handlers) this.model.off(event, handler);
    this.schemes.removeEventListener("change", this.look);
    this.host.disconnect();
    clearTimeout(this.late);
  }

  group(name, ...more) {
    return h("details", { open: true, data: { group: name } }, h("summary", {}, name), this.rows.filter((row) => row.knob.group === name).map((row) => row.node), more);
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

  wish(text) {
    this.model.set("wish", text);
    this.model.save_changes();
  }

  tell() {
    this.notes.replaceChildren(...this.model.get("notes").map((note) => h("p", {}, note)));
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

  download(name) {
    const data = this.model.get("saved");
    if (!data?.byteLength) return;
    const url = URL.createObjectURL(new Blob([data], { type: "application/octet-stream" }));
    h("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}

// As the stepper decides it, so that all look alike.
function isDark(schemes) {
  const { classList } = document.body;
  if (classList.contains("dark") || classList.contains("light")) return classList.contains("dark");
  return schemes.matches;
}
