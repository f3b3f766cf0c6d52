"""Run rules over one stream and keep what every figure needs."""

from vla.trace.describe import describe
from vla.trace.file import load, save, to_csv
from vla.trace.fork import Fork, fork, record_fork
from vla.trace.model import Branch, Lane, Trace
from vla.trace.recorder import record
from vla.trace.rounding import with_rounding

__all__ = [
    "Branch", "Fork", "Lane", "Trace", "describe", "fork", "load", "record", "record_fork", "save",
    "to_csv", "with_rounding",
]  # fmt: skip
