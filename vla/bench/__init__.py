"""Benchmarks of the operations (``vla bench``), and their records, plottable without a GPU.

``python -m vla.bench.trace``, ``.app`` and ``.errors`` measure other things.
"""

import argparse
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``vla bench``."""
    from vla.bench import run

    run.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """``vla bench``: measure what runs here, print it, say what was left out."""
    from vla.bench import run

    return run.main(args)


def load(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a recorded run (:func:`vla.bench.record.load`).

    :raises ValueError: naming the file and what is wrong with it.
    """
    from vla.bench.record import load as load_record

    return load_record(path)
