"""What every app's scene shares: one table of knobs, read from an address and written there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from vla.scene.knob import Knob

FOREIGN = {
    "file", "access_token", "refresh_token", "session_id", "view-as", "show-chrome", "kiosk",
    "include-code", "theme",
}  # fmt: skip
"""Keys of an address that belong to the server of the page."""

MAX_QUERY = 4000
"""Longest value that is looked at."""

_Table = TypeVar("_Table", bound="Table")


def knob(key: str, kind: str, default: Any, label: str, group: str, text: str, **more: Any) -> Any:
    """A field of a :class:`Table`; arguments as :class:`vla.scene.Knob` has them."""
    known = Knob(key, kind, default, label, text, group, **more)
    return field(default=default, metadata={"knob": known})


@dataclass(frozen=True)
class Table:
    """A frozen dataclass whose fields are all made by :func:`knob`."""

    @classmethod
    def knobs(cls) -> dict[str, Knob]:
        """Every field and what it may be."""
        return {f.name: f.metadata["knob"] for f in fields(cls)}

    @classmethod
    def from_query(cls: type[_Table], query: Mapping[str, Any]) -> tuple[_Table, list[str]]:
        """A scene from an address, and a message for everything repaired. Never raises."""
        scene, messages = cls.read(query)
        scene, more = scene.repaired()
        return scene, messages + more

    @classmethod
    def read(
        cls: type[_Table], query: Mapping[str, Any], before: _Table | None = None
    ) -> tuple[_Table, list[str]]:
        """Each value by itself. One that means nothing leaves what ``before`` (or default) has."""
        by_key = {known.key: (name, known) for name, known in cls.knobs().items()}
        values, messages = {}, []
        for key, given in query.items():
            if key in by_key:
                name, known = by_key[key]
                values[name], repair = known.read(_last(given), getattr(before, name, None))
            elif key not in FOREIGN:
                repair = f"The address has a part that means nothing here: “{str(key)[:40]}”."
            else:
                continue
            messages += [repair] if repair else []
        return (replace(before, **values) if before else cls(**values)), messages

    def repaired(self: _Table) -> tuple[_Table, list[str]]:
        """The nearest scene that can be shown, and why it differs from this one."""
        return self, []

    def to_query(self) -> dict[str, str]:
        """What differs from the default scene, as texts. ``from_query`` gives the scene back."""
        texts = self.texts()
        return {
            known.key: texts[known.key]
            for name, known in self.knobs().items()
            if getattr(self, name) != known.default
        }

    def texts(self) -> dict[str, str]:
        """Every field as :meth:`read` takes it."""
        return {known.key: known.write(getattr(self, n)) for n, known in self.knobs().items()}

    def with_(self: _Table, **changes: Any) -> _Table:
        """The same scene with some fields changed."""
        return replace(self, **changes)


def _last(given: Any) -> str:
    if isinstance(given, Sequence) and not isinstance(given, str):
        given = given[-1] if given else ""
    return str(given)[: MAX_QUERY + 1]
