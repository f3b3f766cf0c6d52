// A heatmap of links: draws the numbers it is given. No dependency, no request.

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (typeof value === "boolean") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null));
  return node;
}

const NS = "http://www.w3.org/2000/svg";

function s(tag, attributes, ...children) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.flat());
  return node;
}

const words = (x, y, text, fill, anchor = "middle") => s("text", { x, y, fill, "text-anchor": anchor }, text);

const short = (x) => (x == null ? "∞" : x !== 0 && Math.abs(x) < 1e-3 ? x.toExponential(0).replace("-", "−") : String(Number(x.toPrecision(2))));
const parts = (colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
const channel = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const luminance = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);

// A share from 0 to 1 on the map, and an ink that can be read on it.
function shade(stops, share) {
  const at = Math.max(0, Math.min(1, share)) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  const [a, b] = [parts(stops[low]), parts(stops[low + 1])];
  const mixed = a.map((x, i) => Math.round(x + (at - low) * (b[i] - x)));
  return { background: `rgb(${mixed.join(",")})`, color: luminance(mixed) > 0.18 ? "#000000" : "#ffffff" };
}

class Heatmap {
  constructor(model, el) {
    this.model = model;
    this.at = [0, 0];
    this.heading = h("h2", { id: "map-title" });
    this.grid = h("table", { role: "grid", "aria-labelledby": "map-title", data: { testid: "map-grid" } });
    this.hint = h("p", { class: "hint" }, "Each cell opens its trace in the stepper. Arrow keys walk, Enter opens.");
    this.root = h("div", { class: "vla-map", data: { testid: "map" } }, this.heading, h("div", { class: "scroll" }, this.grid), this.scale(),
      h("div", { class: "foot" }, this.hint, h("button", { type: "button", title: "The map as one SVG file", data: { testid: "save-map" }, onclick: () => this.save() }, "Save picture")));
    this.grid.addEventListener("keydown", (event) => this.key(event));
    el.replaceChildren(this.root);
    this.listen();
    this.draw();
  }

  scale() {
    this.low = h("span");
    this.high = h("span");
    this.bar = h("i", { "aria-hidden": "true" });
    return h("p", { class: "scale" }, this.low, this.bar, this.high);
  }

  listen() {
    this.handlers = { "change:picture": () => this.draw(), "change:shown": () => this.draw() };
    for (const [event, handler] of Object.entries(this.handlers)) this.model.on(event, handler);
    this.schemes = matchMedia("(prefers-color-scheme: dark)");
    this.look = () => {
      const { classList } = document.body;
      const told = classList.contains("dark") || classList.contains("light");
      const look = (told ? classList.contains("dark") : this.schemes.matches) ? "dark" : "light";
      if (this.root.dataset.look === look) return;
      this.root.dataset.look = look;
      this.draw();
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
  }

  draw() {
    this.root.hidden = !this.model.get("shown");
    if (this.root.hidden) return;
    const picture = this.model.get("picture");
    const stops = this.model.get("colours")[this.root.dataset.look === "dark" ? "dark" : "light"];
    const [low, high] = this.range(picture);
    this.heading.textContent = picture.title;
    this.low.textContent = `${short(low)} `;
    this.high.textContent = ` ${short(high)}  ${picture.name}${picture.log ? ", colours by powers of ten" : ""}`;
    this.bar.style.background = `linear-gradient(to right, ${stops.join(",")})`;
    const held = this.grid.contains(this.grid.getRootNode().activeElement);
    this.grid.replaceChildren(this.head(picture), h("tbody", {}, picture.rows.map((row, i) => this.row(picture, i, (value) => this.place(value, low, high, picture.log), stops))));
    if (held) this.focus(...this.at);
    this.root.dataset.name = picture.name;
    this.root.dataset.title = picture.title;
  }

  range({ values, log }) {
    const known = values.flat().filter((value) => value != null);
    return log ? [Math.min(...known), Math.max(...known)] : [0, Math.max(1, ...known)];
  }

  place(value, low, high, log) {
    if (value == null) return 1;
    return log ? Math.log(value / low) / Math.max(1e-9, Math.log(high / low)) : (value - low) / (high - low);
  }

  head({ columns }) {
    return h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "λ0 \\ ρ"), columns.map((rho) => h("th", { scope: "col" }, String(rho)))));
  }

  row(picture, i, place, stops) {
    const lambda0 = picture.rows[i];
    return h("tr", {}, h("th", { scope: "row" }, short(lambda0)), picture.columns.map((rho, j) => {
      const value = picture.values[i][j];
      const link = h("a", {
        href: picture.links[i][j], tabindex: i === this.at[0] && j === this.at[1] ? "0" : "-1",
        title: `λ0 = ${short(lambda0)}, ρ = ${rho}: ${picture.name} ${value == null ? "not finite" : value.toPrecision(4)}`,
        data: { testid: "cell", row: i, column: j, value: value ?? "" },
      }, short(value));
      Object.assign(link.style, shade(stops, place(value)));
      return h("td", {}, link);
    }));
  }

  // The same cells as a picture.
  save() {
    const [width, height, left, top] = [72, 26, 70, 52];
    const picture = this.model.get("picture");
    const ink = getComputedStyle(this.root);
    const size = [left + width * picture.columns.length + 10, top + height * picture.rows.length + 10];
    const all = s("svg", { xmlns: NS, viewBox: `0 0 ${size.join(" ")}`, width: size[0], height: size[1], "font-family": "Arial, sans-serif", "font-size": 12 },
      s("rect", { width: size[0], height: size[1], fill: ink.backgroundColor }),
      words(10, 18, picture.title, ink.color, "start"), words(left - 8, top - 8, "λ0 \\ ρ", ink.color, "end"),
      picture.columns.map((rho, j) => words(left + (j + 0.5) * width, top - 8, String(rho), ink.color)),
      picture.rows.map((lambda0, i) => words(left - 8, top + (i + 0.7) * height, short(lambda0), ink.color, "end")));
    for (const cell of this.grid.querySelectorAll("a")) {
      const [x, y] = [left + width * cell.dataset.column, top + height * cell.dataset.row];
      all.append(s("rect", { x, y, width: width - 2, height: height - 2, fill: cell.style.background }), words(x + width / 2, y + 0.7 * height, cell.textContent, cell.style.color));
    }
    const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(all)], { type: "image/svg+xml" }));
    h("a", { href: url, download: "vla-stability-map.svg" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  key(event) {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const { rows, columns } = this.model.get("picture");
    const clamp = (x, most) => Math.max(0, Math.min(x, most - 1));
    this.focus(clamp(this.at[0] + by[0], rows.length), clamp(this.at[1] + by[1], columns.length));
  }

  cell(row, column) { return this.grid.querySelector(`[data-row="${row}"][data-column="${column}"]`); }

  focus(row, column) {
    this.cell(...this.at)?.setAttribute("tabindex", "-1");
    this.at = [row, column];
    const cell = this.cell(row, column);
    cell?.setAttribute("tabindex", "0");
    cell?.focus({ preventScroll: true });
  }
}

function render({ model, el }) {
  const heatmap = new Heatmap(model, el);
  return () => heatmap.destroy();
}

export default { render };
