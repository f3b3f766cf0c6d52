"""The ledger as an app: which cards are shown, and checks run again behind the page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import anywidget
import torch
import traitlets

from vla.claims import CLAIMS, SECTIONS, VERDICTS, Claim, Entry, current, get, ordered, work
from vla.claims.cards import card, sheet
from vla.claims.finding import counted
from vla.claims.ledger import entry_of
from vla.scene.controls import Controls
from vla.scene.live import DONE, Job, Live
from vla.scene.table import Table, knob
from vla.scene.whitening import Prepared, prepared_of

HERE = Path(__file__).parent
ANY = "all"


@dataclass(frozen=True)
class Claims(Table):
    """Which claims are shown."""

    section: str = knob(
        "section", "choice", ANY, "section", "Show", "Where in the paper, or the README.",
        choices=lambda: (ANY, *SECTIONS),
    )  # fmt: skip
    verdict: str = knob(
        "verdict", "choice", ANY, "verdict", "Show",
        "holds, changed (with a stated change), fails, undecided (not decidable here).",
        choices=lambda: (ANY, *VERDICTS),
    )  # fmt: skip
    words: str = knob(
        "words", "text", "", "words", "Show", "Claims with all of these words.", high=80
    )
    claim: str = knob(
        "claim", "text", "", "one claim", "Show", "Its id: the address then leads to it alone.",
        high=60,
    )  # fmt: skip

    def repaired(self) -> tuple[Claims, list[str]]:
        """Without an id that no claim has."""
        if not self.claim or any(self.claim in id for id in CLAIMS):
            return self, []
        told = f"claim: no claim is called “{self.claim}”; all are shown."
        return self.with_(claim=""), [told]

    def shows(self, each: Claim, entry: Entry) -> bool:
        """Whether a claim is among them."""
        if self.claim:
            return each.id == self.claim if self.claim in CLAIMS else self.claim in each.id
        found = entry.finding
        text = f"{each.id} {each.title} {each.words} {each.place} {found.why}".casefold()
        return (
            self.section in (ANY, each.section)
            and self.verdict in (ANY, found.verdict)
            and all(word in text for word in self.words.casefold().split())
        )


VIEWS: dict[str, Prepared] = {
    "all": Prepared(
        "every claim",
        "Which claims of the paper hold, and what decides each?",
        "One card for each claim of the paper and of its README, with its verdict and one picture.",
        "Every verdict is computed by a check; “Run it here” computes it again before your eyes.",
        Claims(),
    ),
    "proposition-2": Prepared(
        "Proposition 2",
        "Is each step's Jacobian of spectral norm exactly 1?",
        "The claim, the check and the counter-example; the first link shows it moving.",
        "No: it is (1 + √(5 − 4c))/2, which is 1 only where the write points along the key.",
        Claims(claim="proposition-2"),
    ),
    "theory": Prepared(
        "the theory",
        "What of the paper's theory is true?",
        "The propositions, the remark and Table 2, each tested as text and as code.",
        "What bounds the memory is that writes follow the key; the true statements are there.",
        Claims(section="4 Theory"),
    ),
    "fails": Prepared(
        "what fails",
        "Which claims fail, and on what evidence?",
        "Only claims whose check says no, with the numbers that decide.",
        "Each card says what is true instead; many fail by a word, some by training cut short.",
        Claims(verdict="fails"),
    ),
    "holds": Prepared(
        "what holds",
        "Which claims hold as they stand?",
        "Claims that their check confirms without a change.",
        "The README's headline, for one: under the authors' protocol VLA recalls 24 pairs, the "
        "three others don't.",
        Claims(verdict="holds"),
    ),
    "readme": Prepared(
        "the README",
        "What of the authors' README can be decided?",
        "Claims that stand in the README of the authors' code.",
        "Ten million tokens without failure: so it is. Exact recall at ten thousand: no model that "
        "does it is published.",
        Claims(section="README"),
    ),
}


class Cards(anywidget.AnyWidget):
    """All cards, of which some are shown; it tells which button or title was pressed."""

    _esm = "\n".join((HERE / part).read_text("utf-8") for part in ("form.js", "claims.js"))
    _css = sheet() + (HERE / "claims.css").read_text("utf-8")

    cards: Any = traitlets.List().tag(sync=True)
    """``id``, ``section`` and ``html`` of every claim. The HTML is made by ``vla.claims.cards``."""
    fresh: Any = traitlets.Dict().tag(sync=True)
    """HTML of cards that have been decided anew since, by id."""
    shown: Any = traitlets.List().tag(sync=True)
    busy = traitlets.Bool(False).tag(sync=True)
    """Whether a check is under way: its buttons wait."""
    asked: Any = traitlets.List([0, "", ""]).tag(sync=True)
    """A count, ``open`` or a budget, and a claim's id."""


class ClaimsSession:
    """The filter, the entries it filters, and the check under way.

    ``changed`` is called when the words above the cards have something new to show.
    """

    def __init__(self, query: Mapping[str, Any]) -> None:
        self.scene, notes = Claims.from_query(query)
        self.entries = current()
        self.changed: Callable[[ClaimsSession], object] = id
        self.controls = Controls(Claims, VIEWS, values=self.scene.texts(), notes=notes)
        self.live = Live(ended=self._ended)
        self.cards = Cards(cards=[
            {"id": each.id, "section": each.section, "html": self._html(each)} for each in ordered()
        ])  # fmt: skip
        self._asked = 0
        self._tell()

    @property
    def preset(self) -> str:
        """The prepared view on show; empty if it is one's own."""
        return prepared_of(VIEWS, self.scene)

    def shown(self) -> list[Claim]:
        """The claims on show, in the order of the paper."""
        return [each for each in ordered() if self.scene.shows(each, self.entries[each.id])]

    def standing(self) -> str:
        """How many are shown, and how many of each verdict."""
        mine = self.shown()
        told = counted(self.entries[each.id].finding.verdict for each in mine)
        if not mine:
            return f"None of {len(CLAIMS)} claims is like that: loosen the filter on the left."
        return f"{len(mine)} of {len(CLAIMS)} claims: {told}."

    def react(self, told: Mapping[str, Any]) -> None:
        """Take what was done to the filter."""
        if told["serial"] != self.controls.answered:
            scene, notes = Claims.read(told["values"], self.scene)
            self.scene, more = scene.repaired()
            self.controls.notes = notes + more
            self.controls.answered = told["serial"]
            self._tell()
        elif told["wish"]:
            act, _, name = told["wish"].partition(":")
            if act == "open" and name in VIEWS:
                self.open(name)
            elif act == "save":
                self.controls.save("vla-claims.csv", self.to_csv().encode())
            self.controls.wish = ""

    def pressed(self, told: Mapping[str, Any]) -> None:
        """Take what was pressed on a card: its title, or a button that runs its check."""
        count, act, id = told["asked"]
        if count == self._asked or id not in CLAIMS:
            return
        self._asked = count
        if act == "open":
            self.scene = Claims(claim=id)
            self._tell()
        elif act in get(id).budgets:
            self.run(id, act)

    def run(self, id: str, budget: str) -> None:
        """Decide a claim again in a process of its own."""
        title = f"{get(id).title} ({get(id).cost(budget)})"
        self.live.start(work.job, title, key=f"claim {id} {budget}", id=id, budget=budget)
        self.cards.busy = self.live.running

    def open(self, name: str) -> None:
        """Show a prepared view. Raises ``KeyError`` for an unknown one."""
        self.scene = VIEWS[name].scene
        self.controls.notes = []
        self._tell()

    def to_csv(self) -> str:
        """The claims on show with verdict, reason, evidence and date."""
        file = io.StringIO()
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["id", "section", "place", "words", "verdict", "found", "evidence", "date"])
        for each in self.shown():
            entry = self.entries[each.id]
            found = entry.finding
            rows.writerow([each.id, each.section, each.place, each.words, found.verdict, found.why,
                           "; ".join(found.sources), entry.date])  # fmt: skip
        return file.getvalue()

    def report(self) -> str:
        """The whole ledger as one page."""
        from vla.claims.report import page

        return page(self.entries)

    def _ended(self, job: Job) -> None:
        self.cards.busy = False
        if job.status == DONE:
            entry = entry_of(job.result)
            self.entries[entry.id] = entry
            self.cards.fresh = {**self.cards.fresh, entry.id: self._html(get(entry.id))}
        self._tell()

    def _html(self, each: Claim) -> str:
        return card(each, self.entries[each.id], base="../", actions=_buttons(each))

    def _tell(self) -> None:
        with self.controls.hold_sync():
            self.controls.values = self.scene.texts()
            self.controls.preset = self.preset
            self.controls.query = self.scene.to_query()
        self.cards.shown = [each.id for each in self.shown()]
        self.changed(self)


VERBS = {"cheap": "Run it here", "cpu": "Run it here, longer", "full": "Train all of it here"}


def _buttons(each: Claim) -> str:
    """A button for each budget that this machine can spend."""
    offered = [b for b in each.budgets if b != "full" or torch.cuda.is_available()]
    made = "".join(
        f'<button type="button" data-run="{budget}" data-testid="run-{budget}" '
        f'aria-label="{escape(_verb(each, budget))}: {escape(each.title)}">'
        f"{escape(_verb(each, budget))} ({escape(each.cost(budget))})</button>"
        for budget in offered
    )
    return f'<div class="acts">{made}</div>' if made else ""


def _verb(each: Claim, budget: str) -> str:
    return "Train it here" if each.trained and budget == "cpu" else VERBS[budget]
