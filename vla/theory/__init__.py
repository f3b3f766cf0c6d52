"""Formulas with their checks: the transition's norm, whitening, recall under load."""

from vla.theory.capacity import RecallCurve, recall_curve, ridge_curve
from vla.theory.growth import growth_exponent, random_stream
from vla.theory.jacobian import cosine_floor, step_norm
from vla.theory.whitening import (
    OverlapGrid,
    TwoPairs,
    overlap,
    overlap_grid,
    overlap_measured,
    twins,
    two_pairs,
)

__all__ = [
    "OverlapGrid",
    "RecallCurve",
    "TwoPairs",
    "cosine_floor",
    "growth_exponent",
    "overlap",
    "overlap_grid",
    "overlap_measured",
    "random_stream",
    "recall_curve",
    "ridge_curve",
    "step_norm",
    "twins",
    "two_pairs",
]
