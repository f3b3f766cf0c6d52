"""One claim of the paper or the README, and the register of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vla.claims.evidence import Evidence
from vla.claims.finding import Finding
from vla.errors import ArgumentError, require_choice

SECTIONS = (
    "1 Introduction", "3 Method", "4 Theory", "5 Setup", "6 Results", "7 Analysis",
    "8 Limitations", "A Derivation", "B Tables", "README",
)  # fmt: skip
"""Where a claim stands, for the filter."""

BUDGETS = ("cheap", "cpu", "full")

Check = Callable[[Evidence], Finding]


class Link(NamedTuple):
    """A prepared scene of an app in which the claim can be seen to hold or not."""

    words: str
    app: str
    """``step``, ``stability`` or ``whitening``; or a folder of the repository, as it stands."""
    scene: str


GPU_MINUTES = {
    "figure5": 2, "table10": 2.5, "table13": 1.5, "table4": 4, "table7": 0.5,
}  # fmt: skip
"""Rounded up from what their commands printed (``data/runs/README.md``: one H200, 2026-11-30). The
other presets haven't been run to their end; 10 stands for them."""


@dataclass(frozen=True)
class Trained:
    """The runs a claim rests on, and how to repeat some or all of them."""

    preset: str
    sample: tuple[tuple[str, object], ...] = ()
    """Fields of the one run, or the few, that ``--budget cpu`` trains again here."""
    cpu_minutes: float = 5.0
    """About what that takes on one core of a quiet CPU."""

    @property
    def gpu_minutes(self) -> float:
        """About what the whole preset takes on one H200, 16 runs at once."""
        return GPU_MINUTES.get(self.preset, 10.0)


@dataclass(frozen=True)
class Claim:
    """What is claimed, where, and what decides it."""

    id: str
    title: str
    words: str
    """As the source has them."""
    place: str
    section: str
    needs: str
    """What it would take to be true."""
    check: Check | None
    reason: str = ""
    """Why there is no check, where there is none."""
    seconds: float = 0.1
    """About what the check takes on one CPU core."""
    trained: Trained | None = None
    longer: str = ""
    """What ``--budget cpu`` does more, for a claim that trains nothing; empty: nothing."""
    longer_seconds: float = 0.0
    """About what that takes; 0: 20 times as long."""
    links: tuple[Link, ...] = field(default=())

    def __post_init__(self) -> None:
        require_choice("section", self.section, SECTIONS)
        if (self.check is None) != bool(self.reason):
            raise ArgumentError("check", self.id, "either a check or the reason why there is none")

    @property
    def budgets(self) -> tuple[str, ...]:
        """Budgets that do something of their own."""
        if self.check is None:
            return ()
        return BUDGETS if self.trained else (BUDGETS[:2] if self.longer else BUDGETS[:1])

    def cost(self, budget: str) -> str:
        """What a budget costs, in words."""
        if budget == "cheap" or not self.trained:
            longer = self.longer_seconds or 20 * self.seconds
            seconds = self.seconds if budget == "cheap" else longer
            return "under 1 s of CPU" if seconds < 1 else f"about {seconds:.0f} s of CPU"
        if budget == "cpu":
            return f"about {self.trained.cpu_minutes:g} min on one CPU core"
        return f"about {self.trained.gpu_minutes:g} min on one H200"


CLAIMS: dict[str, Claim] = {}
"""Every claim by its id, as entered; :func:`ordered` has them in the order of the paper."""


def claim(
    id: str, title: str, *, words: str, place: str, section: str, needs: str,
    seconds: float = 0.1, trained: Trained | None = None, longer: str = "",
    longer_seconds: float = 0.0, links: Sequence[Link] = (),
) -> Callable[[Check], Check]:  # fmt: skip
    """Decorator: the function below is this claim's check."""

    def enter(check: Check) -> Check:
        add(Claim(id, title, words, place, section, needs, check, seconds=seconds,
                  trained=trained, longer=longer, longer_seconds=longer_seconds,
                  links=tuple(links)))  # fmt: skip
        return check

    return enter


def open_claim(
    id: str, title: str, *, words: str, place: str, section: str, needs: str, reason: str
) -> None:
    """Enter a claim that nothing here can decide, with the reason."""
    add(Claim(id, title, words, place, section, needs, None, reason))


def add(new: Claim) -> None:
    """Enter a claim. Raises ``ValueError`` for an id that is taken."""
    if new.id in CLAIMS:
        raise ArgumentError("id", new.id, "an id that no other claim has")
    CLAIMS[new.id] = new


def ordered() -> list[Claim]:
    """Every claim, by section of the paper."""
    return sorted(CLAIMS.values(), key=lambda each: SECTIONS.index(each.section))


def get(id: str) -> Claim:
    """The claim of this id; :class:`~vla.errors.ArgumentError` with near ones if there is none."""
    if id not in CLAIMS:
        near = [known for known in CLAIMS if id and (id in known or known in id)]
        wanted = f"an id of the ledger, such as {', '.join(near[:4] or list(CLAIMS)[:4])}"
        raise ArgumentError("claim", id, wanted, "`vla claims` lists them.")
    return CLAIMS[id]
