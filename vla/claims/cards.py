"""A claim as a card: HTML for the app and for the page that ``vla claims report`` writes."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import urlencode

from vla.claims.claim import Claim, Link
from vla.claims.finding import VERDICTS, Cell, Grid
from vla.claims.ledger import Entry
from vla.figures.claims import STYLE, style, svg
from vla.figures.theme import three

SIGNS = {"holds": "✓", "changed": "≈", "fails": "✗", "undecided": "?"}
"""A verdict's sign, beside its words: never colour alone."""


def card(claim: Claim, entry: Entry, *, base: str | None = None, actions: str = "") -> str:
    """One card. ``base`` is the laboratory's address, for links to scenes; without it, none.

    ``actions`` is put under the evidence: the app's buttons.
    """
    found = entry.finding
    picture = f'<div class="claim-figure">{svg(found.chart)}</div>' if found.chart else ""
    parts = [
        f'<header><p class="verdict {found.verdict}"><span aria-hidden="true">'
        f"{SIGNS[found.verdict]}</span> {VERDICTS[found.verdict]}</p>"
        f'<h3><a href="#{claim.id}">{escape(claim.title)}</a></h3>'
        f'<p class="place">{escape(claim.place)}</p></header>',
        f"<blockquote>{escape(claim.words)}</blockquote>",
        f'<p class="needs"><b>To be true:</b> {escape(claim.needs)}</p>',
        f'<p class="why"><b>Found:</b> {escape(found.why)}</p>',
        picture,
        table(found.grid),
        links(claim, base),
        evidence(claim, entry),
        actions,
    ]
    return (
        f'<article class="claim {found.verdict}" id="{claim.id}" data-testid="claim" '
        f'data-claim="{claim.id}" data-verdict="{found.verdict}" '
        f'data-section="{escape(claim.section)}">{"".join(parts)}</article>'
    )


def table(grid: Grid | None) -> str:
    """The numbers side by side, folded away."""
    if grid is None:
        return ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in grid.head)
    rows = "".join(
        "<tr>"
        + f'<th scope="row">{_cell(row[0])}</th>'
        + "".join(f"<td>{_cell(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in grid.rows
    )
    return (
        f"<details><summary>Value by value ({len(grid.rows)})</summary>"
        f'<div class="wide" tabindex="0" role="region" aria-label="Values"><table><thead><tr>{head}'
        f"</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _cell(cell: Cell) -> str:
    return escape(cell) if isinstance(cell, str) else three(cell)


def links(claim: Claim, base: str | None) -> str:
    """Scenes where the claim can be seen."""
    if base is None or not claim.links:
        return ""
    items = "".join(
        f'<li><a href="{escape(base + path_of(link))}">{escape(link.words)}</a></li>'
        for link in claim.links
    )
    return f'<ul class="scenes">{items}</ul>'


def path_of(link: Link) -> str:
    """A scene's address below the laboratory's. Raises ``KeyError`` for an unknown scene."""
    from vla.scene.presets import PRESETS
    from vla.scene.stability import STABILITY
    from vla.scene.whitening import WHITENING

    scenes: dict[str, Any] = {"step": PRESETS, "stability": STABILITY, "whitening": WHITENING}
    query = urlencode(scenes[link.app][link.scene].scene.to_query())
    return f"{link.app}/" + (f"?{query}" if query else "")


def evidence(claim: Claim, entry: Entry) -> str:
    """What it rests on, and how to decide it again."""
    if claim.check is None:
        return f'<p class="evidence">Entered {entry.date}; no check, for the reason above.</p>'
    sources = "; ".join(map(escape, entry.finding.sources))
    commit = f", commit {escape(entry.commit[:8])}" if entry.commit else ""
    costs = "; ".join(
        f"<code>vla claims run {claim.id}"
        + (f" --budget {budget}" if budget != "cheap" else "")
        + f"</code> {claim.cost(budget)}"
        for budget in claim.budgets
    )
    return (
        f'<p class="evidence">Evidence: {sources}. Checked {entry.date} on '
        f"{escape(entry.device)}{commit}. Again: {costs}.</p>"
    )


def sheet() -> str:
    """The style of cards, for a page on its own and for the app."""
    return SHEET + STYLE + style()


SHEET = """
.claims { --ink: #1b1f23; --muted: #5a626a; --line: #d5dade; --raised: #f4f6f8; --link: #0062a3;
  color: var(--ink); font: 15px/1.4 "Source Sans 3", "Segoe UI", Arial, sans-serif; }
.dark .claims, .claims.dark { --ink: #eceff1; --muted: #a7b0b8; --line: #3a434a; --raised: #1d2328;
  --link: #56b4e9; }
.claims article { border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px 12px;
  margin: 0 0 12px; max-width: 60rem; scroll-margin-top: 8px; break-inside: avoid; }
.claims article[hidden] { display: none; }
.claims article:target, .claims article.chosen { outline: 2px solid var(--link); }
.claims h3 { font-size: 17px; line-height: 1.25; margin: 0; font-weight: 600; }
.claims h3 a { color: inherit; text-decoration: none; }
.claims h3 a:hover { text-decoration: underline; }
.claims a { color: var(--link); }
.claims .verdict { float: right; margin: 0 0 4px 12px; font-weight: 600; font-size: 14px;
  border: 1.5px solid currentColor; border-radius: 999px; padding: 0 10px; }
.claims .verdict.holds { color: #00684a; }
.claims .verdict.changed { color: #7a5200; }
.claims .verdict.fails { color: #a83c00; }
.claims .verdict.undecided { color: var(--muted); border-style: dashed; }
.dark .claims .verdict.holds { color: #4cc9a0; }
.dark .claims .verdict.changed { color: #e8b84a; }
.dark .claims .verdict.fails { color: #ff9a66; }
.claims p { margin: 6px 0; }
.claims .place, .claims .evidence { color: var(--muted); font-size: 13.5px; }
.claims .place { margin: 1px 0 6px; }
.claims blockquote { margin: 6px 0; padding: 2px 0 2px 12px; border-left: 3px solid var(--line);
  font-style: italic; }
.claims summary { cursor: pointer; font-weight: 600; font-size: 14px; padding: 4px 0; }
.claims .wide { overflow-x: auto; }
.claims table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
.claims :is(th, td) { text-align: right; padding: 2px 12px 2px 0; font-weight: 400; }
.claims tbody th { text-align: left; }
.claims tbody tr { border-top: 1px solid var(--line); }
.claims .scenes { margin: 6px 0; padding-left: 20px; }
.claims code { font-size: 13px; overflow-wrap: anywhere; }
@media print {
  .claims { font-size: 9.5pt; line-height: 1.25; }
  .claims article { padding: 6px 10px; margin-bottom: 8px; }
  .claims :is(p, blockquote) { margin: 3px 0; }
  .claims :is(.place, .evidence, table, code) { font-size: 8.5pt; }
  .claims details:not([open]) { display: none; }
}
"""
