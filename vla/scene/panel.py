"""The control panel: every knob of a scene as an anywidget, drawn from the scene's own table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from vla.rules import RULES
from vla.rules.vla import VLA
from vla.scene.knob import Knob
from vla.scene.presets import PRESETS
from vla.scene.scene import LAYER, VARIANTS, knobs, lane_title
from vla.tokens import STREAMS

HERE = Path(__file__).parent


class Panel(anywidget.AnyWidget):
    """Controls on one side, texts on the other: it knows how a knob looks and not what it does.

    ``values`` holds every field of a scene as text, under its key in the address. The browser adds
    a ``serial`` to what it sends and waits for ``answered`` before it sends again, so that a
    dragged slider never queues up work.
    """

    _esm = "\n".join((HERE / part).read_text("utf-8") for part in ("form.js", "panel.js"))
    _css = HERE / "panel.css"

    table: Any = traitlets.List().tag(sync=True)
    """The knobs, as :func:`describe` makes them."""
    presets: Any = traitlets.List().tag(sync=True)
    values = traitlets.Dict().tag(sync=True)
    serial = traitlets.Int(0).tag(sync=True)
    answered = traitlets.Int(0).tag(sync=True)
    preset = traitlets.Unicode("").tag(sync=True)
    """The prepared scene that is shown; empty once a knob differs from it."""
    wish = traitlets.Unicode("").tag(sync=True)
    """What was asked for beside the values: ``open:NAME``, ``save`` or ``load``; then cleared."""
    notes = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Messages for the person, shown as plain text."""
    query = traitlets.Dict().tag(sync=True)
    """What the page's address shall say."""
    origin = traitlets.Unicode("").tag(sync=True)
    """Which rule file is loaded, in a sentence."""
    source = traitlets.Unicode("").tag(sync=True)
    """The name of the trace file on show; empty while the scene itself is."""
    upload = traitlets.Bytes(b"").tag(sync=True)
    upload_name = traitlets.Unicode("").tag(sync=True)
    saved = traitlets.Bytes(b"").tag(sync=True)
    """The trace as a file, when ``wish`` was ``save``."""

    def __init__(self, **traits: Any) -> None:
        table = [describe(name, knob) for name, knob in knobs().items() if knob.group != "View"]
        presets = [
            {"name": name, "title": preset.title, "question": preset.question}
            for name, preset in PRESETS.items()
        ]
        super().__init__(table=table, presets=presets, **traits)


def describe(name: str, knob: Knob) -> dict[str, Any]:
    """A knob as plain data for the browser."""
    return {
        "field": name,
        "key": knob.key,
        "kind": knob.kind,
        "group": knob.group,
        "label": knob.label,
        "help": knob.help,
        "default": knob.write(knob.default),
        "shown": knob.shown(knob.default),
        "low": knob.low,
        "high": knob.high,
        "step": knob.step,
        "streams": list(knob.streams),
        "idle": {key: list(values) for key, values in knob.idle.items()},
        "options": [_option(knob, choice) for choice in knob.choices()],
    }


def _option(knob: Knob, choice: str) -> dict[str, str]:
    if knob.key == "rules":
        rule = RULES.get(choice, VLA)
        hollow = choice in (*VARIANTS, LAYER) or "as the" in rule.title
        return {
            "value": choice, "words": lane_title(choice), "colour": rule.colour,
            "hollow": "1" if hollow else "", "stream": LAYER if choice == LAYER else "",
        }  # fmt: skip
    if knob.key == "stream" and choice == LAYER:
        sentence = "Keys and values that one head of a trained model stores, token by token."
        return {"value": choice, "words": "a trained head", "help": sentence}
    if knob.key == "stream":
        return {"value": choice, "words": STREAMS[choice].title, "help": STREAMS[choice].sentence}
    if knob.key == "checkpoint":
        return {"value": choice, "words": _without_digest(choice, knob.choices())}
    return {"value": choice, "words": choice}


def _without_digest(name: str, known: Sequence[str]) -> str:
    """A checkpoint's name without its run's digest, where that tells it apart."""
    short = name.rsplit("-", 1)[0]
    return short if sum(each.rsplit("-", 1)[0] == short for each in known) == 1 else name
