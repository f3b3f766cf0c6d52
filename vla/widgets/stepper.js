// The stepper: draws a packed trace (vla/widgets/pack.py) and plays it. No dependency, no request.
// Sections: formats · data · colour · painters · panels · the stepper · saving · hosts.

const RATE = 2; // steps a second at speed 1
const STRIP_PAGE = 200; // tokens shown at once; longer streams are paged
const STRIP = 10; // room below and beside a matrix for its vectors
const REST = 250; // milliseconds of quiet before the slow parts (read-aloud text, tables) are redone
const SPEEDS = [0.5, 1, 2, 4, 8, 16, 32];
const KINDS = [
  {
    key: "M",
    name: "penalty",
    words: "M = λ0 I + Σ u uᵀ: which directions were used so far",
    scale: "M",
  },
  { key: "A", name: "inverse", words: "A = M⁻¹: large where there is still room", scale: "A" },
  {
    key: "S",
    name: "memory",
    words: "S: a read is S q; below it the key, beside it the value",
    scale: "S",
  },
  {
    key: "dS",
    name: "write",
    words: "ΔS: what this step changed; below it the write direction, beside it the residual",
    scale: "S",
  },
];

// In a forked timeline it takes the write's place.
const FORK = {
  key: "D",
  name: "fork",
  words: "S − S′: the memory less that of the fork, which lived through one other token",
  scale: "S",
};
const CURVES = ["norm_S", "norm_A", "recall_mean"];
const BRANCH_CURVES = { norm_S: "branch_norm_S", recall_mean: "branch_recall_mean" };

// Formats.

export function three(x) {
  if (x == null || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (x === 0) return "0";
  const exponent = Math.floor(Math.log10(Math.abs(Number(x.toPrecision(3)))));
  const wide = exponent < -4 || exponent >= 6;
  const text = wide
    ? x.toExponential(2).replace("e+", "e")
    : Number(x.toPrecision(3)).toFixed(Math.max(0, 2 - exponent));
  return text.replace(/-/g, "−");
}

function exact(x) {
  return Number.isFinite(x) ? String(Number(x.toPrecision(7))).replace("-", "−") : three(x);
}

const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const symbol = (key) => ({ dS: "ΔS", D: "S−S′" })[key] ?? key;

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) assign(node, name, value);
  node.append(...children.flat().filter((child) => child != null));
  return node;
}

function assign(node, name, value) {
  if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else if (name === "class") node.className = value;
  else if (name === "data") Object.assign(node.dataset, value);
  else if (typeof value === "boolean") node[name] = value;
  else node.setAttribute(name, value);
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function icon(path) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 12 12");
  svg.setAttribute("aria-hidden", "true");
  svg.append(document.createElementNS(space, "path"));
  svg.firstChild.setAttribute("d", path);
  return svg;
}

function swatch(lane) {
  const node = h("span", {
    class: "swatch",
    data: { dash: String(lane.dash) },
    "aria-hidden": "true",
  });
  node.style.setProperty("--lane", lane.shade);
  return node;
}

// Data.

export function decode(data) {
  const bytes =
    data instanceof ArrayBuffer
      ? new Uint8Array(data)
      : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const length = new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  return new Trace(header, bytes.slice(4 + length).buffer);
}

class Trace {
  constructor(header, buffer) {
    Object.assign(this, header);
    this.lanes = header.lanes.map((lane) => new Lane(lane, buffer));
    this.signature = JSON.stringify([
      this.d,
      this.dv,
      this.lanes.map((lane) => [lane.id, lane.title, lane.equation, lane.dash, lane.settings]),
      this.forked,
      this.threshold,
    ]);
    this.pairOfToken = new Map(this.pairs.map((token, pair) => [token, pair]));
  }

  get last() {
    return this.steps - 1;
  }

  get forked() {
    return this.forked_at != null;
  }

  get kinds() {
    return this.forked ? [...KINDS.slice(0, 3), FORK] : KINDS;
  }

  // The pair a token wrote or, for a query, the pair it asks for; −1 if there is none.
  pairAt(token) {
    const source = token < 0 ? -1 : this.expected[token];
    return this.pairOfToken.get(source) ?? -1;
  }

  label(step) {
    return step === 0 ? "nothing stored yet" : this.labels[step - 1];
  }
}

class Lane {
  constructor(header, buffer) {
    Object.assign(this, header);
    this.buffer = buffer;
    this.views = new Map();
    this.whole = new Map();
    this.kept = this.array("kept");
    this.shade = this.colour;
  }

  array(key) {
    if (!this.views.has(key)) this.views.set(key, this.view(this.arrays[key]));
    return this.views.get(key);
  }

  view(place) {
    if (!place) return null;
    const [first, ...rest] = place.shape;
    const each = place.triangle ? (rest[0] * (rest[0] + 1)) / 2 : rest.reduce((a, b) => a * b, 1);
    return new Float32Array(this.buffer, place.offset, first * each);
  }

  at(key, step) {
    const values = this.array(key);
    return values ? values[step] : NaN;
  }

  // Index of the latest step with matrices, at or before this one.
  frame(step) {
    let low = 0;
    let high = this.kept.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.kept[middle] <= step) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  vector(key, frame) {
    const values = this.array(key);
    const width = this.arrays[key].shape[1];
    return values.subarray(frame * width, (frame + 1) * width);
  }

  // The vector of one step; null if it wasn't kept.
  vectorOf(key, step) {
    const frame = this.frame(step);
    return this.kept[frame] === step ? this.vector(key, frame) : null;
  }

  size(kind) {
    const place = this.arrays[kind === "dS" ? "S" : kind];
    return place ? place.shape.slice(1) : null;
  }

  matrix(kind, frame) {
    const known = this.whole.get(kind);
    if (known && known.frame === frame) return known.values;
    const values = kind === "dS" ? this.change(frame) : this.stored(kind, frame);
    this.whole.set(kind, { frame, values });
    return values;
  }

  stored(kind, frame) {
    const place = this.arrays[kind];
    if (!place) return null;
    const [rows, columns] = place.shape.slice(1);
    const values = this.array(kind);
    if (!place.triangle)
      return values.subarray(frame * rows * columns, (frame + 1) * rows * columns);
    return mirror(values, frame, rows);
  }

  // S minus the S before it; if that one wasn't kept, the write itself: residual times direction.
  change(frame) {
    const now = this.stored("S", frame);
    if (!now) return null;
    if (frame === 0) return new Float32Array(now.length);
    if (this.kept[frame - 1] !== this.kept[frame] - 1)
      return product(this.vector("error", frame), this.vector("gain", frame));
    const before = this.stored("S", frame - 1);
    return now.map((value, i) => value - before[i]);
  }
}

function mirror(values, frame, n) {
  const full = new Float32Array(n * n);
  let i = (frame * n * (n + 1)) / 2;
  for (let row = 0; row < n; row++) {
    for (let column = row; column < n; column++, i++) {
      full[row * n + column] = values[i];
      full[column * n + row] = values[i];
    }
  }
  return full;
}

function product(column, row) {
  const full = new Float32Array(column.length * row.length);
  for (let i = 0; i < column.length; i++) {
    for (let j = 0; j < row.length; j++)
      full[i * row.length + j] = (column[i] || 0) * (row[j] || 0);
  }
  return full;
}

// Colour.

function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

function luminance(colour) {
  const [r, g, b] = colour.map((c) =>
    c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a, b) {
  const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
}

const mix = (a, b, share) => a.map((c, i) => c + share * (b[i] - c));

// A rule's colour, moved towards ink just enough for a line on this paper (3 : 1).
function readable(hex, paper) {
  const ink = luminance(paper) > 0.18 ? [0, 0, 0] : [255, 255, 255];
  for (let share = 0; share < 1; share += 0.02) {
    const shade = mix(rgb(hex), ink, share).map(Math.round);
    if (contrast(shade, paper) >= 3) return `rgb(${shade.join(" ")})`;
  }
  return `rgb(${ink.join(" ")})`;
}

// Stands in until the host has attached the style sheet.
const UNSTYLED = {
  paper: "#ffffff",
  ink: "#000000",
  muted: "#555555",
  grid: "#dddddd",
  line: "#888888",
  lit: "#ffffcc",
  now: "#000000",
  diverging: "#053b66 #f5f5f5 #7f2e00",
};

// The look of one theme, read from the style sheet's tokens.
class Look {
  constructor(root) {
    const style = getComputedStyle(root);
    const token = (name) => style.getPropertyValue(`--${name}`).trim() || UNSTYLED[name];
    this.styled = style.getPropertyValue("--paper") !== "";
    for (const name of ["paper", "ink", "muted", "grid", "line", "lit", "now"])
      this[name] = token(name);
    this.font = style.fontFamily;
    this.stops = token("diverging").split(/\s+/).map(rgb);
    this.table = this.ramp(256);
  }

  ramp(count) {
    const words = new Uint32Array(count);
    for (let i = 0; i < count; i++) {
      const [r, g, b] = this.blend(i / (count - 1)).map(Math.round);
      words[i] = (255 << 24) | (b << 16) | (g << 8) | r;
    }
    return words;
  }

  blend(share) {
    const place = clamp(share, 0, 1) * (this.stops.length - 1);
    const left = Math.min(Math.floor(place), this.stops.length - 2);
    return mix(this.stops[left], this.stops[left + 1], place - left);
  }
}

// Value to place on the map: 0 is the negative end, ½ is zero, 1 the positive end.
function placeOf(value, scale, stretch) {
  const x = value / scale;
  if (!stretch) return 0.5 + 0.5 * clamp(x, -1, 1);
  return 0.5 + 0.5 * Math.sign(x) * Math.sqrt(Math.min(Math.abs(x), 1));
}

// Painters.

let printing = false;

// Device pixels per CSS pixel; a saved picture has at least two.
function pixelRatio() {
  const ratio = window.devicePixelRatio || 1;
  return printing ? Math.max(2, ratio) : ratio;
}

// A canvas as large as its box in device pixels; drawing is in CSS pixels.
function surface(canvas, width, height) {
  const ratio = pixelRatio();
  const size = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return ctx;
}

const scratch = new Map();

function image(rows, columns) {
  const key = `${rows}×${columns}`;
  if (!scratch.has(key)) {
    const canvas = h("canvas", { width: String(columns), height: String(rows) });
    const pixels = new ImageData(columns, rows);
    scratch.set(key, {
      canvas,
      pixels,
      words: new Uint32Array(pixels.data.buffer),
      ctx: canvas.getContext("2d"),
    });
  }
  return scratch.get(key);
}

function paintCells(ctx, box, values, style) {
  const { canvas, pixels, words, ctx: small } = image(box.rows, box.columns);
  const table = style.look.table;
  for (let i = 0; i < words.length; i++) {
    words[i] = table[Math.round(255 * placeOf(values[i] || 0, style.scale, style.stretch))];
  }
  small.putImageData(pixels, 0, 0);
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(canvas, box.x, box.y, box.columns * box.cell, box.rows * box.cell);
}

// Where a matrix lies in its square: whole device pixels per cell, strips below and beside it.
function place(rows, columns, size) {
  const ratio = pixelRatio();
  const [room, most] = [size - STRIP - 2, Math.max(rows, columns)];
  const whole = Math.floor((room * ratio) / most) / ratio;
  return { x: 1, y: 1, rows, columns, cell: room - whole * most < 8 ? whole : room / most };
}

// The size nearest to the wanted one at which a cell is a whole number of pixels.
function snap(size, most, limit) {
  const cell = Math.max(1, Math.round((size - STRIP - 2) / most));
  const [near, less] = [cell, cell - 1].map((each) => most * each + STRIP + 2);
  const best = near <= limit ? near : less;
  return Math.abs(best - size) <= 8 ? best : size;
}

function paintMatrix(ctx, box, values, style) {
  paintCells(ctx, box, values, style);
  ctx.strokeStyle = style.look.line;
  ctx.lineWidth = 1;
  ctx.strokeRect(box.x - 0.5, box.y - 0.5, box.columns * box.cell + 1, box.rows * box.cell + 1);
  if (box.cell >= 9) paintGaps(ctx, box, style.look);
  if (box.cell >= 30) paintValues(ctx, box, values, style);
}

function paintGaps(ctx, box, look) {
  ctx.strokeStyle = look.paper;
  ctx.lineWidth = 0.5;
  ctx.beginPath();
  for (let i = 1; i < box.columns; i++)
    line(ctx, box.x + i * box.cell, box.y, 0, box.rows * box.cell);
  for (let i = 1; i < box.rows; i++)
    line(ctx, box.x, box.y + i * box.cell, box.columns * box.cell, 0);
  ctx.stroke();
}

function line(ctx, x, y, dx, dy) {
  ctx.moveTo(x, y);
  ctx.lineTo(x + dx, y + dy);
}

function paintValues(ctx, box, values, style) {
  ctx.font = `${Math.min(13, box.cell / 3.1)}px ${style.look.font}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  values.forEach((value, i) => {
    const under = style.look.blend(placeOf(value, style.scale, style.stretch));
    ctx.fillStyle = luminance(under) > 0.18 ? "#000" : "#fff";
    const [row, column] = [Math.floor(i / box.columns), i % box.columns];
    ctx.fillText(
      cellText(value),
      box.x + (column + 0.5) * box.cell,
      box.y + (row + 0.5) * box.cell,
    );
  });
}

function cellText(value) {
  if (Math.abs(value) < 0.005) return "0";
  return (
    Math.abs(value) >= 100 ? three(value) : value.toFixed(Math.abs(value) >= 10 ? 1 : 2)
  ).replace("-", "−");
}

function paintScale(canvas, width, look, scale, stretch) {
  const ctx = surface(canvas, width, 20);
  const bar = Math.max(20, width);
  for (let x = 0; x < bar; x++) {
    ctx.fillStyle = `rgb(${look
      .blend(x / (bar - 1))
      .map(Math.round)
      .join(" ")})`;
    ctx.fillRect(x, 0, 1, 6);
  }
  ctx.fillStyle = look.muted;
  ctx.font = `12px ${look.font}`;
  ctx.textBaseline = "bottom";
  const ticks = stretch && width > 130 ? [-1, -0.25, 0, 0.25, 1] : [-1, 0, 1];
  for (const tick of ticks) paintTick(ctx, tick, bar, scale, stretch);
}

function paintTick(ctx, tick, bar, scale, stretch) {
  ctx.textAlign = tick === -1 ? "left" : tick === 1 ? "right" : "center";
  ctx.fillText(short(tick * scale), placeOf(tick, 1, stretch) * bar, 20);
}

function short(x) {
  return x === 0 ? "0" : String(Number(x.toPrecision(2))).replace("-", "−");
}

function niceTicks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw - 1e-12);
  const ticks = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-6; t += step)
    ticks.push(Math.abs(t) < step / 1e6 ? 0 : t);
  return ticks;
}

function logTicks(low, high) {
  const [first, last] = [Math.ceil(low - 1e-9), Math.floor(high + 1e-9)];
  const stride = Math.max(1, Math.ceil((last - first) / 3));
  const ticks = [];
  for (let power = first; power <= last; power += stride) ticks.push(power);
  return ticks.length > 1 ? ticks : [low, high];
}

function ellipsis(ctx, text, room) {
  if (ctx.measureText(text).width <= room) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (ctx.measureText(text.slice(0, middle) + "…").width <= room) low = middle;
    else high = middle - 1;
  }
  return text.slice(0, low) + "…";
}

// Panels.

class TokenStrip {
  constructor(app) {
    this.app = app;
    this.list = h("div", {
      class: "strip",
      role: "toolbar",
      "aria-label": "tokens of the stream",
      data: { testid: "strip" },
    });
    this.page = h("span", { class: "strip-page" });
    this.node = h("div", { class: "strip-row" }, this.list, this.page);
    this.list.addEventListener("pointerover", (event) => this.hover(event));
    this.list.addEventListener("pointerleave", () => app.set({ hover: null }));
  }

  hover(event) {
    const chip = event.target.closest("button");
    this.app.set({ hover: chip ? Number(chip.dataset.token) : null });
  }

  load() {
    this.words = JSON.stringify([
      this.app.trace.labels,
      this.app.trace.lanes.map((lane) => [lane.id, lane.answers, lane.correct]),
    ]);
    if (this.words !== this.drawn) this.build(this.pageOf(this.app.state.step));
    this.drawn = this.words;
  }

  pageOf(step) {
    const { trace } = this.app;
    return trace.labels.length <= STRIP_PAGE ? 0 : Math.floor(Math.max(step - 1, 0) / STRIP_PAGE);
  }

  build(page) {
    const { trace } = this.app;
    this.shown = page;
    const first = page * STRIP_PAGE;
    const last = Math.min(first + STRIP_PAGE, trace.labels.length);
    const tokens = [-1, ...Array.from({ length: last - first }, (_, i) => first + i)];
    const top = this.list.scrollTop;
    this.chips = tokens.map((token) => this.chip(token));
    this.list.replaceChildren(...this.chips);
    this.list.scrollTop = top;
    this.tops = null;
    setText(
      this.page,
      trace.labels.length > STRIP_PAGE
        ? `tokens ${first + 1}–${last} of ${trace.labels.length}`
        : "",
    );
  }

  chip(token) {
    const { trace } = this.app;
    const query = token >= 0 && Boolean(trace.asks[token]);
    const label = token < 0 ? "start" : trace.labels[token];
    const marks = query ? trace.lanes.flatMap((lane) => this.marks(lane, token)) : [];
    return h(
      "button",
      {
        type: "button",
        tabindex: "-1",
        title: this.title(token, label, query),
        data: {
          testid: "token",
          token: String(token),
          kind: token < 0 ? "start" : query ? "query" : "write",
        },
        onclick: () => this.app.jump(token + 1),
      },
      h("span", { class: "word" }, label),
      marks,
    );
  }

  title(token, label, query) {
    if (token < 0) return "Step 0: the empty memory. Click to jump there.";
    return `Step ${token + 1}: ${query ? "asks" : "stores"} ${label}. Click to jump there.`;
  }

  // What a lane answers and, where the fork answers otherwise, what the fork does.
  marks(lane, token) {
    const [own, other] = [lane, lane.branch].map((side) => side?.answers[token + 1]);
    const differs =
      lane.branch && (own !== other || lane.correct[token + 1] !== lane.branch.correct[token + 1]);
    return [this.mark(lane, token, lane), differs ? this.mark(lane, token, lane.branch) : null];
  }

  mark(lane, token, side) {
    const right = side.correct[token + 1];
    if (right == null) return null;
    const word = side.answers[token + 1] ?? "";
    const who = side === lane ? lane.title : `${lane.title}, forked,`;
    return h(
      "span",
      {
        class: side === lane ? "mark" : "mark fork",
        data: { lane: lane.id, right: String(right), side: side === lane ? "main" : "fork" },
        title: `${who} answers ${word} (${right ? "right" : "wrong"})`,
      },
      side === lane ? swatch(lane) : "fork:",
      h("span", { class: "word" }, word),
      right ? "✓" : "✗",
    );
  }

  paint() {
    const { step, hover, visible } = this.app.state;
    if (this.pageOf(step) !== this.shown) this.build(this.pageOf(step));
    for (const chip of this.chips) this.paintChip(chip, Number(chip.dataset.token), step, hover);
    if (visible !== this.visible) this.showMarks(visible);
    this.follow();
  }

  paintChip(chip, token, step, hover) {
    const state = token + 1 === step ? "now" : token + 1 < step ? "past" : "future";
    if (chip.dataset.state !== state) {
      chip.dataset.state = state;
      chip.tabIndex = state === "now" ? 0 : -1;
      if (state === "now") chip.setAttribute("aria-current", "step");
      else chip.removeAttribute("aria-current");
    }
    const lit = hover === token;
    if (chip.classList.contains("lit") !== lit) chip.classList.toggle("lit", lit);
  }

  showMarks(visible) {
    this.visible = visible;
    for (const mark of this.list.querySelectorAll(".mark"))
      mark.style.display = visible.has(mark.dataset.lane) ? "" : "none";
  }

  // Scrolls only inside the strip, never the page.
  follow() {
    const index = this.chips.findIndex((chip) => chip.dataset.state === "now");
    if (index < 0 || index === this.followed) return;
    this.followed = index;
    if (!this.tops) this.tops = this.chips.map((chip) => chip.offsetTop);
    const [top, view, height] = [
      this.tops[index],
      this.list.scrollTop,
      this.room ?? (this.room = this.list.clientHeight),
    ];
    if (top < view || top + 30 > view + height) this.list.scrollTop = Math.max(0, top - 4);
    if (this.list.contains(this.app.focused())) this.chips[index].focus({ preventScroll: true });
  }

  forget() {
    this.tops = null;
    this.room = null;
    this.followed = -1;
    this.visible = null;
  }
}

class HeatPanel {
  constructor(app, lane, kind) {
    Object.assign(this, { app, lane, kind });
    this.canvas = h("canvas", {
      role: "img",
      tabindex: "0",
      // A name from the first moment; what the numbers say follows when the picture rests.
      "aria-label": `${symbol(kind.key)} of ${lane.title}`,
      data: { testid: "heat", lane: lane.id, kind: kind.key },
    });
    this.absent = h("div", { class: "absent", hidden: true });
    this.node = h("figure", { class: "heat" }, this.canvas, this.absent);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => app.set({ cell: null }));
    this.canvas.addEventListener("keydown", (event) => this.keys(event));
    this.canvas.addEventListener("blur", () => this.leave());
  }

  point(event) {
    if (!this.box) return;
    const bounds = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - bounds.left - this.box.x) / this.box.cell);
    const row = Math.floor((event.clientY - bounds.top - this.box.y) / this.box.cell);
    const inside = row >= 0 && column >= 0 && row < this.box.rows && column < this.box.columns;
    this.app.set({
      cell: inside ? { kind: this.kind.key, lane: this.lane.id, row, column } : null,
    });
  }

  // Enter goes in and lets the arrows walk over the cells, Escape comes out again.
  keys(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key === "Enter" && !this.inside && this.box) this.walk(0, 0);
    else if (event.key === "Escape" && this.inside) this.leave();
    else if (this.inside && moves[event.key]) this.walk(...moves[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  walk(down, right) {
    const cell = this.inside ? this.app.state.cell : null;
    this.inside = true;
    const row = clamp((cell?.row ?? 0) + down, 0, this.box.rows - 1);
    const column = clamp((cell?.column ?? 0) + right, 0, this.box.columns - 1);
    this.app.set({ cell: { kind: this.kind.key, lane: this.lane.id, row, column } });
  }

  leave() {
    if (!this.inside) return;
    this.inside = false;
    this.app.set({ cell: null });
  }

  values() {
    return this.lane.matrix(this.kind.key, this.lane.frame(this.app.state.step));
  }

  paint() {
    const size = this.lane.size(this.kind.key);
    const shown = size && this.lane.has_matrix;
    this.canvas.classList.toggle("empty", !shown);
    this.absent.hidden = Boolean(shown);
    this.box = null;
    if (!shown) return setText(this.absent, this.excuse());
    this.box = place(size[0], size[1], this.app.heat);
    this.draw(surface(this.canvas, this.app.heat, this.app.heat));
  }

  excuse() {
    if (this.lane.has_matrix || this.kind.scale !== "S")
      return `this rule keeps no ${this.kind.key}`;
    const stored = this.app.storedAt(this.app.state.step);
    if (this.kind.key === "D") return "keeps no S to compare";
    return this.kind.key === "S" ? `keeps all t pairs: ${stored} now` : "adds one pair";
  }

  draw(ctx) {
    const { look, trace, state } = this.app;
    const style = { look, scale: trace.scales[this.kind.scale], stretch: state.stretch };
    paintMatrix(ctx, this.box, this.values(), style);
    if (["S", "dS"].includes(this.kind.key)) this.drawStrips(ctx, style);
    this.drawLit(ctx);
    this.drawCell(ctx);
  }

  // For S the key below and the value beside it; for ΔS the two factors of the write.
  drawStrips(ctx, style) {
    const step = this.stripStep();
    const names = this.kind.key === "S" ? ["k", "v"] : ["gain", "error"];
    const [below, beside] = names.map((name) => this.lane.vectorOf(name, step));
    const { x, y, rows, columns, cell } = this.box;
    if (step === 0 || !below || !Number.isFinite(below[0])) return;
    paintVector(ctx, { x, y: y + rows * cell + 3, rows: 1, columns, cell }, below, 7, style);
    if (Number.isFinite(beside[0]))
      paintVector(ctx, { x: x + columns * cell + 3, y, rows, columns: 1, cell }, beside, 7, style);
  }

  stripStep() {
    const { hover, step } = this.app.state;
    if (this.kind.key !== "S") return step;
    const token = hover ?? step - 1;
    return token >= 0 && !this.app.trace.writes[token]
      ? this.app.trace.expected[token] + 1
      : token + 1;
  }

  // A token whose key is (nearly) one axis has a column of S and ΔS, and a row and column of M and A.
  drawLit(ctx) {
    const { hover } = this.app.state;
    const axis = hover == null || hover < 0 ? -1 : this.axisOf(hover);
    if (axis < 0) return;
    const { x, y, rows, columns, cell } = this.box;
    ctx.strokeStyle = "#e69f00";
    ctx.lineWidth = 2;
    ctx.strokeRect(x + axis * cell, y, cell, rows * cell);
    if (this.kind.scale !== "S") ctx.strokeRect(x, y + axis * cell, columns * cell, cell);
  }

  axisOf(token) {
    const writer = this.app.trace.writes[token] ? token : this.app.trace.expected[token];
    const key = writer < 0 ? null : this.lane.vectorOf("k", writer + 1);
    if (!key) return -1;
    const total = key.reduce((sum, value) => sum + value * value, 0);
    return key.findIndex((value) => value * value > 0.81 * total);
  }

  drawCell(ctx) {
    const cell = this.app.state.cell;
    if (!cell || cell.kind !== this.kind.key) return;
    if (cell.row >= this.box.rows || cell.column >= this.box.columns) return;
    const { x, y, cell: size } = this.box;
    ctx.strokeStyle = this.app.look.ink;
    ctx.lineWidth = cell.lane === this.lane.id ? 2 : 1;
    ctx.strokeRect(x + cell.column * size - 0.5, y + cell.row * size - 0.5, size + 1, size + 1);
  }

  describe() {
    if (!this.box) return `${symbol(this.kind.key)} of ${this.lane.title}: ${this.excuse()}`;
    const values = this.values();
    let best = 0;
    values.forEach((value, i) => {
      if (Math.abs(value) > Math.abs(values[best])) best = i;
    });
    const [row, column] = [Math.floor(best / this.box.columns), best % this.box.columns];
    return (
      `${symbol(this.kind.key)} of ${this.lane.title} at step ${this.lane.kept[this.lane.frame(this.app.state.step)]}, ` +
      `${this.box.rows} by ${this.box.columns}; largest entry ${three(values[best])} at row ${row}, column ${column}. Enter to walk over the entries.`
    );
  }

  rest() {
    this.canvas.setAttribute("aria-label", this.describe());
  }
}

function paintVector(ctx, box, values, thick, style) {
  const { canvas, pixels, words, ctx: small } = image(box.rows, box.columns);
  for (let i = 0; i < words.length; i++)
    words[i] = style.look.table[Math.round(255 * placeOf(values[i], style.scale, style.stretch))];
  small.putImageData(pixels, 0, 0);
  ctx.imageSmoothingEnabled = false;
  const [width, height] =
    box.rows === 1 ? [box.columns * box.cell, thick] : [thick, box.rows * box.cell];
  ctx.drawImage(canvas, box.x, box.y, width, height);
  ctx.strokeStyle = style.look.line;
  ctx.lineWidth = 0.5;
  ctx.strokeRect(box.x, box.y, width, height);
}

class LaneRow {
  constructor(app, lane) {
    Object.assign(this, { app, lane });
    this.heats = app.trace.kinds.map((kind) => new HeatPanel(app, lane, kind));
    this.numbers = new Map();
    this.verdict = h("span", { class: "verdict", data: { testid: "verdict", lane: lane.id } });
    this.sentence = h("p", { class: "sentence", data: { testid: "sentence", lane: lane.id } });
    this.parts = h("dd", { data: { testid: "parts", lane: lane.id } });
    this.node = h(
      "section",
      {
        class: "lane",
        "aria-label": lane.title,
        data: { testid: "lane", lane: lane.id, dash: String(lane.dash) },
      },
      this.heats.map((heat) => heat.node),
      this.text(),
    );
    this.setParts();
  }

  text() {
    const { lane } = this;
    const settings = Object.entries(lane.settings)
      .map(([name, value]) => `${name} = ${value}`)
      .join(", ");
    return h(
      "div",
      { class: "text" },
      h(
        "div",
        { class: "title", title: settings },
        h("h3", {}, lane.title),
        h("span", { class: "equation" }, lane.equation),
      ),
      h(
        "dl",
        { class: "numbers" },
        this.app.trace.numbers.map((number) => this.number(number)),
        this.last(),
      ),
      this.sentence,
    );
  }

  number({ key, symbol: name, words }) {
    const value = h("dd", { data: { testid: "number", lane: this.lane.id, number: key } });
    this.numbers.set(key, value);
    // What a fork or other formats add takes the room of what the curves show anyway.
    const { forked, threshold } = this.app.trace;
    const compared = threshold != null;
    const spare = {
      spectral_closed: forked || compared,
      spectral_svd: compared,
      delta: forked && compared,
      norm_dS: forked && compared,
    };
    return h("div", { title: words, hidden: Boolean(spare[key]) }, h("dt", {}, name), value);
  }

  // The last places of the row: how the fork ends, which token spoils a format, or the ridge.
  last() {
    const { forked, threshold } = this.app.trace;
    const ends = forked ? this.left() : this.ridge();
    if (threshold == null) return ends;
    return forked ? [ends, this.passing()] : this.passing();
  }

  left() {
    const words =
      "what is left of ‖S−S′‖ at the last step, as a share of its largest: 0 % is healed, 100 % is never";
    return h("div", { title: words }, h("dt", {}, "gap left"), this.parts);
  }

  passing() {
    const { threshold } = this.app.trace;
    this.passes = h("dd", { data: { testid: "passes", lane: this.lane.id } });
    const words = `first token at which S is further than ${threshold} (relative) from its float64 run; flagged on the curve`;
    const name = `rounding error past ${threshold}`;
    return h("div", { title: words, class: "wide" }, h("dt", {}, name), this.passes);
  }

  ridge() {
    const words = `first step where S is further than ${this.app.trace.tolerance} (relative) from the exact batch ridge answer to the pairs so far; flagged on the curves`;
    return h("div", { title: words }, h("dt", {}, "leaves ridge"), this.parts);
  }

  setParts() {
    this.setPasses();
    if (this.app.trace.forked) {
      const { left } = this.lane.branch;
      this.parts.dataset.value = String(left);
      return setText(this.parts, left == null ? "–" : `${short(100 * left)} %`);
    }
    const { parts_at: step } = this.lane;
    const compared =
      this.lane.has_matrix && this.lane.array("ridge_distance").some(Number.isFinite);
    setText(this.parts, !compared ? "–" : step == null ? "never" : `step ${step}`);
  }

  setPasses() {
    if (!this.passes) return;
    const { labels } = this.app.trace;
    const at = (name) => {
      const step = this.lane.passes[name];
      return step == null ? "never" : `step ${step}, ${labels[step - 1]}`;
    };
    const none = !this.lane.has_matrix;
    setText(this.passes, none ? "–" : `bf16 ${at("bfloat16")} · f32 ${at("float32")}`);
    this.passes.title = this.passes.textContent;
    for (const name of ["bfloat16", "float32"])
      this.passes.dataset[name] = String(this.lane.passes[name] ?? "");
  }

  take(lane) {
    this.lane = lane;
    for (const heat of this.heats) heat.lane = lane;
    this.setParts();
  }

  paint() {
    this.node.style.setProperty("--lane", this.lane.shade);
    for (const heat of this.heats) heat.paint();
    for (const [key, node] of this.numbers)
      this.paintNumber(node, this.lane.at(key, this.app.state.step));
    this.paintSentence();
  }

  paintNumber(node, value) {
    setText(node, three(value));
    node.dataset.value = String(value);
  }

  paintSentence() {
    const { step } = this.app.state;
    const right = this.lane.correct[step];
    const verdict = right == null ? "" : right ? "✓ " : "✗ ";
    const text = this.app.sentence(this.lane, step);
    if (this.said === verdict + text) return;
    this.said = verdict + text;
    this.sentence.dataset.right = this.verdict.dataset.right = String(right ?? "");
    this.verdict.textContent = verdict;
    this.sentence.replaceChildren(this.verdict, h("span", { class: "what" }, text));
    this.sentence.title = text;
  }

  rest() {
    for (const heat of this.heats) heat.rest();
  }
}

class Heads {
  constructor(app) {
    this.app = app;
    this.bars = KINDS.map((kind) =>
      h("canvas", { "aria-hidden": "true", data: { testid: "scale", kind: kind.key } }),
    );
    this.rest = h("span", { class: "rest" });
    this.names = KINDS.map(() => h("div", { class: "name" }));
    this.node = h(
      "div",
      { class: "heads" },
      this.names.map((name, i) => h("div", { class: "head" }, name, this.bars[i])),
      h("div", { class: "head" }, this.rest),
    );
  }

  name(kinds) {
    kinds.forEach((kind, i) => {
      this.names[i].replaceChildren(h("b", {}, symbol(kind.key)), kind.name);
      this.names[i].parentNode.title = kind.words;
    });
  }

  paint() {
    const { look, trace, state, heat } = this.app;
    const key = [
      look.paper,
      heat,
      state.stretch,
      pixelRatio(),
      ...Object.values(trace.scales),
    ].join();
    if (key !== this.drawn)
      KINDS.forEach((kind, i) =>
        paintScale(this.bars[i], heat, look, trace.scales[kind.scale], state.stretch),
      );
    this.drawn = key;
    const frame = trace.lanes[0].kept[trace.lanes[0].frame(state.step)];
    setText(
      this.rest,
      frame === state.step
        ? "Same colours for every rule and step."
        : `Matrices as of step ${frame}, the last one kept.`,
    );
  }
}

class Plot {
  constructor(app, slot) {
    Object.assign(this, { app, slot });
    this.canvas = h("canvas", {
      role: "img",
      tabindex: "0",
      "aria-label": `curve ${slot + 1}`,
      data: { testid: "curve", slot: String(slot) },
    });
    this.still = h("canvas");
    this.values = h("div", { class: "values" });
    this.pick = h("select", {
      title: "What this does: chooses which number this curve shows",
      "aria-label": `quantity of curve ${slot + 1}`,
      onchange: () => this.choose(),
    });
    this.node = h(
      "figure",
      { class: "plot" },
      h("figcaption", { class: "panel-head" }, this.pick, this.values),
      this.canvas,
    );
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => app.set({ hover: null }));
    this.canvas.addEventListener("click", (event) => app.jump(this.stepAt(event)));
  }

  get key() {
    return this.app.state.curves[this.slot];
  }

  choose() {
    const curves = this.app.state.curves.map((key, i) => (i === this.slot ? this.pick.value : key));
    this.app.set({ curves });
  }

  load() {
    const { curves, lanes } = this.app.trace;
    this.pick.replaceChildren(
      ...curves.map((curve) => h("option", { value: curve.key, title: curve.words }, curve.symbol)),
    );
    this.outputs = lanes.map((lane) =>
      h(
        "span",
        { title: lane.title, data: { lane: lane.id } },
        swatch(lane),
        h("span", { data: { testid: "curve-value", lane: lane.id } }),
      ),
    );
    this.values.replaceChildren(...this.outputs);
    this.drawn = null;
  }

  point(event) {
    this.app.set({ hover: this.stepAt(event) - 1 });
  }

  stepAt(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const share = (event.clientX - bounds.left - this.area.x) / this.area.width;
    return clamp(Math.round(share * this.app.trace.last), 0, this.app.trace.last);
  }

  lanes() {
    return this.app.trace.lanes.filter((lane) => this.app.state.visible.has(lane.id));
  }

  // Errors span many powers of ten, so they have a logarithmic axis whatever the others have.
  get log() {
    return this.app.state.log || this.key === "rounding";
  }

  // The lines of this plot: one a lane, or one for each format, or one for each branch.
  series() {
    const { trace } = this.app;
    const twin = trace.forked && BRANCH_CURVES[this.key];
    return this.lanes().flatMap((lane) => {
      if (this.key === "rounding")
        return [
          { lane, key: "error_bfloat16", dash: 0 },
          { lane, key: "error_float32", dash: 2 },
        ];
      const own = { lane, key: this.key, dash: lane.dash };
      return twin ? [own, { lane, key: twin, dash: 1 }] : [own];
    });
  }

  paint() {
    const { look, state, plotWidth: width, plotHeight: height } = this.app;
    this.pick.value = this.key;
    const stamp = [
      look.paper,
      this.key,
      state.log,
      width,
      height,
      [...state.visible].join(),
      pixelRatio(),
    ].join("|");
    if (stamp !== this.drawn || this.trace !== this.app.trace) this.drawStill(width, height);
    this.drawn = stamp;
    this.trace = this.app.trace;
    const ctx = surface(this.canvas, width, height);
    ctx.drawImage(this.still, 0, 0, width, height);
    if (this.range) this.drawCursor(ctx);
    this.paintValues();
  }

  paintValues() {
    const { step, visible } = this.app.state;
    this.app.trace.lanes.forEach((lane, i) => {
      this.outputs[i].style.display = visible.has(lane.id) ? "" : "none";
      const value = lane.at(this.key === "rounding" ? "error_bfloat16" : this.key, step);
      setText(this.outputs[i].lastChild, three(value));
      this.outputs[i].lastChild.dataset.value = String(value);
    });
  }

  // Axes, curves and flags change only with the data or the size, so they are drawn once.
  drawStill(width, height) {
    this.area = { x: 42, y: 6, width: width - 50, height: height - 24 };
    this.range = this.rangeOf();
    const ctx = surface(this.still, width, height);
    if (!this.range) return this.drawNothing(ctx);
    this.drawAxes(ctx);
    for (const line of this.series()) this.drawLane(ctx, line);
    this.drawFork(ctx);
    if (["norm_S", "recall_mean", "ridge_distance"].includes(this.key))
      for (const lane of this.lanes()) this.drawFlag(ctx, lane, lane.parts_at);
    if (this.key === "rounding") this.drawFormats(ctx);
  }

  // Flags where a format passes the threshold, and each format's name at its lines.
  drawFormats(ctx) {
    const { trace, look } = this.app;
    const ends = {};
    for (const { lane, key } of this.series()) {
      this.drawFlag(ctx, lane, lane.passes[key.slice(6)], key);
      const value = lane.at(key, trace.last);
      if (this.shows(value)) ends[key] = [...(ends[key] ?? []), this.y(value)];
    }
    ctx.font = `12px ${look.font}`;
    ctx.fillStyle = look.ink;
    ctx.textAlign = "right";
    ctx.strokeStyle = look.paper;
    ctx.lineWidth = 3;
    for (const [key, y, baseline] of this.formatPlaces(ends)) {
      ctx.textBaseline = baseline;
      ctx.strokeText(key.slice(6), this.area.x + this.area.width, y);
      ctx.fillText(key.slice(6), this.area.x + this.area.width, y);
    }
  }

  // In the room between the two formats; where there is none, above the one and below the other.
  formatPlaces({ error_bfloat16: upper = [], error_float32: lower = [] }) {
    const [low, high] = [Math.max(...upper), Math.min(...lower)];
    const { y, height } = this.area;
    const between = high - low > 34;
    const places = [
      ["error_bfloat16", between ? low + 4 : y + 1, "top"],
      ["error_float32", between ? high - 4 : y + height - 2, "bottom"],
    ];
    return places.filter(([key]) => (key === "error_bfloat16" ? upper : lower).length);
  }

  // Where the two branches part.
  drawFork(ctx) {
    const { trace, look } = this.app;
    if (!trace.forked) return;
    ctx.strokeStyle = look.line;
    ctx.lineWidth = 1;
    ctx.setLineDash([4, 3]);
    ctx.beginPath();
    line(ctx, Math.round(this.x(trace.forked_at)) + 0.5, this.area.y, 0, this.area.height);
    ctx.stroke();
    ctx.setLineDash([]);
  }

  rangeOf() {
    let [low, high] = [Infinity, -Infinity];
    for (const { lane, key } of this.series()) {
      for (const value of lane.array(key) ?? []) {
        if (!this.shows(value)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    if (!(high >= low)) return null;
    return this.log ? logRange(low, high) : linearRange(low, high);
  }

  drawNothing(ctx) {
    const { x, y, width, height } = this.area;
    ctx.font = `13px ${this.app.look.font}`;
    ctx.fillStyle = this.app.look.muted;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.fillText("no visible rule has this number", x + width / 2, y + height / 2);
  }

  // A logarithmic axis has no place for zero, nor for recall that is exact but for rounding.
  shows(value) {
    const least = this.key === "recall_mean" ? 1e-6 : 0;
    return Number.isFinite(value) && (!this.log || value > least);
  }

  y(value) {
    const v = this.log ? Math.log10(value) : value;
    const share = (v - this.range[0]) / (this.range[1] - this.range[0]);
    return this.area.y + this.area.height * (1 - clamp(share, 0, 1));
  }

  x(step) {
    return this.area.x + (this.area.width * step) / Math.max(1, this.app.trace.last);
  }

  drawAxes(ctx) {
    const { look, trace } = this.app;
    const { x, y, width, height } = this.area;
    ctx.font = `12px ${look.font}`;
    ctx.fillStyle = look.muted;
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    const ticks = this.log ? logTicks(...this.range) : niceTicks(...this.range, 4);
    for (const tick of ticks) this.drawTick(ctx, tick);
    ctx.textBaseline = "top";
    this.stepTicks().forEach((step) => {
      ctx.textAlign = step === 0 ? "left" : step === trace.last ? "right" : "center";
      ctx.fillText(
        step === trace.last ? `step ${step}` : String(step),
        this.x(step),
        y + height + 4,
      );
    });
    ctx.strokeStyle = look.line;
    ctx.beginPath();
    line(ctx, x, y + height + 0.5, width, 0);
    ctx.stroke();
  }

  stepTicks() {
    const { last } = this.app.trace;
    const inner = niceTicks(0, last, 4).filter(
      (t) => Number.isInteger(t) && this.x(last) - this.x(t) > 56,
    );
    return [...inner, last];
  }

  drawTick(ctx, tick) {
    const { log } = this;
    const at = this.y(log ? 10 ** tick : tick);
    ctx.strokeStyle = this.app.look.grid;
    ctx.lineWidth = 1;
    ctx.beginPath();
    line(ctx, this.area.x, Math.round(at) + 0.5, this.area.width, 0);
    ctx.stroke();
    ctx.fillText(log ? tenTo(tick) : short(tick), this.area.x - 5, at);
  }

  drawLane(ctx, { lane, key, dash }) {
    const values = lane.array(key);
    if (!values) return;
    ctx.strokeStyle = lane.shade;
    ctx.lineWidth = 2;
    ctx.lineJoin = "round";
    ctx.setLineDash([[], [5, 3], [2, 2], [8, 3, 2, 3]][dash % 4]);
    ctx.beginPath();
    let drawing = false;
    for (const step of this.steps(values)) {
      if (drawing) ctx.lineTo(this.x(step), this.y(values[step]));
      else ctx.moveTo(this.x(step), this.y(values[step]));
      drawing = true;
    }
    ctx.stroke();
    ctx.setLineDash([]);
  }

  // Steps with a value; of very many, the lowest and highest in each pixel column.
  steps(values) {
    const bucket = Math.max(1, Math.floor(values.length / (2 * this.area.width)));
    const chosen = [];
    for (let start = 0; start < values.length; start += bucket) {
      let [low, high] = [-1, -1];
      for (let i = start; i < Math.min(start + bucket, values.length); i++) {
        if (!this.shows(values[i])) continue;
        if (low < 0 || values[i] < values[low]) low = i;
        if (high < 0 || values[i] > values[high]) high = i;
      }
      if (low >= 0)
        chosen.push(...(low === high ? [low] : [Math.min(low, high), Math.max(low, high)]));
    }
    return chosen;
  }

  drawFlag(ctx, lane, at, key = this.key) {
    const step = lane.has_matrix ? at : null;
    const value = step == null ? NaN : lane.at(key, step);
    if (!this.shows(value)) return;
    const [x, y] = [this.x(step), this.y(value)];
    const up = y - this.area.y > 18 ? -1 : 1;
    ctx.strokeStyle = ctx.fillStyle = lane.shade;
    ctx.lineWidth = 1.5;
    ctx.beginPath();
    line(ctx, x, y, 0, 14 * up);
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(x, y + 14 * up);
    ctx.lineTo(x + (x > this.area.x + this.area.width - 10 ? -8 : 8), y + 10.5 * up);
    ctx.lineTo(x, y + 7 * up);
    ctx.fill();
  }

  drawCursor(ctx) {
    const { step, hover } = this.app.state;
    const { y, height } = this.area;
    ctx.strokeStyle = this.app.look.ink;
    ctx.lineWidth = 1;
    ctx.beginPath();
    line(ctx, Math.round(this.x(step)) + 0.5, y, 0, height);
    ctx.stroke();
    for (const each of this.series()) this.drawPoint(ctx, each, step, 3.5, true);
    if (hover == null) return;
    ctx.setLineDash([2, 2]);
    ctx.beginPath();
    line(ctx, Math.round(this.x(hover + 1)) + 0.5, y, 0, height);
    ctx.stroke();
    ctx.setLineDash([]);
    for (const each of this.series()) this.drawPoint(ctx, each, hover + 1, 4.5, false);
  }

  drawPoint(ctx, { lane, key }, step, radius, full) {
    const value = lane.at(key, step);
    if (!this.shows(value)) return;
    ctx.beginPath();
    ctx.arc(this.x(step), this.y(value), radius, 0, 7);
    ctx.fillStyle = full ? lane.shade : this.app.look.paper;
    ctx.fill();
    ctx.strokeStyle = lane.shade;
    ctx.lineWidth = full ? 1 : 2;
    ctx.stroke();
    ctx.strokeStyle = this.app.look.ink;
    ctx.lineWidth = 1;
  }

  rest() {
    const { step } = this.app.state;
    const curve = this.app.trace.curves.find((each) => each.key === this.key);
    const named = { error_bfloat16: " in bfloat16", error_float32: " in float32" };
    const values = this.series()
      .map(({ lane, key }) => {
        const side = named[key] ?? (key === this.key ? "" : ", forked");
        return `${lane.title}${side} ${three(lane.at(key, step))}`;
      })
      .join(", ");
    this.canvas.setAttribute(
      "aria-label",
      `${curve.symbol}, ${curve.words}, over ${this.app.trace.last} steps. At step ${step}: ${values}.`,
    );
  }
}

function linearRange(low, high) {
  const bottom = low >= 0 ? 0 : low;
  const top = high > bottom ? high : bottom + 1;
  return [bottom, top + 0.05 * (top - bottom)];
}

function logRange(low, high) {
  const [a, b] = [Math.log10(Math.max(low, high * 1e-18)), Math.log10(high)];
  return b - a < 0.1 ? [a - 0.5, b + 0.5] : [a - 0.05 * (b - a), b + 0.05 * (b - a)];
}

function tenTo(power) {
  const value = 10 ** power;
  return value >= 0.01 && value < 10000
    ? short(value)
    : Number.isInteger(power)
      ? `1e${power}`.replace("-", "−")
      : value.toExponential(0).replace("e+", "e").replace("-", "−");
}

class Ladder {
  constructor(app) {
    this.app = app;
    this.canvas = h("canvas", {
      role: "img",
      tabindex: "0",
      "aria-label": "recall error of the pairs stored",
      data: { testid: "ladder" },
    });
    this.spacer = h("div", { class: "spacer" });
    this.scroll = h("div", { class: "scroll" }, this.canvas, this.spacer);
    this.note = h("span", { class: "note", data: { testid: "ladder-note" } });
    this.node = h(
      "figure",
      { class: "ladder" },
      h("figcaption", { class: "panel-head" }, h("span", {}, "stored pairs"), this.note),
      this.scroll,
    );
    this.scroll.addEventListener("scroll", () => app.schedule(), { passive: true });
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.scroll.addEventListener("pointerenter", () => {
      this.pointed = true;
    });
    this.scroll.addEventListener("pointerleave", () => {
      this.pointed = false;
      app.set({ hover: null });
    });
    this.canvas.addEventListener("click", (event) => this.click(event));
  }

  load() {
    const { trace } = this.app;
    let most = 1;
    for (const lane of trace.lanes)
      for (const value of lane.array("recall")) if (value > most) most = value;
    this.top = Math.min(most, 2);
  }

  layout() {
    const { trace, plotHeight, state } = this.app;
    const count = Math.max(1, trace.pairs.length);
    const bars = state.visible.size * (trace.forked ? 2 : 1);
    const least = Math.max(15, 4 * bars + 3);
    this.axis = 16;
    this.row = clamp(
      Math.floor((plotHeight - this.axis) / count),
      least,
      Math.max(least, 14 * bars + 6),
    );
    this.spacer.style.height = `${Math.max(0, this.row * count + this.axis - plotHeight)}px`;
    this.labels = new Map();
    this.widest = null;
    this.followed = null;
  }

  rowAt(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - bounds.top + this.scroll.scrollTop) / this.row);
    return row >= 0 &&
      row < this.app.trace.pairs.length &&
      event.clientY - bounds.top < bounds.height - this.axis
      ? row
      : -1;
  }

  point(event) {
    const row = this.rowAt(event);
    this.app.set({ hover: row < 0 ? null : this.app.trace.pairs[row] });
  }

  click(event) {
    const row = this.rowAt(event);
    if (row >= 0) this.app.jump(this.app.trace.pairs[row] + 1);
  }

  // Keeps the pair of this step, or of the token pointed at elsewhere, in view.
  follow() {
    const { trace, state, plotHeight } = this.app;
    const pair = trace.pairAt(state.hover ?? state.step - 1);
    if (pair === this.followed || this.pointed) return;
    this.followed = pair;
    const [top, bottom, view] = [pair * this.row, (pair + 1) * this.row, this.scroll.scrollTop];
    if (pair >= 0 && top < view) this.scroll.scrollTop = top;
    const over = bottom - view - plotHeight + this.axis;
    if (over > 0) this.scroll.scrollTop = Math.ceil((view + over) / this.row) * this.row;
  }

  paint() {
    this.follow();
    const { ladderWidth: width, plotHeight: height, trace, look } = this.app;
    const ctx = surface(this.canvas, width, height);
    this.area = { x: Math.min(this.labelWidth(ctx, look) + 12, width * 0.38), width: 0 };
    this.area.width = width - this.area.x - 52;
    const top = this.scroll.scrollTop;
    this.drawGrid(ctx, height, look);
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, 0, width, height - this.axis);
    ctx.clip();
    const first = Math.floor(top / this.row);
    const last = Math.min(trace.pairs.length, Math.ceil((top + height) / this.row));
    for (let pair = first; pair < last; pair++)
      this.drawRow(ctx, pair, pair * this.row - top, width);
    ctx.restore();
    this.paintNote();
  }

  labelWidth(ctx, look) {
    ctx.font = `600 13px ${look.font}`;
    const { pairs, labels } = this.app.trace;
    this.widest ??= pairs.reduce(
      (most, token) => Math.max(most, ctx.measureText(labels[token]).width),
      30,
    );
    return this.widest;
  }

  drawGrid(ctx, height, look) {
    ctx.font = `12px ${look.font}`;
    ctx.textBaseline = "bottom";
    ctx.textAlign = "center";
    for (const tick of niceTicks(0, this.top, 2)) {
      const x = Math.round(this.area.x + (this.area.width * tick) / this.top) + 0.5;
      ctx.strokeStyle = look.grid;
      ctx.beginPath();
      line(ctx, x, 0, 0, height - this.axis);
      ctx.stroke();
      ctx.fillStyle = look.muted;
      ctx.fillText(short(tick), x, height);
    }
  }

  drawRow(ctx, pair, y, width) {
    const { trace, state, look } = this.app;
    const status = this.status(pair);
    if (this.isLit(pair)) {
      ctx.fillStyle = look.lit;
      ctx.fillRect(0, y, width, this.row);
    }
    ctx.font = `${trace.pairAt(state.step - 1) === pair ? "600 " : ""}13px ${look.font}`;
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    ctx.fillStyle = status === "stored" ? look.ink : look.muted;
    ctx.fillText(this.label(ctx, pair), this.area.x - 8, y + this.row / 2);
    if (status !== "stored") return this.drawStatus(ctx, pair, y, status);
    const lanes = trace.lanes.filter((lane) => state.visible.has(lane.id));
    const bars = lanes.flatMap((lane) => this.sides(lane));
    const bar = Math.min(12, (this.row - 4) / bars.length);
    const start = y + (this.row - bar * bars.length) / 2;
    bars.forEach((each, i) => this.drawBar(ctx, each, pair, start + i * bar, bar));
  }

  status(pair) {
    const { trace, state } = this.app;
    const gone = trace.overwritten_at[pair];
    if (state.step < trace.pairs[pair] + 1) return "later";
    return gone >= 0 && state.step >= gone ? "replaced" : "stored";
  }

  isLit(pair) {
    const { hover } = this.app.state;
    return hover != null && this.app.trace.pairAt(hover) === pair;
  }

  label(ctx, pair) {
    if (!this.labels.has(pair))
      this.labels.set(
        pair,
        ellipsis(ctx, this.app.trace.labels[this.app.trace.pairs[pair]], this.area.x - 11),
      );
    return this.labels.get(pair);
  }

  drawStatus(ctx, pair, y, status) {
    const { trace } = this.app;
    ctx.textAlign = "left";
    const text =
      status === "later"
        ? `stored at step ${trace.pairs[pair] + 1}`
        : `replaced at step ${trace.overwritten_at[pair]}`;
    ctx.font = `12px ${this.app.look.font}`;
    ctx.fillText(text, this.area.x + 4, y + this.row / 2);
  }

  // A lane's bars: its own recall and, hollow, the fork's.
  sides(lane) {
    const own = { lane, key: "recall", hollow: lane.dash > 0 };
    return this.app.trace.forked ? [own, { lane, key: "branch_recall", hollow: true }] : [own];
  }

  value(lane, pair, key = "recall") {
    return lane.array(key)[lane.frame(this.app.state.step) * this.app.trace.pairs.length + pair];
  }

  drawBar(ctx, { lane, key, hollow }, pair, y, height) {
    const value = this.value(lane, pair, key);
    if (!Number.isFinite(value)) return;
    const length = Math.max(1, (Math.min(value, this.top) / this.top) * this.area.width);
    const thick = Math.max(2, height - 1.5);
    ctx.fillStyle = ctx.strokeStyle = lane.shade;
    ctx.lineWidth = 1;
    if (hollow) ctx.strokeRect(this.area.x + 0.5, y + 0.5, length, thick - 1);
    else ctx.fillRect(this.area.x, y, length, thick);
    if (height < 10) return;
    ctx.font = `12px ${this.app.look.font}`;
    ctx.textAlign = "left";
    ctx.fillStyle = this.app.look.ink;
    ctx.fillText(three(value), this.area.x + length + 5, y + thick / 2 + 0.5);
  }

  paintNote() {
    const { trace, state } = this.app;
    const pair = state.hover == null ? -1 : trace.pairAt(state.hover);
    if (pair >= 0) return setText(this.note, this.reading(pair));
    const sample =
      trace.pairs_total > trace.pairs.length
        ? `${trace.pairs.length} of ${trace.pairs_total} shown. `
        : "";
    const words = trace.forked
      ? "relative recall error; hollow: the fork"
      : "relative recall error: 0 is perfect, 1 is no better than silence";
    setText(this.note, sample + words);
  }

  reading(pair) {
    const { trace, state } = this.app;
    const label = trace.labels[trace.pairs[pair]];
    if (this.status(pair) !== "stored")
      return `${label}: ${this.status(pair) === "later" ? "not stored yet" : "replaced"}`;
    const values = trace.lanes
      .filter((lane) => state.visible.has(lane.id))
      .map((lane) => {
        const [own, fork] = this.sides(lane).map(({ key }) => three(this.value(lane, pair, key)));
        return `${lane.title} ${own}${fork ? ` (fork ${fork})` : ""}`;
      });
    return `${label}: ${values.join(", ")}`;
  }

  rest() {
    const { trace, state } = this.app;
    const stored = trace.pairs.filter((_, pair) => this.status(pair) === "stored").length;
    this.canvas.setAttribute(
      "aria-label",
      `recall error of the ${stored} pairs stored at step ${state.step}; the numbers are in the table that follows`,
    );
  }
}

// Word, name, what it does, where it leads, icon.
const MOVES = [
  ["Start", "start", "goes to the empty memory (Home)", () => 0, "M1 1h2v10H1zM11 1v10L4 6z"],
  ["Back", "back", "goes one step back (←)", (step) => step - 1, "M9 1v10L2 6z"],
  ["Step", "step", "goes one step on (→)", (step) => step + 1, "M3 1l7 5-7 5z"],
  ["End", "end", "goes to the last step (End)", (_, last) => last, "M9 1h2v10H9zM1 1l7 5-7 5z"],
];

class Controls {
  constructor(app) {
    this.app = app;
    [this.start, this.back, this.forward, this.end] = MOVES.map(([word, name, does, to, path]) =>
      this.button(word, name, does, () => app.jump(to(app.state.step, app.trace.last)), path),
    );
    const does = "plays from here, or pauses (space)";
    this.play = this.button("Play", "play", does, () => app.toggle(), "M2 1l9 5-9 5z");
    const buttons = [this.start, this.back, this.play, this.forward, this.end];
    const group = { class: "bar", role: "group", "aria-label": "time" };
    this.node = h("div", group, buttons, this.scrubber(), this.speeds());
  }

  scrubber() {
    this.slider = h("input", {
      type: "range",
      min: "0",
      step: "1",
      "aria-label": "step",
      title: "What this does: moves to any step",
      data: { testid: "scrub" },
      oninput: () => this.app.jump(Number(this.slider.value)),
      onpointerup: () => this.app.root.focus({ preventScroll: true }),
    });
    this.count = h("output", { data: { testid: "count" } });
    return h("div", { class: "scrub" }, this.slider, this.count);
  }

  speeds() {
    const title = "What this does: sets how fast it plays (default ×1, two steps a second)";
    this.speed = h(
      "select",
      {
        title,
        data: { testid: "speed" },
        onchange: () => this.app.set({ speed: Number(this.speed.value) }),
      },
      SPEEDS.map((speed) => h("option", { value: String(speed) }, `×${speed}`)),
    );
    return h("label", { title }, h("span", {}, "speed"), this.speed);
  }

  button(word, name, does, act, path) {
    return h(
      "button",
      {
        type: "button",
        class: name,
        title: `What this does: ${does}`,
        data: { testid: name },
        onclick: act,
      },
      icon(path),
      h("span", {}, word),
    );
  }

  paint() {
    const { trace, state } = this.app;
    const { step, playing, speed } = state;
    if (Number(this.slider.max) !== trace.last) this.slider.max = String(trace.last);
    if (Number(this.slider.value) !== step) this.slider.value = String(step);
    setText(this.count, `${step} of ${trace.last}`);
    this.start.disabled = this.back.disabled = step === 0;
    this.forward.disabled = this.end.disabled = step === trace.last;
    setText(this.play.lastChild, playing ? "Pause" : "Play");
    this.play.firstChild.firstChild.setAttribute(
      "d",
      playing ? "M2 1h3v10H2zM7 1h3v10H7z" : "M2 1l9 5-9 5z",
    );
    if (Number(this.speed.value) !== speed) this.speed.value = String(speed);
  }

  rest() {
    const { trace, state } = this.app;
    this.slider.setAttribute(
      "aria-valuetext",
      `step ${state.step} of ${trace.last}: ${trace.label(state.step)}`,
    );
  }
}

class Options {
  constructor(app) {
    this.app = app;
    this.rules = h("span", { class: "group", role: "group", "aria-label": "rules" });
    this.hint = h("span", { class: "hint" }, "space plays · ← → step · Home, End");
    this.node = h("div", { class: "options" }, this.rules, this.looks(), this.hint, this.saving());
  }

  looks() {
    const axis = "draws the curves on a logarithmic axis (default off)";
    const roots =
      "colours by the square root, so that small entries show (default: on where one rule would drown another)";
    this.log = this.check("log curves", "log", axis);
    this.stretch = this.check("stretch colours", "stretch", roots);
    return h("span", { class: "group" }, this.log, this.stretch, this.themes());
  }

  check(words, name, does) {
    const box = h("input", {
      type: "checkbox",
      data: { testid: name },
      onchange: () => this.app.set({ [name]: box.checked }),
    });
    return h("label", { title: `What this does: ${does}` }, box, words);
  }

  themes() {
    const title = "What this does: light or dark (default: as the page)";
    const onchange = () => this.app.set({ theme: this.theme.value });
    const options = ["auto", "light", "dark"].map((name) => h("option", { value: name }, name));
    this.theme = h("select", { title, data: { testid: "theme" }, onchange }, options);
    return h("label", { title }, "theme", this.theme);
  }

  saving() {
    const { app } = this;
    const title = "What this does: saves the view, a picture or numbers";
    const page = "saves this view as one page that works offline";
    this.details = h(
      "details",
      { class: "save" },
      h("summary", { title, data: { testid: "save" } }, "Save"),
      h(
        "div",
        { class: "menu" },
        this.item("Save view (HTML)", "save-view", page, () => app.saveView()),
        this.item("Save picture (PNG)", "save-picture", "saves what is seen", () =>
          app.savePicture(),
        ),
        this.tables(),
      ),
    );
    return this.details;
  }

  tables() {
    this.panel = h("select", {
      title: "What this does: chooses the panel to save as CSV",
      "aria-label": "panel to save as CSV",
      data: { testid: "csv-panel" },
    });
    const does = "saves the numbers of the chosen panel";
    const save = () => this.app.saveCsv(this.panel.value);
    return h("div", { class: "csv" }, this.panel, this.item("Save CSV", "save-csv", does, save));
  }

  item(words, name, does, onclick) {
    const title = `What this does: ${does}`;
    return h("button", { type: "button", title, data: { testid: name }, onclick }, words);
  }

  load() {
    const { trace } = this.app;
    this.boxes = trace.lanes.map((lane) => this.lane(lane));
    this.rules.replaceChildren(
      h("span", { class: "what" }, "rules"),
      ...this.boxes.map((box) => box.parentNode),
    );
    const chosen = this.panel.value;
    this.panel.replaceChildren(
      ...this.app.panels().map(([value, words]) => h("option", { value }, words)),
    );
    if (this.app.panels().some(([value]) => value === chosen)) this.panel.value = chosen;
  }

  lane(lane) {
    const box = h("input", {
      type: "checkbox",
      data: { testid: "lane-toggle", lane: lane.id },
      onchange: () => this.app.toggleLane(lane.id, box.checked),
    });
    h(
      "label",
      { title: `What this does: shows or hides ${lane.title}` },
      box,
      swatch(lane),
      lane.title,
    );
    return box;
  }

  paint() {
    const { visible, theme, log, stretch } = this.app.state;
    for (const box of this.boxes) {
      box.checked = visible.has(box.dataset.lane);
      box.disabled = box.checked && visible.size === 1;
    }
    this.log.firstChild.checked = log;
    this.stretch.firstChild.checked = stretch;
    if (this.theme.value !== theme) this.theme.value = theme;
  }
}

// The same numbers as text, for those who can't see the canvases. Redone when the clock rests.
class Tables {
  constructor(app) {
    this.app = app;
    this.live = h("p", { role: "status", "aria-live": "polite", data: { testid: "live" } });
    this.body = h("div", { data: { testid: "tables" } });
    this.node = h("div", { class: "hidden-text" }, this.live, this.body);
  }

  rest() {
    const { trace, state } = this.app;
    const lanes = trace.lanes.filter((lane) => state.visible.has(lane.id));
    setText(
      this.live,
      `${this.app.headline(state.step)} ` +
        lanes.map((lane) => `${lane.title}: ${this.app.sentence(lane, state.step)}`).join(" "),
    );
    const numbers = trace.numbers.map((number) => [
      number.words,
      ...lanes.map((lane) => three(lane.at(number.key, state.step))),
    ]);
    const { ladder } = this.app;
    const pairs = trace.pairs.map((token, pair) => [
      trace.labels[token],
      ...lanes.map((lane) =>
        ladder
          .sides(lane)
          .map(({ key }) => three(ladder.value(lane, pair, key)))
          .join(", forked "),
      ),
    ]);
    this.body.replaceChildren(
      table(`numbers at step ${state.step}`, lanes, numbers),
      table(`recall error of each pair at step ${state.step}`, lanes, pairs),
    );
  }
}

function table(caption, lanes, rows) {
  return h(
    "table",
    {},
    h("caption", {}, caption),
    h(
      "tr",
      {},
      h("th", {}),
      lanes.map((lane) => h("th", { scope: "col" }, lane.title)),
    ),
    rows.map(([name, ...cells]) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, name),
        cells.map((cell) => h("td", {}, cell)),
      ),
    ),
  );
}

// The stepper.

export class Stepper {
  constructor(element, host) {
    this.host = host;
    this.state = {
      step: 0,
      playing: false,
      speed: 1,
      theme: "auto",
      lanes: [],
      height: 0,
      hover: null,
      cell: null,
      log: false,
      stretch: false,
      visible: new Set(),
      curves: CURVES,
      ...host.view(),
    };
    this.frames = 0;
    this.build();
    element.replaceChildren(this.root);
    this.root.stepper = this;
    this.listen();
  }

  build() {
    this.strip = new TokenStrip(this);
    this.heads = new Heads(this);
    this.plots = [0, 1, 2].map((slot) => new Plot(this, slot));
    this.ladder = new Ladder(this);
    this.controls = new Controls(this);
    this.options = new Options(this);
    this.tables = new Tables(this);
    this.say = h("p", { class: "say", data: { testid: "say" } });
    this.lanes = h("div", { class: "lanes" });
    this.curves = h(
      "div",
      { class: "curves" },
      this.plots.map((plot) => plot.node),
    );
    this.under = h("div", { class: "under" }, this.curves, this.ladder.node);
    this.tip = h("div", { class: "tip", hidden: true, data: { testid: "tip" } });
    this.root = h(
      "div",
      {
        class: "vla-stepper",
        tabindex: "0",
        role: "group",
        data: { testid: "stepper", lmSuppressShortcuts: "true" },
        "aria-label":
          "Memory stepper. Space plays or pauses, left and right arrows step, Home and End jump.",
      },
      this.strip.node,
      this.say,
      this.heads.node,
      this.lanes,
      this.under,
      this.controls.node,
      this.options.node,
      this.tip,
      this.tables.node,
    );
  }

  listen() {
    this.root.addEventListener("keydown", (event) => this.keys(event));
    this.root.addEventListener("mousedown", (event) => this.keepFocus(event));
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.root);
    this.schemes = matchMedia("(prefers-color-scheme: dark)");
    this.onScheme = () => this.relook();
    this.schemes.addEventListener("change", this.onScheme);
    this.hostLook = new MutationObserver(this.onScheme);
    for (const node of [document.body, document.documentElement])
      this.hostLook.observe(node, {
        attributes: true,
        attributeFilter: ["class", "data-jp-theme-light", "data-theme", "data-vscode-theme-kind"],
      });
  }

  destroy() {
    cancelAnimationFrame(this.pending);
    clearTimeout(this.resting);
    clearTimeout(this.styling);
    this.observer.disconnect();
    this.hostLook.disconnect();
    this.schemes.removeEventListener("change", this.onScheme);
    this.host.close();
  }

  // A new trace takes the old one's place: step, lanes and scroll stay, everything is drawn at once.
  load(data) {
    const before = this.trace;
    this.trace = decode(data);
    const refocus = this.noteFocus();
    this.state.step = clamp(this.state.step, 0, this.trace.last);
    this.state.hover = this.state.cell = null;
    this.chooseCurves(before);
    this.heads.name(this.trace.kinds);
    this.see();
    this.relook(false);
    if (before?.signature === this.trace.signature)
      this.rows.forEach((row, i) => row.take(this.trace.lanes[i]));
    else this.rebuild();
    this.strip.load();
    this.strip.forget();
    this.ladder.load();
    this.plots.forEach((plot) => {
      plot.trace = null;
    });
    this.layout();
    this.paint();
    refocus();
  }

  // A fork brings its gap, other formats their error, in the place of a curve; gone, it comes back.
  chooseCurves(before) {
    const known = new Set(this.trace.curves.map((curve) => curve.key));
    const curves = this.state.curves.map((key, i) => (known.has(key) ? key : CURVES[i]));
    const has = (trace, key) => trace?.curves.some((curve) => curve.key === key);
    for (const [slot, key] of ["", "gap", "rounding"].entries())
      if (known.has(key) && !has(before, key) && !curves.includes(key)) curves[slot] = key;
    this.state.curves = curves;
  }

  // What has the focus may be built anew; the node that takes its place gets it back.
  noteFocus() {
    const before = this.focused();
    if (!before?.dataset.testid || !this.root.contains(before)) return () => {};
    const names = ["testid", "lane", "kind", "token", "slot"].filter(
      (name) => name in before.dataset,
    );
    const twin = names
      .map((name) => `[data-${name}="${CSS.escape(before.dataset[name])}"]`)
      .join("");
    return () => {
      if (!before.isConnected)
        (this.root.querySelector(twin) ?? this.root).focus({ preventScroll: true });
    };
  }

  rebuild() {
    this.rows = this.trace.lanes.map((lane) => new LaneRow(this, lane));
    this.lanes.replaceChildren(...this.rows.map((row) => row.node));
    this.plots.forEach((plot) => plot.load());
    this.options.load();
  }

  see() {
    const ids = this.trace.lanes.map((lane) => lane.id);
    const wanted = ids.filter((id) => this.state.lanes.includes(id));
    this.state.visible = new Set(wanted.length ? wanted : ids);
  }

  dark() {
    return this.state.theme === "auto" ? hostIsDark() : this.state.theme === "dark";
  }

  relook(paint = true) {
    this.root.dataset.look = this.dark() ? "dark" : "light";
    this.look = new Look(this.root);
    const paper = rgb(this.look.paper);
    for (const lane of this.trace?.lanes ?? []) lane.shade = readable(lane.colour, paper);
    this.lanesById = new Map((this.trace?.lanes ?? []).map((lane) => [lane.id, lane]));
    if (paint && this.trace) this.recolour();
    if (!this.look.styled) this.awaitStyle();
  }

  awaitStyle() {
    clearTimeout(this.styling);
    this.styling = setTimeout(() => {
      if (!getComputedStyle(this.root).getPropertyValue("--paper")) return this.awaitStyle();
      this.relook();
      this.layout();
    }, 50);
  }

  recolour() {
    this.strip.drawn = null;
    this.strip.load();
    this.strip.forget();
    this.plots.forEach((plot) => {
      plot.load();
      plot.trace = null;
    });
    this.options.load();
    this.schedule();
  }

  resize() {
    if (this.root.clientWidth === this.width || !this.trace) return;
    this.layout();
    this.paint();
  }

  layout() {
    this.width = this.root.clientWidth;
    const mode = this.width >= 880 ? "wide" : this.width >= 560 ? "medium" : "narrow";
    const count = this.state.visible.size;
    this.root.dataset.width = mode;
    this.rows.forEach((row) => {
      row.node.style.display = this.state.visible.has(row.lane.id) ? "" : "none";
    });
    this.strip.forget();
    this.root.dataset.tight = "0";
    this.share(mode, count);
    this.root.dataset.dense = String(Number(mode === "wide" && this.heat < 118));
    this.root.dataset.text = mode === "wide" ? this.textMode(this.heat) : "row";
    this.root.dataset.tight = String(Number(this.tight));
    this.root.dataset.heads = this.twoLines ? "two" : "one";
    this.root.style.setProperty("--row", `${this.rowHeight(this.heat)}px`);
    this.root.style.setProperty("--heat", `${this.heat}px`);
    this.root.style.setProperty("--plot", `${this.plotHeight}px`);
    this.plotWidth = this.plots[0].canvas.clientWidth;
    this.ladderWidth = this.ladder.scroll.clientWidth;
    this.ladder.layout();
    this.ladderWidth = this.ladder.scroll.clientWidth;
  }

  // How a lane's numbers are set, by the width beside matrices of this size: on one line with their
  // names, in one row below them, in two rows of smaller type.
  textMode(heat) {
    const width = this.width - 24 - 4 * (heat + 14);
    if (width < 578 && heat < 190) return "small";
    return width > 860 && heat < 118 ? "line" : "row";
  }

  rowHeight(heat) {
    const least = { small: 134, line: 64, row: this.tight ? 74 : heat < 118 ? 91 : 104 };
    return Math.max(heat, least[this.textMode(heat)]);
  }

  // Shares the height between matrices and curves: matrices first, what they can't use to the curves.
  share(mode, count) {
    const inner = this.width - 24;
    this.twoLines = mode === "wide" && ((inner - 16) * 7) / 33 - 12 < 80 + 44 * count;
    this.plotHeight = 128;
    this.heat = Math.min(
      mode === "medium" ? 130 : 99,
      Math.floor((inner - 3 * (mode === "narrow" ? 8 : 14)) / 4),
    );
    if (mode !== "wide") return;
    const room = (this.state.height || 700) - this.fixedHeight() - 8 * (count - 1);
    this.heat = this.fit((room - (count > 2 ? 112 : 128)) / count, count, inner);
    this.tight = false;
    this.tight = room - count * this.rowHeight(this.heat) < 92;
    // Where room is short the strip gives up its second row (see the style sheet), curves a little.
    const spare = this.tight ? Math.max(0, this.strip.node.offsetHeight - 34) : 0;
    const left = room + spare - count * this.rowHeight(this.heat);
    this.plotHeight = Math.round(clamp(left, this.tight ? 76 : 92, 260));
  }

  // The matrix size for this height: no larger than leaves room for the text beside it.
  fit(height, count, inner) {
    const beside = (text) => Math.min(240, (inner - text) / 4 - 14);
    const widest = count > 1 && (beside(584) >= 130 || height < 134) ? beside(584) : beside(380);
    const size = Math.floor(clamp(height, Math.min(72, widest), widest));
    return snap(size, Math.max(this.trace.d, this.trace.dv), Math.max(widest, 76));
  }

  fixedHeight() {
    this.options.hint.hidden = this.state.visible.size > 2;
    const others = [
      this.strip.node,
      this.say,
      this.heads.node,
      this.controls.node,
      this.options.node,
    ];
    return others.reduce(
      (sum, node) => sum + node.offsetHeight,
      (this.twoLines ? 42 : 24) + 6 * 8 + 16,
    );
  }

  set(patch) {
    const stale = Object.entries(patch).some(([key, value]) => !same(this.state[key], value));
    if (!stale) return;
    Object.assign(this.state, patch);
    if (patch.playing) this.before = null;
    if ("theme" in patch) this.relook();
    if ("lanes" in patch) this.see();
    if ("lanes" in patch || "height" in patch) this.layout();
    this.host.push(this.state, Object.keys(patch));
    this.schedule();
  }

  jump(step) {
    this.set({ step: clamp(step, 0, this.trace.last), playing: false });
  }

  toggle() {
    const { playing, step } = this.state;
    const again = !playing && step === this.trace.last;
    this.set({ playing: !playing, step: again ? 0 : step });
  }

  toggleLane(id, on) {
    const ids = this.trace.lanes
      .map((lane) => lane.id)
      .filter((each) => (each === id ? on : this.state.visible.has(each)));
    this.set({ lanes: ids.length === this.trace.lanes.length ? [] : ids });
  }

  schedule() {
    if (!this.pending) this.pending = requestAnimationFrame((now) => this.frame(now));
  }

  frame(now) {
    this.pending = 0;
    if (!this.trace || !this.root.isConnected) return;
    this.advance(now);
    this.paint();
    if (this.state.playing) this.schedule();
  }

  // While playing, steps fall due by the clock; a slow frame skips ahead rather than lag.
  advance(now) {
    if (!this.state.playing) return;
    this.due =
      this.before == null
        ? 0
        : this.due + Math.min(0.5, (now - this.before) / 1000) * RATE * this.state.speed;
    this.before = now;
    const whole = Math.floor(this.due);
    if (!whole) return;
    this.due -= whole;
    const step = Math.min(this.state.step + whole, this.trace.last);
    Object.assign(this.state, { step, playing: step < this.trace.last });
    this.host.push(this.state, this.state.playing ? ["step"] : ["step", "playing"]);
  }

  paint() {
    this.frames++;
    this.state.step = clamp(this.state.step, 0, this.trace.last);
    this.strip.paint();
    this.heads.paint();
    this.rows.forEach((row) => {
      if (this.state.visible.has(row.lane.id)) row.paint();
    });
    this.plots.forEach((plot) => plot.paint());
    this.ladder.paint();
    this.controls.paint();
    this.options.paint();
    this.paintSay();
    this.paintTip();
    this.mark();
    clearTimeout(this.resting);
    if (!this.state.playing) this.resting = setTimeout(() => this.rest(), REST);
  }

  mark() {
    const { step, playing } = this.state;
    Object.assign(this.root.dataset, {
      step: String(step),
      steps: String(this.trace.steps),
      playing: String(playing),
    });
  }

  rest() {
    this.rows.forEach((row) => row.rest());
    this.plots.forEach((plot) => plot.rest());
    this.ladder.rest();
    this.controls.rest();
    this.tables.rest();
  }

  headline(step) {
    const { trace } = this;
    if (step === 0) return `Step 0 of ${trace.last}: the memory is empty.`;
    const does = [trace.asks[step - 1] && "asks", trace.writes[step - 1] && "stores"];
    const what = does.filter(Boolean).join(" and ");
    const wanted = trace.wanted[step - 1];
    const remark = trace.remarks[step - 1];
    const clauses = [wanted && `the stored answer is ${wanted}`, remark];
    const answer = clauses.map((clause) => (clause ? `; ${clause}` : "")).join("");
    return `Step ${step} of ${trace.last}: ${what} ${trace.labels[step - 1].replace(/^\? */, "")}${answer}.`;
  }

  sentence(lane, step) {
    if (lane.sentences.length) return lane.sentences[step];
    if (step === 0) return "Nothing is stored.";
    const error = lane.at("norm_error", step);
    return Number.isFinite(error)
      ? `Writes a residual of size ${three(error)}; mean recall error is now ${three(lane.at("recall_mean", step))}.`
      : "Reads and leaves the memory as it is.";
  }

  storedAt(step) {
    return this.trace.writes.slice(0, step).reduce((sum, writes) => sum + writes, 0);
  }

  paintSay() {
    const text = this.headline(this.state.step);
    if (this.said === text) return;
    this.said = text;
    const cut = text.indexOf(":") + 1;
    this.say.replaceChildren(h("b", {}, text.slice(0, cut)), text.slice(cut));
  }

  paintTip() {
    const { cell } = this.state;
    const row = cell && this.rows.find((each) => each.lane.id === cell.lane);
    const heat = row?.heats.find((each) => each.kind.key === cell.kind);
    const inside = heat?.box && cell.row < heat.box.rows && cell.column < heat.box.columns;
    this.tip.hidden = !inside;
    if (!inside) return;
    const value = heat.values()[cell.row * heat.box.columns + cell.column];
    const at = heat.lane.kept[heat.lane.frame(this.state.step)];
    setText(
      this.tip,
      `${symbol(cell.kind)} = ${exact(value)} · row ${cell.row}, column ${cell.column} · ${heat.lane.title}, step ${at}`,
    );
    Object.assign(this.tip.dataset, {
      value: String(value),
      row: String(cell.row),
      column: String(cell.column),
    });
    this.placeTip(heat, cell);
  }

  placeTip(heat, cell) {
    const [outer, inner] = [this.root.getBoundingClientRect(), heat.canvas.getBoundingClientRect()];
    const x = inner.left - outer.left + heat.box.x + (cell.column + 1) * heat.box.cell + 8;
    const y = inner.top - outer.top + heat.box.y + cell.row * heat.box.cell - 28;
    const left = clamp(x, 4, Math.max(4, outer.width - this.tip.offsetWidth - 4));
    this.tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(Math.max(2, y))}px)`;
  }

  focused() {
    return this.root.getRootNode().activeElement;
  }

  // A mouse click on a button leaves the focus on the stepper, so that space keeps meaning play.
  keepFocus(event) {
    const control = event.target.closest("select, input, summary, canvas, .menu");
    if (control) return;
    event.preventDefault();
    this.root.focus({ preventScroll: true });
  }

  keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
    const act = this.actionOf(event);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  actionOf(event) {
    const { step } = this.state;
    const onControl = event.target.closest("button, summary, input[type=checkbox]");
    const actions = {
      " ": onControl && !onControl.matches("[data-testid=token]") ? null : () => this.toggle(),
      ArrowLeft: () => this.jump(step - 1),
      ArrowRight: () => this.jump(step + 1),
      Home: () => this.jump(0),
      End: () => this.jump(this.trace.last),
      Escape: this.options.details.open
        ? () => {
            this.options.details.open = false;
          }
        : null,
    };
    return actions[event.key];
  }

  // Saving.

  fileName(ending) {
    const name = this.trace.name.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "trace";
    return `${name}-step-${this.state.step}${ending}`;
  }

  view() {
    const { step, speed, theme, lanes, log, stretch, curves } = this.state;
    return { step, speed, theme, lanes, log, stretch, curves };
  }

  saveView() {
    download(
      this.fileName(".html"),
      new Blob([this.host.page(this.view(), this.trace.name)], { type: "text/html" }),
    );
  }

  savePicture() {
    printing = true;
    this.paint();
    const canvas = picture(this.root, this.look);
    printing = false;
    this.paint();
    canvas.toBlob((blob) => download(this.fileName(".png"), blob), "image/png");
  }

  saveCsv(panel) {
    const text =
      this.rowsOf(panel)
        .map((row) => row.map(csvCell).join(","))
        .join("\r\n") + "\r\n";
    download(
      this.fileName(`-${panel.replace(/[^\w-]+/g, "-")}.csv`),
      new Blob(["\ufeff", text], { type: "text/csv" }),
    );
  }

  panels() {
    const lanes = this.trace.lanes;
    const matrices = lanes.flatMap((lane) =>
      this.trace.kinds.filter((kind) => lane.has_matrix && lane.size(kind.key)).map((kind) => [
        `${kind.key} ${lane.id}`,
        `${symbol(kind.key)} of ${lane.title}, this step`,
      ]),
    );
    return [
      ["curves", "curves and numbers, all steps"],
      ["ladder", "stored pairs, this step"],
      ...matrices,
    ];
  }

  rowsOf(panel) {
    if (panel === "curves") return this.curveRows();
    if (panel === "ladder") return this.ladderRows();
    const [kind, id] = panel.split(" ");
    const lane = this.lanesById.get(id);
    const columns = lane.size(kind)[1];
    const values = lane.matrix(kind, lane.frame(this.state.step));
    const rows = [["row", ...Array.from({ length: columns }, (_, i) => `column ${i}`)]];
    for (let i = 0; i < values.length; i += columns)
      rows.push([i / columns, ...values.slice(i, i + columns)]);
    return rows;
  }

  curveRows() {
    const keys = Object.keys(this.trace.lanes[0].arrays).filter(
      (key) => this.trace.lanes[0].arrays[key].shape.length === 1 && key !== "kept",
    );
    const head = ["step", "token", "rule", ...keys, "answer", "right"];
    const rows = Array.from({ length: this.trace.steps }, (_, step) =>
      this.trace.lanes.map((lane) => [
        step,
        this.trace.label(step),
        lane.id,
        ...keys.map((key) => lane.at(key, step)),
        lane.answers[step] ?? "",
        lane.correct[step] ?? "",
      ]),
    );
    return [head, ...rows.flat()];
  }

  ladderRows() {
    const { trace } = this;
    const head = [
      "pair",
      "stored at step",
      "replaced at step",
      ...trace.lanes.flatMap((lane) =>
        this.ladder.sides(lane).map(({ key }) => `${key.replace("_", " ")} error ${lane.id}`),
      ),
    ];
    return [
      head,
      ...trace.pairs.map((token, pair) => [
        trace.labels[token],
        token + 1,
        trace.overwritten_at[pair] < 0 ? "" : trace.overwritten_at[pair],
        ...trace.lanes.flatMap((lane) =>
          this.ladder.sides(lane).map(({ key }) => this.ladder.value(lane, pair, key)),
        ),
      ]),
    ];
  }
}

function same(a, b) {
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((value, i) => value === b[i]);
  if (a && b && typeof a === "object" && typeof b === "object")
    return JSON.stringify(a) === JSON.stringify(b);
  return a === b;
}

function hostIsDark() {
  const [body, page] = [document.body, document.documentElement];
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  if (body.dataset.vscodeThemeKind) return body.dataset.vscodeThemeKind.includes("dark");
  for (const node of [body, page]) {
    if (node.classList.contains("dark") || node.dataset.theme === "dark") return true;
    if (node.classList.contains("light") || node.dataset.theme === "light") return false;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

// Saving.

function download(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// A spreadsheet runs cells that begin with = + - @; words that do are quoted with an apostrophe.
function csvCell(value) {
  if (typeof value === "number") return Number.isNaN(value) ? "" : String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

// What is seen, as one picture: boxes and words of the page beside the canvases, at twice the size.
function picture(root, look) {
  const bounds = root.getBoundingClientRect();
  const height = root.querySelector(".under").getBoundingClientRect().bottom - bounds.top + 12;
  const canvas = h("canvas", {});
  const ctx = surface(canvas, bounds.width, height);
  ctx.fillStyle = look.paper;
  ctx.fillRect(0, 0, bounds.width, height);
  ctx.translate(-bounds.left, -bounds.top);
  printNode(ctx, root);
  return canvas;
}

const LEFT_OUT = ".hidden-text, .tip, .bar, .options, option, svg";

function printNode(ctx, node) {
  if (node.nodeType === Node.TEXT_NODE) return printWords(ctx, node);
  if (node.matches(LEFT_OUT) || getComputedStyle(node).display === "none") return;
  const bounds = node.getBoundingClientRect();
  if (node.tagName === "CANVAS") {
    if (!node.classList.contains("empty"))
      ctx.drawImage(node, bounds.left, bounds.top, bounds.width, bounds.height);
    return;
  }
  if (node.tagName === "SELECT")
    return printLine(
      ctx,
      node.selectedOptions[0]?.textContent ?? "",
      bounds,
      getComputedStyle(node),
    );
  ctx.save();
  printBox(ctx, node, bounds);
  for (const child of node.childNodes) printNode(ctx, child);
  ctx.restore();
}

function printBox(ctx, node, bounds) {
  const style = getComputedStyle(node);
  if (style.backgroundColor !== "rgba(0, 0, 0, 0)") {
    ctx.fillStyle = style.backgroundColor;
    ctx.fillRect(bounds.left, bounds.top, bounds.width, bounds.height);
  }
  printBorder(ctx, bounds, style);
  if (style.overflow !== "visible" || style.overflowY === "auto") {
    ctx.beginPath();
    ctx.rect(bounds.left, bounds.top, bounds.width, bounds.height);
    ctx.clip();
  }
}

function printBorder(ctx, bounds, style) {
  const [left, top] = [parseFloat(style.borderLeftWidth), parseFloat(style.borderTopWidth)];
  ctx.fillStyle = ctx.strokeStyle = style.borderLeftColor;
  ctx.lineWidth = left || 1;
  if (left && top)
    ctx.strokeRect(
      bounds.left + left / 2,
      bounds.top + left / 2,
      bounds.width - left,
      bounds.height - left,
    );
  else if (left) ctx.fillRect(bounds.left, bounds.top, left, bounds.height);
}

function printWords(ctx, node) {
  const style = getComputedStyle(node.parentNode);
  if (style.visibility === "hidden" || style.color === "rgba(0, 0, 0, 0)") return;
  const range = document.createRange();
  for (const match of node.textContent.matchAll(/\S+/g)) {
    range.setStart(node, match.index);
    range.setEnd(node, match.index + match[0].length);
    printLine(ctx, match[0], range.getBoundingClientRect(), style);
  }
}

function printLine(ctx, text, bounds, style) {
  ctx.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  ctx.fillStyle = style.color;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.fillText(text, bounds.left, bounds.top + bounds.height / 2);
}

function fillPage(template, parts) {
  let rest = template;
  let text = "";
  for (const [mark, value] of parts) {
    const at = rest.indexOf(mark);
    text += rest.slice(0, at) + value;
    rest = rest.slice(at + mark.length);
  }
  return text + rest;
}

const markup = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const inScript = (value) => JSON.stringify(value).replace(/</g, "\\u003c");

function base64(view) {
  const bytes = new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000)
    text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text);
}

// Hosts.

const SYNCED = ["step", "playing", "speed", "theme", "lanes", "log", "stretch"];

// A widget model (marimo, Jupyter). Steps travel at most once a second while playing, and values
// that come back as the echo of our own aren't taken for a wish of Python's.
class ModelHost {
  constructor(model) {
    this.model = model;
    this.sent = new Map(SYNCED.map((name) => [name, []]));
    this.waiting = new Map();
  }

  view() {
    return Object.fromEntries([...SYNCED, "height"].map((name) => [name, this.model.get(name)]));
  }

  attach(app) {
    this.handlers = [...SYNCED, "height"].map((name) => [
      `change:${name}`,
      () => this.receive(app, name),
    ]);
    this.handlers.push(["change:data", () => app.load(this.model.get("data"))]);
    for (const [event, handler] of this.handlers) this.model.on(event, handler);
    app.load(this.model.get("data"));
  }

  receive(app, name) {
    const value = this.model.get(name);
    const echoes = this.sent.get(name) ?? [];
    if (this.own || echoes.some((each) => same(each, value))) return;
    this.quiet = true;
    app.set({ [name]: value });
    this.quiet = false;
  }

  push(state, names) {
    const news = names.filter((name) => SYNCED.includes(name));
    if (this.quiet || !news.length) return;
    for (const name of news) this.waiting.set(name, state[name]);
    const delay = state.playing && !news.includes("playing") ? 1000 : 120;
    if (this.timer && delay === 1000) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.flush(), delay);
  }

  flush() {
    this.timer = null;
    this.own = true;
    for (const [name, value] of this.waiting) this.remember(name, value);
    this.waiting.clear();
    this.model.save_changes();
    this.own = false;
  }

  remember(name, value) {
    this.model.set(name, value);
    const list = this.sent.get(name);
    list.push(value);
    setTimeout(() => list.splice(list.indexOf(value), 1), 1500);
  }

  page(view, name) {
    return fillPage(this.model.get("page"), [
      ["%%TITLE%%", markup(name)],
      ["%%VIEW%%", inScript(view)],
      ["%%DATA%%", base64(this.model.get("data"))],
    ]);
  }

  close() {
    clearTimeout(this.timer);
    for (const [event, handler] of this.handlers) this.model.off(event, handler);
  }
}

// A saved page: the data lie in the document, and saving copies the document.
class PageHost {
  constructor(document) {
    this.source = document.documentElement.cloneNode(true);
    this.start = JSON.parse(document.getElementById("stepper-view").textContent);
    this.data = Uint8Array.from(
      atob(document.getElementById("stepper-data").textContent.trim()),
      (c) => c.charCodeAt(0),
    );
  }

  view() {
    return { ...this.start, height: this.height() };
  }

  height() {
    return clamp(window.innerHeight - 4, 700, 1000);
  }

  attach(app) {
    this.resize = () => app.set({ height: this.height() });
    window.addEventListener("resize", this.resize);
    app.load(this.data);
  }

  push() {}

  close() {
    window.removeEventListener("resize", this.resize);
  }

  page(view) {
    this.source.querySelector("#stepper-view").textContent = inScript(view);
    return `<!doctype html>\n${this.source.outerHTML}\n`;
  }
}

function start(element, host) {
  const app = new Stepper(element, host);
  host.attach(app);
  return app;
}

function render({ model, el }) {
  const app = start(el, new ModelHost(model));
  return () => app.destroy();
}

export function mountPage(document) {
  return start(document.getElementById("stepper"), new PageHost(document));
}

export default { render };
