// The plane: draws the geometry it is given. No dependency, no request; it computes nothing but places.

const NS = "http://www.w3.org/2000/svg";
const FONT = "'Source Sans 3', 'Segoe UI', 'Helvetica Neue', Arial, sans-serif";

function make(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (typeof value === "boolean") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.flat(3).filter((child) => child != null));
  return node;
}
const h = (tag, attributes = {}, ...children) => make(document.createElement(tag), attributes, children);
const s = (tag, attributes = {}, ...children) => make(document.createElementNS(NS, tag), attributes, children);

// Three significant digits.
function three(x) {
  if (x == null) return "–";
  if (x === 0 || Math.abs(x) < 1e-12) return "0";
  const size = Math.abs(x);
  if (size >= 1e-3 && size < 1e5) return Number(x.toPrecision(3)).toFixed(Math.max(0, 2 - Math.floor(Math.log10(Number(size.toPrecision(3)))))).replace("-", "−");
  return x.toExponential(2).replace(/-/g, "−").replace("+", "");
}

const channel = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const parts = (colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
const luminance = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255);

// A value from −1 to 1 on the diverging map, and an ink that can be read on it.
function shade(stops, value) {
  const at = ((Math.max(-1, Math.min(1, value)) + 1) / 2) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  const [a, b] = [parts(stops[low]), parts(stops[low + 1])];
  const mixed = a.map((x, i) => Math.round(x + (at - low) * (b[i] - x)));
  return { background: `rgb(${mixed.join(",")})`, color: luminance(mixed) > 0.18 ? "#000000" : "#ffffff" };
}

const RADIUS = 130;
const degrees = (radians) => (radians * 180) / Math.PI;
const radians = (angle) => (angle * Math.PI) / 180;
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const azimuth = (angle) => (Array.isArray(angle) ? angle[0] : angle);
const named = (angle) => (Array.isArray(angle) ? `${angle[0]}°/${angle[1]}°` : `${angle}°`);

function unit(angle) {
  if (!Array.isArray(angle)) return [Math.cos(radians(angle)), Math.sin(radians(angle))];
  const [turn, up] = angle.map(radians);
  return [Math.cos(up) * Math.cos(turn), Math.cos(up) * Math.sin(turn), Math.sin(up)];
}

function toAngle([x, y, z]) {
  return [degrees(Math.atan2(y, x)), degrees(Math.asin(Math.max(-1, Math.min(1, z))))];
}

// A view of space: right, up, and towards the eye, as rows. In the plane right and up are x and y.
function frameOf([yaw, pitch]) {
  const [turn, up] = [radians(yaw), radians(pitch)];
  const [c, s, d, t] = [Math.cos(turn), Math.sin(turn), Math.cos(up), Math.sin(up)];
  return [[c, s, 0], [-s * t, c * t, d], [s * d, -c * d, t]];
}

const thin = (d, stroke, more) => s("path", { d, stroke, fill: "none", "stroke-width": 1, ...more });

const wrap = (angle) => 180 - ((((180 - angle) % 360) + 360) % 360);

class Plane {
  constructor(model, el) {
    this.model = model;
    this.angles = [...model.get("angles")];
    this.view = [...model.get("view")];
    this.build();
    el.replaceChildren(this.root);
    this.listen();
    this.draw();
  }

  get picture() { return this.model.get("picture"); }

  get space() { return this.picture.dims === 3; }

  get eye() { return frameOf(this.view); }

  // Where a vector lies on the picture, and how far towards the eye.
  place(vector) {
    if (vector.length === 2) return [vector[0], -vector[1], 0];
    const [right, up, near] = this.eye;
    return [dot(vector, right), -dot(vector, up), dot(vector, near)];
  }

  get step() { return Math.min(this.model.get("step"), this.picture.moments.length - 1); }

  build() {
    const button = (text, name, title, act) => h("button", { type: "button", title, data: { testid: name }, onclick: act }, text);
    this.arrows = s("svg", { viewBox: "-172 -172 344 344", data: { testid: "plane" }, role: "group" });
    this.rho = s("svg", { viewBox: "0 0 320 172", role: "img", data: { testid: "over-rho" } });
    this.lambda = s("svg", { viewBox: "0 0 320 172", role: "img", data: { testid: "over-lambda0" } });
    this.gains = s("svg", { viewBox: "0 0 330 128", role: "img", data: { testid: "gains" } });
    this.table = h("table", { data: { testid: "gain-table" } });
    this.says = h("p", { class: "says", role: "status", data: { testid: "says" } });
    this.strip = h("div", { class: "strip", data: { testid: "strip" } });
    this.back = button("◀ Back", "back", "One write back", () => this.go(this.step - 1));
    this.next = button("Next ▶", "next", "One write on", () => this.go(this.step + 1));
    this.less = button("Remove last key", "remove-key", "Takes the last key away", () => this.move(this.angles.slice(0, -1)));
    this.more = button("Add a key", "add-key", "Adds a key 40° from the last", () => this.move([...this.angles, this.another()], true));
    this.title = h("h2");
    this.arrows.addEventListener("pointerdown", (event) => this.turn(event));
    this.root = h("div", { class: "vla-plane", data: { testid: "picture" } },
      h("div", { class: "top" },
        h("section", {}, this.title, this.arrows),
        h("section", {}, h("h2", {}, "Overlap of the second write with the first key, against ρ"), this.rho, h("h2", {}, "… and against λ0, at this ρ"), this.lambda),
        h("section", {}, h("h2", {}, "This write under three gains"), this.gains, this.table)),
      this.says,
      h("h2", {}, "M grows by u uᵀ at each write (select a step)"), this.strip,
      h("div", { class: "walk" }, this.back, this.next, this.more, this.less, h("span", { class: "gap" }),
        button("Save picture", "save-picture", "The four pictures as one SVG file", () => this.save())));
  }

  listen() {
    const { model } = this;
    const redraw = () => { if (!this.waiting && !this.dragging) this.angles = [...model.get("angles")]; this.draw(); };
    const turned = () => { if (!this.turning) this.view = [...model.get("view")]; this.draw(); };
    this.handlers = {
      "change:view": turned, "change:shown": () => this.draw(), "change:picture": redraw, "change:angles": redraw, "change:step": () => this.draw(), "change:answered": () => this.answer(),
    };
    for (const [event, handler] of Object.entries(this.handlers)) model.on(event, handler);
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
    clearTimeout(this.late);
  }

  // What the person does.

  go(step) {
    this.model.set("step", Math.max(0, Math.min(step, this.angles.length)));
    this.model.save_changes();
    this.draw();
  }

  another() {
    const last = this.angles.at(-1);
    return this.space ? [last[0] + 40, last[1]] : last + 40;
  }

  move(angles, toLast = false) {
    const round = (angle) => Number(wrap(angle).toFixed(1));
    const steep = (angle) => Number(Math.max(-90, Math.min(90, angle)).toFixed(1));
    this.angles = angles.map((angle) => (Array.isArray(angle) ? [round(angle[0]), steep(angle[1])] : round(angle)));
    if (toLast || this.step > angles.length) this.model.set("step", angles.length);
    if (this.picture.moments.length === angles.length + 1) this.drawArrows();
    this.send();
  }

  // One message under way at a time; of what happens meanwhile only the latest is sent.
  send() {
    if (this.waiting) { this.again = true; return; }
    this.waiting = true;
    this.again = false;
    this.sent = this.model.get("serial") + 1;
    this.model.set("angles", this.angles);
    this.model.set("serial", this.sent);
    this.model.save_changes();
    clearTimeout(this.late);
    this.late = setTimeout(() => this.answer(true), 10000);
  }

  answer(late = false) {
    if (!late && this.model.get("answered") < this.sent) return;
    clearTimeout(this.late);
    this.waiting = false;
    if (this.again) this.send();
  }

  // The pointer as a point of the picture, 1 at the unit circle.
  pointAt(event) {
    const box = this.arrows.getBoundingClientRect();
    const scale = (box.width / 344) * RADIUS;
    return [(event.clientX - box.left - box.width / 2) / scale, (box.top + box.height / 2 - event.clientY) / scale];
  }

  // In space the pointer takes a tip over its own half of the sphere, the near or the far one.
  angleAt(event, side) {
    const [x, y] = this.pointAt(event);
    if (!this.space) return degrees(Math.atan2(y, x));
    const length = Math.hypot(x, y);
    const [a, b] = length > 1 ? [x / length, y / length] : [x, y];
    const depth = side * Math.sqrt(Math.max(0, 1 - a * a - b * b));
    const [right, up, near] = this.eye;
    return toAngle(right.map((_, i) => a * right[i] + b * up[i] + depth * near[i]));
  }

  drag(event, i) {
    event.preventDefault();
    event.stopPropagation();
    this.dragging = true;
    this.held = i;
    const side = this.place(unit(this.angles[i]))[2] < 0 ? -1 : 1;
    const move = (moved) => this.move(this.angles.map((angle, j) => (j === i ? this.angleAt(moved, side) : angle)));
    this.follow(event, move, () => {
      this.dragging = false;
      this.focus(i);
    });
  }

  follow(event, move, end) {
    this.arrows.setPointerCapture(event.pointerId);
    const stop = () => {
      this.arrows.removeEventListener("pointermove", move);
      end();
    };
    this.arrows.addEventListener("pointermove", move);
    this.arrows.addEventListener("pointerup", stop, { once: true });
    this.arrows.addEventListener("pointercancel", stop, { once: true });
  }

  // Dragging beside the arrows turns space; the address learns of it at the end.
  turn(event) {
    if (!this.space || this.dragging) return;
    event.preventDefault();
    this.turning = true;
    let [x, y] = [event.clientX, event.clientY];
    const move = (moved) => {
      this.lookFrom(this.view[0] - 0.6 * (moved.clientX - x), this.view[1] + 0.6 * (moved.clientY - y));
      [x, y] = [moved.clientX, moved.clientY];
    };
    this.follow(event, move, () => { this.turning = false; this.tellView(); });
  }

  lookFrom(yaw, pitch) {
    this.view = [wrap(yaw), Math.max(-90, Math.min(90, pitch))];
    cancelAnimationFrame(this.frameDue);
    this.frameDue = requestAnimationFrame(() => { this.drawArrows(); this.drawGains(); });
  }

  tellView() {
    this.model.set("view", this.view.map((angle) => Number(angle.toFixed(1))));
    this.model.save_changes();
  }

  key(event, i) {
    const by = { ArrowLeft: 1, ArrowUp: 1, ArrowRight: -1, ArrowDown: -1, PageUp: 15, PageDown: -15 }[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const amount = by * (event.shiftKey ? 15 : 1);
    const rises = this.space && !["ArrowLeft", "ArrowRight"].includes(event.key);
    const moved = (angle) => (this.space ? (rises ? [angle[0], angle[1] + amount] : [angle[0] + amount, angle[1]]) : angle + amount);
    this.move(this.angles.map((angle, j) => (j === i ? moved(angle) : angle)));
    this.focus(i);
  }

  focus(i) { this.arrows.querySelector(`[data-arrow="${i}"]`)?.focus({ preventScroll: true }); }

  save() {
    const { paper } = this.ink();
    const places = [[this.arrows, 20, 20, 344, 344], [this.rho, 390, 20, 320, 172], [this.lambda, 390, 206, 320, 172], [this.gains, 730, 120, 330, 128]];
    const all = s("svg", { xmlns: NS, viewBox: "0 0 1080 400", width: 1080, height: 400 }, s("rect", { width: 1080, height: 400, fill: paper }));
    for (const [node, x, y, width, height] of places) {
      const copy = node.cloneNode(true);
      for (const [name, value] of Object.entries({ x, y, width, height })) copy.setAttribute(name, value);
      all.append(copy);
    }
    const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(all)], { type: "image/svg+xml" }));
    h("a", { href: url, download: "vla-whitening.svg" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  // Drawing.

  ink() { return this.model.get("colours")[this.root.dataset.look === "dark" ? "dark" : "light"]; }

  draw() {
    this.root.hidden = !this.model.get("shown");
    this.title.textContent = this.space ? "Keys, ellipsoid of A, write α̂" : "Keys, ellipse of A, write α̂";
    this.arrows.classList.toggle("turns", this.space);
    this.root.dataset.view = this.view.map((angle) => Number(angle.toFixed(1))).join(",");
    this.drawArrows();
    this.drawRho();
    this.drawLambda();
    this.drawGains();
    this.drawStrip();
    this.tell();
    this.root.dataset.step = this.step;
    this.root.dataset.keys = this.picture.angles.map((angle) => [angle].flat().join("/")).join(",");
    this.back.disabled = this.step === 0;
    this.next.disabled = this.step >= this.picture.moments.length - 1;
    this.less.disabled = this.angles.length <= 1;
    this.more.disabled = this.angles.length >= 8;
  }

  arrow(x, y, colour, width, more = {}) {
    const length = Math.hypot(x, y);
    if (length < 2) return null;
    const [ux, uy, head] = [x / length, y / length, Math.min(11, length / 2)];
    const tip = [[x, y], [x - head * ux + 0.42 * head * uy, y - head * uy - 0.42 * head * ux], [x - head * ux - 0.42 * head * uy, y - head * uy + 0.42 * head * ux]];
    return [
      s("line", { x2: x - 0.8 * head * ux, y2: y - 0.8 * head * uy, stroke: colour, "stroke-width": width, ...more }),
      s("polygon", { points: tip.map((p) => p.join(",")).join(" "), fill: colour }),
    ];
  }

  text(x, y, words, colour, more = {}) {
    return s("text", { x, y, fill: colour, "font-size": 12, "font-family": FONT, ...more }, words);
  }

  // The outline of an ellipsoid is an ellipse too: that of its matrix seen in the picture's plane.
  outline(moment) {
    const [right, up] = this.eye;
    const along = moment.directions.map((axis, i) => [moment.axes[i] * dot(axis, right), moment.axes[i] * dot(axis, up)]);
    const sum = (i, j) => along.reduce((total, axis) => total + axis[i] * axis[j], 0);
    const [a, b, c] = [sum(0, 0), sum(0, 1), sum(1, 1)];
    const [middle, half] = [(a + c) / 2, Math.hypot((a - c) / 2, b)];
    const axes = [middle + half, middle - half].map((square) => Math.sqrt(Math.max(0, square)));
    return { axes, tilt: degrees(Math.atan2(2 * b, a - c)) / 2 };
  }

  // The ellipsoid's three sections through its axes: what faces the eye is solid.
  sections(moment, colour) {
    const near = this.eye[2];
    return [[0, 1], [0, 2], [1, 2]].flatMap(([i, j]) => {
      const [p, q] = [moment.directions[i], moment.directions[j]];
      const [a, b] = [moment.axes[i], moment.axes[j]];
      const runs = { front: [], back: [] };
      for (let at = 0; at < 72; at++) {
        const ends = [at, at + 1].map((t) => [Math.cos((t * Math.PI) / 36), Math.sin((t * Math.PI) / 36)]);
        const [c, s] = [ends[0][0] + ends[1][0], ends[0][1] + ends[1][1]];
        const faces = (c / Math.max(a, 1e-9)) * dot(p, near) + (s / Math.max(b, 1e-9)) * dot(q, near) >= 0;
        const points = ends.map(([x, y]) => this.place(p.map((_, k) => a * x * p[k] + b * y * q[k])).slice(0, 2).map((v) => (RADIUS * v).toFixed(1)).join(" "));
        runs[faces ? "front" : "back"].push(`M${points.join("L")}`);
      }
      return [
        thin(runs.back.join(""), colour, { opacity: 0.35 }),
        thin(runs.front.join(""), colour, { opacity: 0.9 }),
      ];
    });
  }

  ellipse(moment, colour, more) {
    if (this.space) moment = this.outline(moment);
    const [a, b] = moment.axes.map((x) => 130 * x);
    return s("ellipse", { rx: a, ry: Math.max(b, 0.6), transform: `rotate(${-moment.tilt})`, stroke: colour, fill: "none", ...more });
  }

  drawArrows() {
    const { picture, step } = this;
    const R = 130;
    const c = this.ink();
    const held = this.root.contains(this.arrows) ? this.arrows.getRootNode().activeElement?.dataset?.arrow : undefined;
    const now = picture.moments[step];
    const nodes = [
      s("circle", { r: R, fill: "none", stroke: c.grid, "stroke-width": 1.5 }),
      this.space ? this.floor(c) : s("path", { d: `M${-R} 0H${R}M0 ${-R}V${R}`, stroke: c.grid }),
      step > 0 ? this.ellipse(picture.moments[step - 1], c.muted, { "stroke-dasharray": "2 4" }) : null,
      this.ellipse(now, c.vla, { fill: c.vla, "fill-opacity": 0.14, "stroke-width": 1.5 }),
    ];
    if (this.space) nodes.push(...this.sections(now, c.vla));
    const keys = this.angles.map((angle, i) => ({ i, angle, depth: this.place(unit(angle))[2] }));
    if (this.space) keys.sort((a, b) => a.depth - b.depth);
    nodes.push(...keys.map(({ angle, i }) => this.keyArrow(angle, i, now)));
    nodes.push(...this.directions(now, R));
    this.arrows.replaceChildren(...nodes.flat(3).filter(Boolean));
    this.arrows.setAttribute("aria-label", this.words());
    if (held !== undefined) this.focus(held);
  }

  // The unit sphere's equator and the three coordinate axes.
  floor(c) {
    const ring = Array.from({ length: 73 }, (_, i) => this.place(unit([5 * i, 0])).slice(0, 2).map((v) => (RADIUS * v).toFixed(1)).join(" "));
    const axes = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map((axis) => this.place(axis).slice(0, 2).map((v) => RADIUS * v));
    return [
      thin(`M${ring.join("L")}`, c.grid),
      ...axes.map(([x, y]) => thin(`M${-x} ${-y}L${x} ${y}`, c.grid)),
      ...axes.map(([x, y], i) => this.text(1.09 * x, 1.09 * y + 4, "xyz"[i], c.muted, { "text-anchor": "middle" })),
    ];
  }

  keyArrow(angle, i, now) {
    const c = this.ink();
    const [x, y, depth] = this.place(unit(angle)).map((v) => RADIUS * v);
    const written = i < this.step;
    const current = i === this.step - 1;
    const colour = written ? c.ink : c.muted;
    const near = this.angles.map((_, j) => j).filter((j) => dot(unit(this.angles[j]), unit(angle)) > 0.99756);
    const bold = near.includes(this.step - 1);
    const label = near[0] < i ? null : `k${i + 1}${near.length > 1 ? ` +${near.length - 1}` : ""}`;
    return s("g", {
      role: "slider", tabindex: 0, "aria-label": `key ${i + 1}`, "aria-valuemin": -180, "aria-valuemax": 180, "aria-valuenow": azimuth(angle),
      "aria-valuetext": this.space ? `azimuth ${angle[0]}, elevation ${angle[1]} degrees` : `${angle} degrees`, opacity: depth < -1 ? 0.55 : null, data: { arrow: i, testid: "arrow", key: i + 1 },
      onpointerdown: (event) => this.drag(event, i), onkeydown: (event) => this.key(event, i),
    },
    s("title", {}, `k${i + 1} at ${named(angle)}${now.overlaps[i] == null ? "" : `; α̂·k${i + 1} = ${three(now.overlaps[i])}`}`),
    this.arrow(x, y, colour, current ? 3 : 1.8, { "stroke-dasharray": written ? null : "3 3" }),
    s("circle", { class: "halo", cx: x, cy: y, r: 13, fill: c.ink, "fill-opacity": 0.04, stroke: "none" }),
    label && this.text(x * 1.17, y * 1.17 + 4, label, colour, { "text-anchor": "middle", "font-weight": bold ? 700 : 400, "font-size": 14 }));
  }

  directions(now, R) {
    const c = this.ink();
    if (!now.direction) return [];
    const { picture, step } = this;
    const flat = (vector) => this.place(vector);
    const [x, y] = flat(now.direction).map((value) => R * value);
    const u = flat(picture.u[step - 1]);
    const other = flat(picture.update === "post" ? now.before : now.after);
    const apart = now.apart > 0.5;
    return [
      picture.turn ? this.arrow(0.45 * R * u[0], 0.45 * R * u[1], c.muted, 1.5, { "stroke-dasharray": "2 3" }) : null,
      picture.turn ? this.text(0.45 * R * u[0] + 10, 0.45 * R * u[1] + 4, "u", c.muted, { "text-anchor": "middle" }) : null,
      apart ? this.arrow(0.86 * R * other[0], 0.86 * R * other[1], c.vla, 2, { "stroke-dasharray": "6 4" }) : null,
      apart ? this.text(0.95 * R * other[0], 0.95 * R * other[1], picture.update === "post" ? "pre" : "post", c.vla_text, { "text-anchor": "middle" }) : null,
      s("g", { "pointer-events": "none" }, this.arrow(0.9 * x, 0.9 * y, c.vla, 4),
        this.text(0.62 * x - 0.13 * y, 0.62 * y + 0.13 * x + 5, "α̂", c.vla_text, { "text-anchor": "middle", "font-size": 17, "font-weight": 700 })),
    ];
  }

  // Axes of a chart: a frame, ticks, and functions from values to places.
  frame(box, xs, ys, xTitle) {
    const c = this.ink();
    const nodes = [];
    for (const [at, label] of ys) nodes.push(s("path", { d: `M${box.left} ${box.y(at)}H${box.right}`, stroke: c.grid }), this.text(box.left - 5, box.y(at) + 4, label, c.muted, { "text-anchor": "end" }));
    for (const [at, label] of xs) nodes.push(s("path", { d: `M${box.x(at)} ${box.top}V${box.bottom}`, stroke: c.grid }), this.text(box.x(at), box.bottom + 14, label, c.muted, { "text-anchor": "middle" }));
    nodes.push(this.text((box.left + box.right) / 2, box.bottom + 28, xTitle, c.muted, { "text-anchor": "middle" }));
    return nodes;
  }

  curve(points, box, colour, more = {}) {
    return s("path", { d: `M${points.map(([x, y]) => `${box.x(x).toFixed(1)} ${box.y(y).toFixed(1)}`).join("L")}`, fill: "none", stroke: colour, "stroke-width": 2, ...more });
  }

  dot(x, y, words) {
    const c = this.ink();
    return s("circle", { cx: x, cy: y, r: 5.5, fill: c.vla, stroke: c.paper, "stroke-width": 1.5, data: { testid: "dot" } }, s("title", {}, words));
  }

  // Points that answer the pointer with their value.
  spots(points, box, name) {
    return points.map(([x, y]) => s("circle", { cx: box.x(x), cy: box.y(y), r: 7, fill: "transparent" }, s("title", {}, `${name} ${three(x)}: ${three(y)}`)));
  }

  drawRho() {
    const { picture } = this;
    const c = this.ink();
    const box = { left: 34, right: 312, top: 8, bottom: 138, x: (v) => 173 + 139 * v, y: (v) => 73 - 62 * v };
    const nodes = [
      ...this.frame(box, [[-1, "−1"], [-0.5, "−0.5"], [0, "0"], [0.5, "0.5"], [1, "1"]], [[-1, "−1"], [0, "0"], [1, "1"]], "ρ = k1·k2"),
      this.curve([[-1, -1], [1, 1]], box, c.delta, { "stroke-width": 1.5 }),
      this.curve([[-1, 0], [1, 0]], box, c.vla, { "stroke-dasharray": "6 4", "stroke-width": 1.5 }),
      this.curve(picture.over_rho, box, c.vla),
      this.text(64, 66, "§7.2 as published: 0", c.vla_text),
      this.text(214, 34, "delta rule: ρ", c.delta_text, { "text-anchor": "end" }),
      this.text(308, 132, `general (u = k), λ0 = ${three(picture.lambda0)}`, c.vla_text, { "text-anchor": "end" }),
      ...this.spots(picture.over_rho, box, "general formula at ρ"),
      picture.rho == null ? null : this.dot(box.x(picture.rho), box.y(picture.left), `measured at ρ ${three(picture.rho)}: ${three(picture.left)}`),
    ];
    this.rho.replaceChildren(...nodes.filter(Boolean));
    this.rho.setAttribute("aria-label", `Overlap α̂·k1 of the second write against ρ: ${three(picture.left)} measured at ρ = ${three(picture.rho)}; §7.2 has 0.`);
  }

  drawLambda() {
    const { picture } = this;
    const c = this.ink();
    const box = { left: 34, right: 312, top: 8, bottom: 138, x: (v) => 34 + (278 * (Math.log10(v) + 6)) / 8, y: (v) => 138 - 130 * Math.abs(v) };
    const general = picture.over_lambda0;
    const nodes = [
      ...this.frame(box, [[1e-6, "1e−6"], [1e-4, "1e−4"], [1e-2, "0.01"], [1, "1"], [100, "100"]], [[0, "0"], [0.5, "0.5"], [1, "1"]], "λ0 (size of the overlap, ρ as it is)"),
      this.curve([[1e-6, 0], [100, 0]], box, c.vla, { "stroke-dasharray": "6 4", "stroke-width": 1.5 }),
      this.curve(general, box, c.vla),
      picture.rho == null ? null : this.curve([[1e-6, picture.rho], [100, picture.rho]], box, c.delta, { "stroke-width": 1.5 }),
      ...this.spots(general, box, "general formula at λ0"),
      picture.rho == null ? null : this.dot(box.x(picture.lambda0), box.y(picture.left), `measured at λ0 ${three(picture.lambda0)}: ${three(picture.left)}`),
    ];
    this.lambda.replaceChildren(...nodes.filter(Boolean));
    this.lambda.setAttribute("aria-label", `The same overlap against λ0 at ρ = ${three(picture.rho)}: ${three(general[0][1])} at 1e-6, ${three(general.at(-1)[1])} at 100.`);
  }

  drawGains() {
    const { picture, step } = this;
    const c = this.ink();
    const { written } = picture.moments[step];
    const scale = 50 / Math.max(1, ...written.map((each) => each.length));
    const nodes = written.map((each, i) => {
      const [x, y] = this.place(each.vector);
      const key = this.place(picture.k[step - 1]);
      return s("g", { transform: `translate(${55 + 110 * i} 62)` },
        s("title", {}, `${each.gain}: length ${three(each.length)}, k·gain ${three(each.aligned)}`),
        s("circle", { r: scale, fill: "none", stroke: c.grid }),
        this.arrow(scale * key[0], scale * key[1], c.ink, 1.5),
        this.arrow(scale * x, scale * y, c.vla, 3.5),
        this.text(0, 64, each.gain, c.ink, { "text-anchor": "middle", "font-weight": 600, "font-size": 13 }));
    });
    this.gains.replaceChildren(...nodes);
    this.gains.setAttribute("aria-label", written.length ? `The gain of this write: ${written.map((each) => `${each.gain} has length ${three(each.length)}`).join(", ")}.` : "Nothing is written yet.");
    this.drawTable(written);
  }

  drawTable(written) {
    const cell = (name, each, key) => h("td", { data: { testid: "number", lane: each.gain, number: key, value: each[key] ?? "" } }, three(each[key]));
    const row = (words, key) => h("tr", {}, h("th", { scope: "row" }, words), written.map((each) => cell(words, each, key)));
    this.table.replaceChildren(
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""), written.map((each) => h("th", { scope: "col" }, each.gain)))),
      h("tbody", {}, row("length ‖gain‖", "length"), row("k·gain", "aligned"), row("residual ‖e‖ before", "residual"), row("left of this pair", "left"), row("worst older pair", "worst")));
  }

  drawStrip() {
    const { picture, step } = this;
    const { diverging } = this.ink();
    const most = Math.max(...picture.moments.flatMap((moment) => moment.M.flat().map(Math.abs)));
    const tiles = picture.moments.map((moment, t) => {
      const cells = moment.M.flat().map((value) => {
        const span = h("span", { title: String(value) }, three(value));
        Object.assign(span.style, shade(diverging, value / most));
        return span;
      });
      return h("button", {
        type: "button", class: this.space ? "tile wide" : "tile", data: { testid: "tile", step: t }, "aria-current": t === step ? "step" : null,
        "aria-label": `step ${t}: M = ${moment.M.flat().map(three).join(", ")}`, onclick: () => this.go(t),
      }, h("div", { class: "cells" }, cells), t ? `after k${t}` : "M₀ = λ0 I");
    });
    const held = this.strip.contains(this.strip.getRootNode().activeElement);
    const left = this.strip.scrollLeft;
    this.strip.replaceChildren(...tiles);
    this.strip.scrollLeft = left;
    if (held) tiles[step].focus({ preventScroll: true });
  }

  tell() {
    const { picture, step } = this;
    const now = picture.moments[step];
    const number = (words, key, value) => h("span", { class: "figure" }, `${words} `, h("b", { data: { testid: "number", lane: "step", number: key, value: value ?? "" } }, three(value)));
    if (!step) {
      this.says.replaceChildren("Before the first write A = I/λ0: the ellipse is the unit circle and every direction is as free as any other.");
      return;
    }
    const first = now.overlaps.length ? number("α̂·k1", "overlap", now.overlaps[0]) : [];
    const apart = now.apart > 0.5 ? "Pre- and post-update directions differ, since u isn't along k." : "Pre- and post-update A give the same direction, since u is along k.";
    this.says.replaceChildren(...[
      h("span", { class: "figure" }, `Write ${step} of ${picture.angles.length}`), number("ρ = k1·k2", "rho", picture.rho), first, number("c = k·α̂", "cosine", now.cosine),
      number("δ", "delta", now.delta), number("axes of √(λ0 A)", "long", now.axes[0]), this.space ? number("·", "middle", now.axes[1]) : [], number(this.space ? "·" : "and", "short", now.axes.at(-1)), h("br"),
      number("degrees between pre and post", "apart", now.apart), apart,
    ].flat(3));
  }

  words() {
    const { picture, step } = this;
    const now = picture.moments[step];
    const keys = this.angles.map((angle, i) => `k${i + 1} ${named(angle)}`).join(", ");
    if (this.space) {
      const [turn, up] = now.direction ? toAngle(now.direction) : [];
      const rises = now.direction ? ` The write of k${step} points at azimuth ${three(turn)}°, elevation ${three(up)}°, c = ${three(now.cosine)}.` : "";
      return `Keys ${keys}. Ellipsoid of √(λ0 A): semi-axes ${now.axes.map(three).join(", ")}.${rises}`;
    }
    const write = now.direction ? ` The write of k${step} points at ${three((Math.atan2(now.direction[1], now.direction[0]) * 180) / Math.PI)}°, c = ${three(now.cosine)}.` : "";
    return `Keys ${keys}. Ellipse of √(λ0 A): semi-axes ${three(now.axes[0])} and ${three(now.axes[1])}, tilted by ${three(now.tilt)}°.${write}`;
  }
}

function render({ model, el }) {
  const plane = new Plane(model, el);
  return () => plane.destroy();
}

export default { render };
