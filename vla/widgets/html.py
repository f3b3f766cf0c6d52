"""A trace as one HTML file that steps offline: module, style and data inside, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from pathlib import Path
from typing import Any

from vla.errors import require_choice, require_integer
from vla.trace import Trace
from vla.widgets.pack import MAX_BYTES, blob, uneven

HERE = Path(__file__).parent

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%%TITLE%%</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body class="vla-page">
<main id="stepper"></main>
<noscript>This page steps a recorded memory, which needs JavaScript. Nothing is fetched.</noscript>
<script type="application/json" id="stepper-view">%%VIEW%%</script>
<script type="application/octet-stream" id="stepper-data">%%DATA%%</script>
<script type="module">{script}</script>
</body>
</html>
"""


def to_html(
    trace: Trace,
    *,
    step: int = 0,
    title: str = "",
    theme: str = "auto",
    lanes: list[str] | None = None,
    max_bytes: int = MAX_BYTES,
) -> str:
    """The trace in the stepper, as one page that opens from disk with the network off.

    The page states a content security policy: one script, known by its hash, and no requests.
    Words of the trace travel as base64, so none of them can become markup.
    Raises ``ValueError`` for something that isn't a trace, one that is too large, a step outside it
    and an unknown theme.
    """
    require_choice("theme", theme, ("auto", "light", "dark"))
    data = blob(trace, max_bytes=max_bytes)
    require_integer("step", step, low=0, high=len(trace) - 1)
    view = {"step": step, "theme": theme, "lanes": lanes or [], "stretch": uneven(trace)}
    return fill(page_template(), data, view, title or trace.stream.name)


def save_html(trace: Trace, path: str | Path, **options: Any) -> Path:
    """Write :func:`to_html` to ``path`` and return it."""
    path = Path(path)
    path.write_text(to_html(trace, **options), encoding="utf-8")
    return path


@cache
def page_template() -> str:
    """The page with ``%%TITLE%%``, ``%%VIEW%%`` and ``%%DATA%%`` still to fill."""
    style = (HERE / "stepper.css").read_text(encoding="utf-8")
    script = (HERE / "stepper.js").read_text(encoding="utf-8") + "\nmountPage(document);\n"
    return _PAGE.format(policy=_policy(script), style=style, script=script)


def fill(template: str, data: bytes, view: dict[str, Any], title: str) -> str:
    """The template with its three places filled; title and view are escaped."""
    parts = {
        "%%TITLE%%": html.escape(title),
        "%%VIEW%%": json.dumps(view).replace("<", "\\u003c"),
        "%%DATA%%": base64.b64encode(data).decode(),
    }
    head, *rest = _split(template, list(parts))
    return head + "".join(value + tail for value, tail in zip(parts.values(), rest, strict=True))


def _split(template: str, marks: list[str]) -> list[str]:
    """The template cut at its marks, so that a mark inside a filled-in word stays a word."""
    pieces = []
    for mark in marks:
        piece, template = template.split(mark, 1)
        pieces.append(piece)
    return [*pieces, template]


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
