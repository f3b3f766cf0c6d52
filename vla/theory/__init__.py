"""Formulas with their checks: the transition's norm, whitening, recall under load."""

from vla.theory.capacity import RecallCurve, recall_curve, ridge_curve
from vla.theory.jacobian import cosine_floor, step_norm
from vla.theory.whitening import (
    OverlapGrid,
    TwoPairs,
    overlap,
    overlap_grid,
    overlap_measured,
    two_pairs,
)

__all__ = [
    "OverlapGrid",
    "RecallCurve",
    "TwoPairs",
    "cosine_floor",
    "overlap",
    "overlap_grid",
    "overlap_measured",
    "recall_curve",
    "ridge_curve",
    "step_norm",
    "two_pairs",
]
