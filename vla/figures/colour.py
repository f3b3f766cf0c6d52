"""Colours by WCAG's arithmetic: contrast, and the nearest shade that can be read."""

from __future__ import annotations

from vla.errors import ArgumentError


def rgb(colour: str) -> tuple[float, float, float]:
    """``#RRGGBB`` as three numbers from 0 to 1. Raises ``ValueError`` for anything else."""
    digits = colour.removeprefix("#")
    try:
        if len(digits) != 6 or digits == colour:
            raise ValueError
        return tuple(int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4))  # type: ignore[return-value]
    except ValueError:
        raise ArgumentError("colour", colour, "a hex colour such as '#009E73'") from None


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2: 0 is black, 1 is white."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """WCAG contrast ratio, 1 to 21. Text needs 4.5, lines and marks need 3.

    >>> contrast("#FFFFFF", "#000000")
    21.0
    """
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def mix(first: str, second: str, share: float) -> str:
    """The colour at ``share`` of the way from the first to the second."""
    pairs = zip(rgb(first), rgb(second), strict=True)
    return "#" + "".join(f"{round(255 * (a + share * (b - a))):02X}" for a, b in pairs)


def readable(colour: str, paper: str, at_least: float = 3.0) -> str:
    """``colour``, darkened or lightened just enough for this contrast on ``paper``.

    >>> readable("#0072B2", "#FFFFFF")
    '#0072B2'
    """
    ink = "#000000" if luminance(paper) > 0.18 else "#FFFFFF"
    for step in range(51):
        shade = mix(colour, ink, step / 50)
        if contrast(shade, paper) >= at_least:
            return shade
    return ink
