"""Pure functions from a trace or a computed result to a plotly figure.

Every figure takes ``theme_name`` ("light" or "dark"), carries a text that stands in for it
(:func:`alt`), and depends on nothing but its arguments.
"""

from vla.figures.curves import norms, ridge, spectral
from vla.figures.memory import forgetting, ladder, matrices
from vla.figures.theme import alt
from vla.figures.theory import capacity, whitening

__all__ = [
    "alt",
    "capacity",
    "forgetting",
    "ladder",
    "matrices",
    "norms",
    "ridge",
    "spectral",
    "whitening",
]
