"""The laboratory's front page: which question each app answers, a tour, and a rule of one's own.

Plain HTML without scripts. The pictures are taken by ``python -m vla.bench.app --shots docs``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

if TYPE_CHECKING:
    from vla.lab import App, RuleFile


class Stop(NamedTuple):
    """One stop of the tour: a prepared scene of an app, what to do there, and what one sees."""

    slug: str
    scene: str
    """The prepared scene's name."""
    do: str
    see: str = ""
    """Empty: the scene's own answer."""


PREPARED = {
    "step": "vla.scene.presets:PRESETS",
    "whitening": "vla.scene.whitening:WHITENING",
    "stability": "vla.scene.stability:STABILITY",
    "ablations": "vla.scene.ablations:ABLATIONS",
    "sweeps": "vla.scene.sweeps:SWEEPS",
    "kernels": "vla.scene.kernels:KERNELS",
    "blame": "vla.scene.blame:prepared",
    "claims": "vla.scene.claims:VIEWS",
}
"""Where each app's prepared scenes are, by the app's place in the address."""

TOUR = (
    Stop("step", "overwrite", "Press the space bar and watch the two questions at the end."),
    Stop("whitening", "claim", "Drag the arrow k2 towards k1 and watch α̂ turn the other way."),
    Stop("stability", "proposition", "Compare the dots with the dashed line at 1."),
    Stop(
        "ablations", "norm", "Compare the filled with the hollow marks on the right.",
        "Each mark is a recorded training; the answer under the question is computed from them.",
    ),
    Stop(
        "sweeps", "capacity", "Select a filled point.",
        "How that run was learned, and which commit and device it is from.",
    ),
    Stop(
        "kernels", "crossing", "Follow the grey line to where it passes the green one.",
        "The lengths between which the crossing was measured, written above it.",
    ),
    Stop("blame", "write", "Press “step it” beside the first write."),
    Stop("claims", "proposition-2", "Press “Run it here”."),
)  # fmt: skip
"""The five-minute tour. Stops whose app or scene isn't there are left out."""

OWN_RULE = """from dataclasses import dataclass
from vla.rules import Rule, State, Write, register
from vla.rules.base import matvec, outer


@register
@dataclass(frozen=True)
class HalfDelta(Rule):
    name = "half_delta"
    title = "half a delta rule"
    equation = "S ← S + ½ (v − S k) kᵀ"
    source = "README"
    colour = "#CC79A7"

    def step(self, state, token):
        error = token.v - matvec(state.S, token.k)
        write = Write(k=token.k, v=token.v, error=error, gain=token.k / 2)
        return State(S=state.S + outer(error, write.gain), step=state.step + 1, write=write)
"""
"""A rule file, as the README has it."""


@cache
def prepared(slug: str) -> Mapping[str, Any]:
    """The prepared scenes of an app, by name; none for an app that has none."""
    module, _, name = PREPARED.get(slug, "").partition(":")
    found = getattr(importlib.import_module(module), name) if module else {}
    return found() if callable(found) else found


def link(stop: Stop) -> str:
    """The address of a stop, as seen from the front page."""
    query = urlencode(prepared(stop.slug)[stop.scene].scene.to_query())
    return f"{stop.slug}/?{query}" if query else f"{stop.slug}/"


def tour(apps: Sequence[App]) -> list[Stop]:
    """The stops whose app and scene are there: some scenes need recorded data."""
    there = {app.slug for app in apps}
    return [stop for stop in TOUR if stop.slug in there and stop.scene in prepared(stop.slug)]


def home(
    apps: Sequence[App], *, pictures: Sequence[str] = (), rule_files: Sequence[RuleFile] = ()
) -> str:
    """The page. ``pictures`` are the names of files that the server has under ``pictures/``."""
    parts = {
        "LOADED": _loaded(rule_files),
        "CARDS": "\n".join(_card(app, pictures) for app in apps),
        "TOUR": _tour(apps),
        "CODE": escape(OWN_RULE),
    }
    body = BODY
    for name, part in parts.items():
        body = body.replace(f"<!--{name}-->", part)
    return HEAD + body + FOOT


def too_long(length: int) -> str:
    """The page that stands for an address whose query has so many bytes, too many to open."""
    body = (
        "<main><h1>This address is too long</h1>"
        f"<p>Its scene takes {length} characters, more than any scene of the laboratory needs. "
        '<a href="?">Open this app on its first scene</a> or <a href="../">see all apps</a>.</p>'
        "</main>"
    )
    return HEAD + body + FOOT


def _card(app: App, pictures: Sequence[str]) -> str:
    return (
        f'<li><a href="{app.slug}/">{_picture(app, pictures)}{escape(app.title)}</a>'
        f"<p>{escape(app.question)}</p></li>"
    )


def _picture(app: App, pictures: Sequence[str]) -> str:
    light, dark = f"{app.slug}.png", f"{app.slug}-dark.png"
    if light not in pictures:
        return ""
    source = f'<source srcset="pictures/{dark}" media="(prefers-color-scheme: dark)">'
    image = f'<img src="pictures/{light}" width="320" height="200" alt="" loading="lazy">'
    return f"<picture>{source if dark in pictures else ''}{image}</picture>"


def _tour(apps: Sequence[App]) -> str:
    stops = tour(apps)
    if not stops:
        return ""
    titles = {app.slug: app.title for app in apps}
    items = "\n".join(_stop(stop, titles[stop.slug]) for stop in stops)
    return (
        '<section id="tour"><h2>Five minutes</h2><p>Each link opens a prepared scene; '
        f"“All apps” at its top right comes back here.</p><ol>{items}</ol></section>"
    )


def _stop(stop: Stop, title: str) -> str:
    scene = prepared(stop.slug)[stop.scene]
    return (
        f'<li><a href="{escape(link(stop))}">{escape(title)}: {escape(scene.title)}</a> '
        f"<p>{escape(scene.question)}</p>"
        f"<p><b>Do:</b> {escape(stop.do)} <b>See:</b> {escape(stop.see or scene.answer)}</p></li>"
    )


def _loaded(rule_files: Sequence[RuleFile]) -> str:
    if not rule_files:
        return "<p>No rule file is loaded now.</p>"
    return "".join(
        f'<p class="loaded" role="note">Loaded now from {escape(str(loaded.path))}: '
        f"<b>{escape(', '.join(loaded.names))}</b>. The file runs with the rights of the user "
        "who opened the laboratory.</p>"
        for loaded in rule_files
    )


HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>VLA laboratory</title>
<style>
  :root { --ink: #1b1f23; --soft: #5a626a; --paper: #fff; --raised: #f4f6f8; --line: #d5dade;
          --link: #0062a3; --note: #fff2c2 }
  @media (prefers-color-scheme: dark) {
    :root { --ink: #eceff1; --soft: #a7b0b8; --paper: #14181c; --raised: #1d2328; --line: #2b3238;
            --link: #56b4e9; --note: #4a3f14 }
  }
  * { box-sizing: border-box }
  body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1.25rem 3rem; background: var(--paper);
         color: var(--ink); font: 16px/1.4 system-ui, "Segoe UI", Arial, sans-serif }
  h1 { font-size: 1.5rem; margin: 0 }
  h2 { font-size: 1.2rem; margin: 2rem 0 .25rem }
  p { margin: 0; color: var(--soft) }
  b { color: var(--ink); font-weight: 600 }
  a { color: var(--link); font-weight: 600 }
  a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
  .apps { list-style: none; padding: 0; margin: 1rem 0 0; display: grid; gap: 1rem 1.25rem;
          grid-template-columns: repeat(auto-fill, minmax(min(16rem, 100%), 1fr)) }
  .apps a { text-decoration: none }
  .apps a:is(:hover, :focus-visible) { text-decoration: underline }
  .apps img { display: block; width: 100%; height: auto; aspect-ratio: 8 / 5; object-fit: cover;
              object-position: top left; border: 1px solid var(--line); border-radius: 6px;
              margin-bottom: .4rem }
  .apps p { font-size: .95rem }
  section { max-width: 48rem }
  section ol { padding-left: 1.6rem }
  section li { padding: .35rem 0 }
  section > p { margin-top: .4rem }
  pre { background: var(--raised); border: 1px solid var(--line); border-radius: 6px;
        padding: .75rem; overflow-x: auto; font-size: .85rem }
  code { font-family: ui-monospace, "DejaVu Sans Mono", monospace }
  .loaded { background: var(--note); color: var(--ink); padding: .4rem .6rem; border-radius: 6px;
            overflow-wrap: anywhere }
</style>
</head>
<body>
"""

BODY = """<header>
<h1>Linear attention as recursive least squares</h1>
<p>A memory you can step, break and measure. First time here? <a href="#tour">Take five
minutes.</a></p>
</header>
<main>
<ul class="apps">
<!--CARDS-->
</ul>
<!--TOUR-->
<section id="own-rule">
<h2>A rule of your own</h2>
<!--LOADED-->
<p>A rule is one step. Save this as <code>mine.py</code>, stop the laboratory and start it with
<code>vla lab --rule mine.py</code>: the rule is then among the rules of every app that runs
rules.</p>
<pre tabindex="0" aria-label="mine.py"><code><!--CODE--></code></pre>
<p>A rule file is Python and runs with your rights: it can read and change whatever you can. So it
is off unless the command line names it; no page and no link can load one. Load only what you
trust.</p>
</section>
</main>
"""

FOOT = """</body>
</html>
"""
