"""Run rules over one stream and keep what every figure needs."""

from vla.trace.describe import describe
from vla.trace.file import load, save, to_csv
from vla.trace.model import Lane, Trace
from vla.trace.recorder import record

__all__ = ["Lane", "Trace", "describe", "load", "record", "save", "to_csv"]
