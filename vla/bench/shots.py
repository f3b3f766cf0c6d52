"""Pictures of every app, light and dark: ``python -m vla.bench.app --shots docs``.

The whole window for the README, and the picture alone, small, for the laboratory's front page.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vla import lab
from vla.bench.app import Case, context, visit
from vla.scene import Scene

SCENES = {"step": Scene(step=len(Scene().stream())).to_query()}
"""Scenes that show more than the one on which an app opens."""
CARD = (480, 300)
LOOKS = {"light": "", "dark": "-dark"}


def take(address: str, apps: Sequence[lab.App], folder: Path, chromium: str = "") -> None:
    """Write ``NAME.png`` and ``NAME-dark.png`` into the folder and the front page's pictures."""
    cards = lab.pictures_folder()
    for each in (folder, cards):
        each.mkdir(parents=True, exist_ok=True)
    for look, suffix in LOOKS.items():
        with context(chromium, color_scheme=look) as made:
            for app in apps:
                whole, card = _pictures(made, address, app)
                for place, picture in ((folder, whole), (cards, card)):
                    path = place / f"{app.slug}{suffix}.png"
                    path.write_bytes(picture)
                    print(f"{path}  {len(picture) / 1024:.0f} KiB")


def _pictures(made: Any, address: str, app: lab.App) -> Iterator[bytes]:
    """The window, and the upper left of its picture, both with few colours."""
    from PIL import Image

    page, _ = visit(made, address, Case(app.slug, "", SCENES.get(app.slug, {})))
    page.evaluate("window.vlaPage.settled()")
    whole = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    part = page.evaluate("window.vlaPage.main()")
    page.close()
    left, top = max(part["left"], 0), max(part["top"], 0)
    width = min(part["width"], whole.width - left, (whole.height - top) * CARD[0] / CARD[1])
    box = (left, top, left + width, top + width * CARD[1] / CARD[0])
    yield _png(whole)
    yield _png(whole.resize(CARD, Image.Resampling.LANCZOS, box=box))


def _png(picture: Any) -> bytes:
    file = io.BytesIO()
    picture.quantize(256, dither=0).save(file, "PNG", optimize=True)
    return file.getvalue()
