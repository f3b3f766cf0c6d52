"""The ledger: every claim of the paper and of its README that can be decided, and what decides it.

>>> from vla.claims import decide, get
>>> decide(get("proposition-2")).verdict
'fails'

A check is a function of :class:`Evidence` (the paper's tables, recorded runs and timings), which
computes its verdict anew each time. ``vla claims`` lists them, ``vla claims run ID`` runs one.
"""

# Each module enters its claims as it is imported.
from vla.claims import (  # noqa: F401  # noqa: F401
    ablation,
    analysis,
    consistency,
    method,
    propositions,
    readme,
    recall,
    speed,
    stability,
)
from vla.claims.claim import BUDGETS, CLAIMS, SECTIONS, Claim, Link, get, ordered
from vla.claims.evidence import Evidence, NoEvidence
from vla.claims.finding import (
    CHANGED,
    FAILS,
    HOLDS,
    UNDECIDED,
    VERDICTS,
    Chart,
    Finding,
    Grid,
    Series,
)  # fmt: skip
from vla.claims.ledger import Entry, current, decide, examine

__all__ = [
    "BUDGETS", "CHANGED", "CLAIMS", "FAILS", "HOLDS", "SECTIONS", "UNDECIDED", "VERDICTS",
    "Chart", "Claim", "Entry", "Evidence", "Finding", "Grid", "Link", "NoEvidence", "Series",
    "current", "decide", "examine", "get", "ordered",
]  # fmt: skip
