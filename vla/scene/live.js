// A job under way: asks for news three times a second, and only while there is a job.

const PAUSE = 300; // ms between an answer and the next question
const PATIENCE = 10000; // ms after which an answer is taken for lost
const WIDTH = 300, HEIGHT = 96; // of the live curves
const INKS = ["#0072B2", "#D55E00", "#009E73", "#B07800", "#CC79A7", "#56B4E9", "#6B6B6B", "#8C564B"];
const ENDS = { done: "Done", failed: "Failed", cancelled: "Stopped" };
const SVG = "http://www.w3.org/2000/svg";

const three = (x) => (x == null || !Number.isFinite(x) ? "–" : String(Number(x.toPrecision(3))));
const clock = (s) => (s < 60 ? `${s.toFixed(0)} s` : `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`);

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

class Live {
  constructor(model, el) {
    this.model = model;
    this.handlers = [];
    this.bar = h("progress", { max: 1, "aria-label": "Progress", data: { testid: "job-progress" } });
    this.head = h("b", { data: { testid: "job-title" } });
    this.state = h("span", { class: "state", data: { testid: "job-words" } });
    this.stop = button("Stop", "job-stop", "Stops it and keeps what is finished (Escape)", () => this.cancel());
    this.told = h("div", { class: "told", role: "status", "aria-live": "polite", data: { testid: "job-told" } });
    this.picture = h("div", { class: "curves", data: { testid: "job-curves" } });
    this.root = h("section", { class: "vla-live", hidden: true, "aria-label": "Work under way", data: { testid: "job" },
      onkeydown: (event) => { if (event.key === "Escape" && !this.stop.hidden) { event.preventDefault(); this.cancel(); } } },
    h("div", { class: "line" }, this.head, this.bar, this.state, this.stop), this.picture, this.told);
    el.replaceChildren(this.root);
    for (const trait of ["title", "status", "done", "words", "said", "error", "seconds", "curves"]) this.on(trait, () => this.plan());
    this.on("ticked", () => this.answer());
    this.schemes = matchMedia("(prefers-color-scheme: dark)");
    this.look = () => { this.root.dataset.look = isDark(this.schemes) ? "dark" : "light"; };
    this.schemes.addEventListener("change", this.look);
    this.host = new MutationObserver(this.look);
    for (const node of [document.body, document.documentElement]) this.host.observe(node, { attributes: true, attributeFilter: ["class", "data-theme"] });
    this.look();
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
    clearTimeout(this.next);
    clearTimeout(this.late);
  }

  cancel() {
    this.stop.disabled = true;
    this.model.set("wish", "stop");
    this.model.save_changes();
  }

  // Several traits come with one message: draw once.
  plan() {
    if (this.planned) return;
    this.planned = true;
    queueMicrotask(() => { this.planned = false; this.show(); });
  }

  show() {
    const get = (name) => this.model.get(name);
    const status = get("status"), runs = status === "running";
    this.root.hidden = !status;
    this.root.dataset.status = status;
    this.head.textContent = get("title");
    this.bar.hidden = this.stop.hidden = !runs;
    if (!runs) this.stop.disabled = false;
    this.bar.value = get("done");
    this.state.textContent = runs ? [`${Math.round(100 * get("done"))} %`, get("words")].filter(Boolean).join(" · ") : `${ENDS[status] ?? ""} after ${clock(get("seconds"))}`;
    const lines = [...get("said"), ...(get("error") ? [get("error")] : [])];
    if (lines.join("\n") !== this.lines) {
      this.lines = lines.join("\n");
      this.told.replaceChildren(...lines.slice(-6).map((line) => h("p", {}, line)));
    }
    this.draw(get("curves"));
    if (runs && !this.asking) this.ask();
  }

  ask() {
    this.asking = true;
    clearTimeout(this.next);
    this.next = setTimeout(() => {
      this.model.set("tick", this.model.get("tick") + 1);
      this.model.save_changes();
      clearTimeout(this.late);
      this.late = setTimeout(() => this.answer(), PATIENCE);
    }, PAUSE);
  }

  answer() {
    clearTimeout(this.late);
    this.asking = false;
    if (this.model.get("status") === "running") this.ask();
  }

  draw(curves) {
    const known = curves.flatMap((curve) => curve.points.filter((point) => point[1] != null));
    this.picture.hidden = known.length === 0;
    if (!known.length) { this.picture.replaceChildren(); return; }
    const [across, up] = this.model.get("axes");
    const xs = known.map((point) => point[0]), ys = known.map((point) => point[1]);
    const right = Math.max(...xs), left = Math.min(0, ...xs), low = Math.min(0, ...ys);
    const high = Math.max(...ys) <= 1 ? 1 : Math.max(...ys);
    const place = ([x, y]) => `${(4 + (WIDTH - 8) * (x - left) / (right - left || 1)).toFixed(1)},${(HEIGHT - 4 - (HEIGHT - 8) * (y - low) / (high - low || 1)).toFixed(1)}`;
    const ink = (curve, turn) => curve.colour || INKS[turn % INKS.length];
    const lines = curves.map((curve, turn) => svg("polyline", { points: curve.points.filter((point) => point[1] != null).map(place).join(" "), stroke: ink(curve, turn) }));
    const last = curves.map((curve) => `${curve.name} ${three(curve.points.at(-1)?.[1])}`).join(", ");
    const words = `${up} against ${across}, up to ${three(right)}: ${last}.`;
    const frame = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words }, svg("rect", { x: 0.5, y: 0.5, width: WIDTH - 1, height: HEIGHT - 1 }), ...lines);
    const key = h("ul", {}, curves.map((curve, turn) => {
      const mark = h("span", { class: "mark", "aria-hidden": "true" });
      mark.style.background = ink(curve, turn);
      return h("li", {}, mark, h("span", {}, curve.name), h("b", { data: { testid: "job-value", curve: curve.name } }, three(curve.points.at(-1)?.[1])));
    }));
    this.picture.replaceChildren(h("div", { class: "frame" }, frame, h("p", {}, `${up}, 0 to ${three(high)}, against ${across}, to ${three(right)}`)), key);
  }
}

function render({ model, el }) {
  const live = new Live(model, el);
  return () => live.destroy();
}

export default { render };
