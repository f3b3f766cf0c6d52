// What tests ask of any app's page, on top of vla/bench/page.js.
window.everyApp = (() => {
  const CONTROLS = "a[href], button, input, select, textarea, summary";
  const GROUPS = "[role=toolbar], [role=tablist], [role=radiogroup], [role=menu], [role=grid], [role=listbox]";

  const { all, parent, seen } = window.vlaPage;

  // A name of its own or of a part that holds it; what is hidden from readers, or is a button's, needs none.
  const hasWords = (node) => {
    for (let at = node; at; at = parent(at)) {
      if (at.getAttribute("aria-hidden") === "true" || at.localName === "button") return true;
      const role = at.getAttribute("role") || at.localName;
      const words = at.getAttribute("aria-label") || at.getAttribute("alt");
      if (words?.trim() && ["img", "figure", "group", "application"].includes(role)) return true;
      if (at.localName === "figure" && at.querySelector("figcaption")?.textContent.trim()) return true;
    }
    return false;
  };
  const pictures = () => window.vlaPage.pictures().map((node) => [hasWords(node), node.outerHTML.slice(0, 160)]);

  // One tab stop in a group is enough: arrow keys do the rest. A hidden file input has its button.
  const shares = (node) => node.closest(GROUPS)?.querySelector("[tabindex='0']")
    || (node.type === "file" && node.parentElement.querySelector("button")) || node.closest("[aria-hidden=true], [inert]");
  let left = new Map();
  const mark = () => {
    const wanted = all((node) => (node.matches(CONTROLS) ? !node.disabled && (node.tabIndex >= 0 || !shares(node)) : node.tabIndex >= 0)
      && node.matches(`${CONTROLS}, [role], [data-testid]`) && seen(node));
    left = new Map(wanted.map((node) => [node, node.outerHTML.slice(0, 160)]));
    document.activeElement?.blur();
    return left.size;
  };
  const reach = () => {
    let node = document.activeElement;
    while (node?.shadowRoot?.activeElement) node = node.shadowRoot.activeElement;
    left.delete(node);
    if (node?.type === "radio") for (const other of [...left.keys()]) if (other.name === node.name) left.delete(other);
    return [left.size, node === document.body || node === null];
  };

  const typeIntoNumbers = (words) => {
    const boxes = all((node) => node.dataset.testid === "number-input" && seen(node));
    for (const each of boxes) each.value = words;
    for (const each of boxes) each.dispatchEvent(new Event("change", { bubbles: true }));
    return boxes.map((each) => each.dataset.key);
  };

  const state = () => JSON.stringify([location.search, all((node) => node.dataset?.testid === "number"
    || (node.dataset?.key && "value" in node && node.dataset.testid !== "reset"))
    .map(({ dataset, value, checked }) => [dataset.lane, dataset.number, dataset.key, dataset.value ?? value, checked])]);

  const wider = () => Math.max(...[document.documentElement, document.body, document.querySelector("#App")]
    .map((node) => node.scrollWidth)) - innerWidth;

  const words = () => all((node) => node.childElementCount === 0 && !node.matches("script, style, textarea"))
    .map((node) => node.textContent).join("\n");

  return {
    settled: window.vlaPage.settled, turn: window.vlaPage.turn,
    pictures, mark, reach, typeIntoNumbers, state, wider, words,
    unreached: () => [...left.values()],
    drawn: (selector) => all((node) => node.matches(selector)).length,
  };
})();
