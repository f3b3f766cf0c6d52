"""``vla claims report``: the whole ledger as one HTML page, readable from disk with no network."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

from vla.claims.cards import card, sheet
from vla.claims.claim import SECTIONS, ordered
from vla.claims.finding import VERDICTS, counted
from vla.claims.ledger import Entry
from vla.errors import ArgumentError

TITLE = "Every claim of “Variational Linear Attention”, checked"


def save(entries: Mapping[str, Entry], path: str | Path) -> Path:
    """Write :func:`page`. Raises :class:`~vla.errors.ArgumentError` if the folder isn't there."""
    path = Path(path)
    if not path.parent.is_dir():
        raise ArgumentError("report", str(path), "a file in a folder that exists")
    try:
        path.write_text(page(entries), encoding="utf-8")
    except OSError as error:
        wanted = f"a file that can be written ({(error.strerror or str(error)).lower()})"
        raise ArgumentError("report", str(path), wanted) from error
    return path


def page(entries: Mapping[str, Entry]) -> str:
    """One page: counts of verdicts, a table of contents, every card. No script, no request."""
    known = [each for each in ordered() if each.id in entries]
    summary = counted(entries[each.id].finding.verdict for each in known)
    parts = []
    for section in SECTIONS:
        mine = [each for each in known if each.section == section]
        if mine:
            cards = "".join(card(each, entries[each.id]) for each in mine)
            parts.append(f"<section><h2>{escape(section)}</h2>{cards}</section>")
    rows = "".join(
        f'<li><span class="sign">{VERDICTS[entries[each.id].finding.verdict]}</span> '
        f'<a href="#{each.id}">{escape(each.title)}</a></li>'
        for each in known
    )
    return PAGE.format(
        title=escape(TITLE), style=_style(), summary=summary, total=len(known), contents=rows,
        cards="".join(parts),
    )  # fmt: skip


def _style() -> str:
    """Cards in light and, where the reader's system is dark, in dark."""
    light = sheet()
    lines = [line for line in light.splitlines() if line.startswith(".dark ")]
    dark = "\n".join(line.removeprefix(".dark ") for line in lines)
    return f"{light}{PAPER}@media screen and (prefers-color-scheme: dark) {{\n{DARK}{dark}\n}}\n"


PAPER = """
body { margin: 0 auto; max-width: 64rem; padding: 24px 16px; background: #fff; }
h1 { font-size: 24px; line-height: 1.2; } h2 { font-size: 19px; margin: 28px 0 10px; }
.contents { columns: 2 22rem; padding: 0; list-style: none; font-size: 14px; }
.contents li { break-inside: avoid; padding: 1px 0; }
.contents .sign { color: var(--muted); }
"""
DARK = """
body { background: #14181c; }
.claims { --ink: #eceff1; --muted: #a7b0b8; --line: #3a434a; --raised: #1d2328; --link: #56b4e9; }
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
 img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body class="claims">
<main>
<h1>{title}</h1>
<p>Of {total} claims of the paper (arXiv 2605.11196) and of its README: {summary}. Each is tested
the way its authors would accept; where their code differs from their text, both are tested. Every
verdict is computed by a check that anyone can run: <code>vla claims run ID</code>. In pictures,
hollow marks and dashes are what the paper prints.</p>
<ol class="contents">{contents}</ol>
{cards}
</main>
</body>
</html>
"""
