// What can be asked of any app's page, through the shadow trees in which its host keeps widgets.
window.vlaPage = (() => {
  function* deep(root = document) {
    for (const node of root.querySelectorAll("*")) {
      yield node;
      if (node.shadowRoot) yield* deep(node.shadowRoot);
    }
  }
  const all = (wanted) => [...deep()].filter(wanted);
  const parent = (node) => node.assignedSlot ?? node.parentElement ?? node.parentNode?.host ?? null;
  const box = (node) => node.getBoundingClientRect();
  const seen = (node) => node.checkVisibility({ visibilityProperty: true }) && box(node).width > 0;

  const isPicture = (node) => node.matches("canvas, img, .js-plotly-plot")
    || (node.localName === "svg" && !node.ownerSVGElement && !node.closest(".js-plotly-plot, #js-plotly-tester"));
  const pictures = () => all((node) => isPicture(node) && seen(node) && box(node).width > 40 && box(node).height > 40);
  const drawn = () => pictures().some((node) => !node.matches(".js-plotly-plot") || node.querySelector(".main-svg .plot path, .main-svg .plot image, .main-svg text"));

  // Milliseconds from the start of the visit to the frame after controls and a picture are there.
  const first = () => new Promise((done) => {
    const look = () => {
      if (all((node) => node.dataset.testid === "panel" && seen(node)).length && drawn()) requestAnimationFrame(() => setTimeout(() => done(performance.now())));
      else setTimeout(look, 10);
    };
    look();
  });

  // Waits until no text, value or curve has changed for 0.3 s; a page that never rests is taken after 20 s.
  const settled = () => new Promise((done) => {
    const print = () => all((node) => node.childElementCount === 0)
      .map((node) => node.textContent + (node.value ?? "") + (node.getAttribute("d") ?? "")).join("|");
    const start = performance.now();
    let before = print();
    let same = 0;
    const look = () => {
      const now = print();
      same = now === before ? same + 1 : 0;
      before = now;
      if (same >= 3 || performance.now() - start > 20000) done();
      else setTimeout(look, 100);
    };
    look();
  });

  const find = (key, without = []) => {
    const mine = all((node) => node.dataset.key && !node.disabled && seen(node)
      && (key ? node.dataset.key === key : !without.includes(node.dataset.key)));
    return mine.find((node) => node.type === "range" && node.min !== node.max)
      ?? mine.find((node) => node.localName === "select" && node.options.length > 1)
      ?? mine.find((node) => node.type === "checkbox");
  };

  // Turns a control, or the first that can be turned: a slider to a share of its length, a list to its next choice.
  const turn = (key, at, without) => {
    const node = find(key, without);
    if (!node) return null;
    if (node.type === "checkbox") {
      node.checked = !node.checked;
    } else if (node.type === "range") {
      const [low, high, now] = [node.min, node.max, node.value].map(Number);
      node.value = low + (high - low) * (at ?? ((now - low) / (high - low) > 0.5 ? 0.2 : 0.8));
    } else {
      node.selectedIndex = (node.selectedIndex + 1) % node.options.length;
    }
    node.dispatchEvent(new Event(node.type === "range" ? "input" : "change", { bubbles: true }));
    return node.dataset.key;
  };

  // What readers and the host are told beside the picture, after it: words for screen readers wait for a pause.
  const TOLD = /^(aria-.*|title|class)$/;
  const visible = (record) => {
    if (TOLD.test(record.attributeName ?? "")) return false;
    for (let up = record.target; up; up = parent(up)) {
      if (up.matches?.("head, .fixed, [data-testid=panel], [aria-live], [data-testid=tables]")) return false;
    }
    return true;
  };

  // Turns a control and gives the milliseconds to the frame after the last visible change outside the controls;
  // the end is when nothing moves for `quiet`. Null if nothing moved at all.
  const repaint = (key, at, quiet = 400) => new Promise((done) => {
    let last = null;
    let start = 0;
    let timer;
    const roots = [document, ...all((node) => node.shadowRoot).map((node) => node.shadowRoot)];
    const end = () => { observer.disconnect(); done(last); };
    const moved = (records) => {
      if (!records.some(visible)) return;
      requestAnimationFrame(() => setTimeout(() => { last = performance.now() - start; }));
      clearTimeout(timer);
      timer = setTimeout(end, quiet);
    };
    const observer = new MutationObserver(moved);
    for (const root of roots) observer.observe(root, { subtree: true, childList: true, characterData: true, attributes: true });
    timer = setTimeout(end, 20000);
    start = performance.now();
    turn(key, at);
  });

  const main = () => {
    const { left, top, width, height } = box(document.querySelector(".bench > main") ?? document.body);
    return { left, top, width, height };
  };

  return { all, parent, box, seen, pictures, first, settled, turn, repaint, main, plotly: () => all((node) => node.matches(".js-plotly-plot") && seen(node)).length };
})();
