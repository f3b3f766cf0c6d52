"""A table on a page: sorted by any column, searched, rows picked; all of it told to Python."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import traitlets

HERE = Path(__file__).parent


class Column(NamedTuple):
    """One column: its key in a row, its heading, and whether numbers stand in it."""

    key: str
    label: str
    number: bool = False
    help: str = ""


class Entry(NamedTuple):
    """One row: a name that stays, values to sort by, and the words that are shown for them."""

    id: str
    values: Mapping[str, Any]
    words: Mapping[str, str]


class Sheet(anywidget.AnyWidget):
    """A sortable table. ``sort`` is a column's key, ``-`` before it for the largest first.

    ``picked`` holds the ids of the picked rows; with ``picks=False`` rows can't be picked. The page
    copies what a person does into ``sort``, ``find`` and ``picked``.
    """

    _esm = "\n".join((HERE / part).read_text("utf-8") for part in ("form.js", "sheet.js"))
    _css = HERE / "sheet.css"

    columns: Any = traitlets.List().tag(sync=True)
    entries: Any = traitlets.List().tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    empty = traitlets.Unicode("Nothing to show.").tag(sync=True)
    sort = traitlets.Unicode("").tag(sync=True)
    find = traitlets.Unicode("").tag(sync=True)
    picked = traitlets.List(traitlets.Unicode()).tag(sync=True)
    picks = traitlets.Bool(True).tag(sync=True)

    def show(self, columns: Sequence[Column], entries: Iterable[Entry], caption: str) -> None:
        """Put another table in its place; sorting and picks stay."""
        with self.hold_sync():
            self.columns = [column._asdict() for column in columns]
            self.entries = [_plain(entry, columns) for entry in entries]
            self.caption = caption


def _plain(entry: Entry, columns: Sequence[Column]) -> dict[str, Any]:
    return {
        "id": entry.id,
        "values": [_number(entry.values.get(column.key)) for column in columns],
        "words": [entry.words.get(column.key, "") for column in columns],
    }


def _number(value: Any) -> Any:
    """JSON has no NaN; what has no value is sorted last."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(columns: Sequence[Column], entries: Iterable[Entry]) -> str:
    """The table's values, unrounded, under the columns' keys."""
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow([column.key for column in columns])
    for entry in entries:
        rows.writerow([_cell(entry.values.get(column.key)) for column in columns])
    return file.getvalue()


def _cell(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value
