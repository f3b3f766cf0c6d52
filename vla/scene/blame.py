"""Scenes of the blame app, prepared questions, and the session that takes answers apart."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import torch

from vla import trained
from vla.errors import ArgumentError
from vla.figures import blame as figures
from vla.figures.theme import alt, three
from vla.scene.controls import Controls
from vla.scene.keep import Keep, as_page
from vla.scene.page import Cell
from vla.scene.table import Table, knob
from vla.scene.whitening import Prepared, prepared_of
from vla.theory.blame import BY, Finding, Query, Rival, find, under_other_rules
from vla.trained import Trained

MAX_UPLOAD = 64 * 2**20
HEADS = ("all", *map(str, range(16)))
LAYERS = ("auto", *map(str, range(8)))
LISTED = 3
"""Writes at each end of the table: the most harmful and the most helpful."""


def _first() -> str:
    return _like("vla_authors_n16_conv") or _like("delta") or next(iter(trained.names()), "none")


def _like(model: str) -> str:
    """The first checkpoint of this model, by the start of its name; empty if none is here."""
    return next((name for name in trained.names() if name.startswith(model)), "")


@dataclass(frozen=True)
class Blame(Table):
    """Which answer of which model is taken apart, and where."""

    checkpoint: str = knob(
        "checkpoint", "choice", _first(), "model", "Model",
        "A trained checkpoint, by file name.", choices=lambda: trained.names() or ["none"],
    )  # fmt: skip
    tokens: str = knob(
        "tokens", "text", "", "Your sequence", "Row",
        "Token numbers, key value key value … | then queries: 5 17 9 3 | 5 9. Empty: drawn.",
        high=2000,
    )  # fmt: skip
    pairs: int = knob(
        "pairs", "int", 0, "pairs", "Row", "Pairs of a drawn row; 0: as many as in training.",
        high=trained.MAX_PAIRS, step=1,
    )  # fmt: skip
    seed: int = knob("seed", "int", 1, "seed", "Row", "Same seed, same drawn row.",
                     high=9999, step=1)  # fmt: skip
    ask: int = knob(
        "ask", "int", 0, "query", "Row",
        "Which query of the row: 1 is the first; 0: the one that is answered worst.", high=256,
        step=1,
    )  # fmt: skip
    layer: str = knob(
        "layer", "choice", "auto", "layer", "Memory",
        "Whose memory is taken apart, from 0; auto: where leaving one write out changes most.",
        choices=lambda: LAYERS,
    )  # fmt: skip
    head: str = knob(
        "head", "choice", "all", "head", "Memory",
        "Leave a write out of all heads of the layer or of one.", choices=lambda: HEADS,
    )  # fmt: skip
    by: str = knob(
        "by", "choice", "write", "parts", "Memory",
        "By write: residual × gain, corrections by themselves. By value: corrections are given to "
        "the values they correct, as attention's weights are.", choices=lambda: BY,
    )  # fmt: skip

    def to_query(self) -> dict[str, str]:
        """As for every table; the checkpoint is always named: the default is whichever is here."""
        query = super().to_query()
        return {"checkpoint": self.checkpoint, **query} if trained.names() else query

    def repaired(self) -> tuple[Blame, list[str]]:
        """A checkpoint that is here, all else cut to what it has; a row and a query to read."""
        scene, messages = self.within(None)
        if not trained.names():
            return scene, messages
        try:
            model = trained.load(scene.checkpoint)
        except ArgumentError:
            return scene, messages
        try:
            places = scene.places(model)
        except ArgumentError as error:
            messages = [*messages, f"{error} A drawn row is shown instead."]
            scene = scene.with_(tokens="")
            places = scene.places(model)
        if scene.ask > len(places):
            messages = [*messages, f"ask: the row has {len(places)} queries; the worst is shown."]
            scene = scene.with_(ask=0)
        return scene, messages

    def within(self, model: Trained | None) -> tuple[Blame, list[str]]:
        """Cut to what a model has, the scene's own unless one is given."""
        if model is None and not trained.names():
            return self, []
        try:
            model = model or trained.load(self.checkpoint)
        except ArgumentError as error:
            return self, [str(error)]
        changes: dict[str, Any] = {}
        messages = []
        if self.pairs > model.most_pairs:
            changes["pairs"] = model.most_pairs
            messages.append(f"pairs: {model.name} takes at most {model.most_pairs}.")
        if self.layer != "auto" and int(self.layer) >= model.layers:
            changes["layer"] = "auto"
            messages.append(f"layer: {model.name} has {model.layers}, counted from 0.")
        if self.head != "all" and int(self.head) >= model.heads:
            changes["head"] = "all"
            messages.append(f"head: {model.name} has {model.heads}, counted from 0.")
        return self.with_(**changes), messages

    def row(self, model: Trained) -> tuple[int, ...]:
        """The tokens. Raises ``ValueError`` for a text that isn't a row the model can read."""
        if self.tokens.strip():
            return trained.parse_row(model, self.tokens)
        return trained.row_of(model, pairs=self.pairs, seed=self.seed)

    def places(self, model: Trained) -> list[int]:
        """Where the row asks. Raises ``ValueError`` as :meth:`row`, and for one without a query."""
        source = trained.asked(model.task, self.row(model))
        found = [t for t, place in enumerate(source) if place >= 0]
        if not found:
            remedy = "End with | and a key that stands before it, such as 5 17 9 3 | 5."
            raise ArgumentError("tokens", self.tokens.strip(), "a row that asks for a key", remedy)
        return found


class Case(NamedTuple):
    """A row, one query of it, and what became of it."""

    model: Trained
    row: tuple[int, ...]
    places: list[int]
    """Where the row asks."""
    place: int
    """The query that is taken apart."""
    found: Finding
    rivals: list[Rival]

    @property
    def symbols(self) -> list[str]:
        """How every token of the vocabulary is written."""
        task = self.model.task
        return [task.symbol(token) for token in range(self.model.model.config.vocab)]

    def roles(self) -> list[str]:
        """What each token up to the query is, in a few words."""
        return roles(self.model, self.row)[: self.place + 1]

    def marks(self) -> list[str]:
        """What stands under the axis: pairs, the separator, and queries of the asked key."""
        asked, names = self.row[self.place], roles(self.model, self.row)
        return [
            name.removeprefix("value of ") if name.startswith("value of ")
            else self.symbols[self.row[t]] if name == "separator"
            else f"? {self.symbols[asked]}" if name.startswith("query") and self.row[t] == asked
            else ""
            for t, name in enumerate(names[: self.place + 1])
        ]  # fmt: skip


def roles(model: Trained, row: tuple[int, ...]) -> list[str]:
    """Each token of a row in a few words: key, value, separator, query or filler."""
    task, source = model.task, trained.asked(model.task, row)
    symbol = [task.symbol(token) for token in row]
    shared = task.name != "mqar_fair"
    bar = row.index(task.separator) if shared and task.separator in row else len(row)
    end = min(bar, next((t for t, place in enumerate(source) if place >= 0), len(row)))
    names = []
    for t, word in enumerate(symbol):
        if source[t] >= 0:
            names.append(f"query {word}")
        elif shared and row[t] == task.separator:
            names.append("separator")
        elif t >= end or (t % 2 == 0 and t + 1 >= end):
            names.append(f"{word}, neither stored nor asked")
        elif t % 2:
            names.append(f"value of {symbol[t - 1]} → {word}")
        else:
            names.append(f"key of {word} → {symbol[t + 1]}")
    return names


@lru_cache(maxsize=4)
def _double(model: Trained) -> Any:
    """The checkpoint's model in float64, so that what is said is exact to rounding."""
    import copy

    return copy.deepcopy(model.model).double()


def examine(model: Trained, scene: Blame) -> Case:
    """Take one answer apart. Raises ``ValueError`` for a row without a query, or one too long."""
    row = scene.row(model)
    source, places = trained.asked(model.task, row), scene.places(model)
    place = _place(model, row, source, places, scene.ask)
    head = None if scene.head == "all" else int(scene.head)
    tokens, right = torch.tensor(row[: place + 1]), row[source[place]]
    layers = range(model.layers) if scene.layer == "auto" else [int(scene.layer)]
    tried = [find(Query(_double(model), tokens, layer, head), right, by=scene.by)
             for layer in layers]  # fmt: skip
    found = max(tried, key=lambda each: float(each.effect.abs().max()))
    return Case(model, row, places, place, found, under_other_rules(found.query, right))


@torch.no_grad()
def _place(
    model: Trained, row: tuple[int, ...], source: list[int], places: list[int], ask: int
) -> int:
    if ask > len(places):
        raise ArgumentError("query", ask, f"at most {len(places)}, the row's queries")
    if ask:
        return places[ask - 1]
    log_p = _double(model)(torch.tensor(row)[None])[0].log_softmax(-1)
    return min(places, key=lambda t: float(log_p[t, row[source[t]]]))


class Line(NamedTuple):
    """One row of a table: its name, a word, its numbers, and a link."""

    title: str
    word: str
    cells: list[Cell]
    link: str = ""


class BlameSession:
    """The last answer that could be taken apart; what can't becomes a message.

    ``changed`` is called when words, pictures or tables have something new to show.
    """

    def __init__(self, query: Mapping[str, Any]) -> None:
        self.scene, notes = Blame.from_query(query)
        self.look = "light"
        self.changed: Callable[[BlameSession], object] = id
        self.uploaded: Trained | None = None
        self.case: Case | None = None
        self.presets = prepared()
        self.controls = Controls(Blame, self.presets, values=self.scene.texts(), notes=notes)
        self.keep = Keep({"Pictures (HTML)": self.to_page})
        self._show(self.scene, None, notes)

    @property
    def preset(self) -> str:
        """The prepared scene on show; empty if it is one's own."""
        return "" if self.uploaded else prepared_of(self.presets, self.scene)

    def react(self, told: Mapping[str, Any]) -> None:
        """Take what the person did."""
        if told["look"] != self.look:
            self.look = told["look"]
            self.changed(self)
        if told["serial"] != self.controls.answered:
            self._choose(told["values"], told["serial"])
        elif told["wish"]:
            self._obey(told["wish"])

    def open(self, name: str) -> None:
        """Show a prepared scene. Raises ``KeyError`` for an unknown one."""
        self._show(self.presets[name].scene, None, [])

    def load(self, name: str, content: bytes) -> None:
        """Look into a checkpoint from a file. A damaged or foreign one becomes a message."""
        try:
            uploaded = from_bytes(name, content)
        except ArgumentError as error:
            self.controls.notes = [f"{error} The last model stays."]
            return
        scene, notes = self.scene.within(uploaded)
        self._show(scene, uploaded, [f"{name} is shown. A link can't carry a file.", *notes])

    def figures(self) -> tuple[Any, Any]:
        """The answer, and what every write added to it. Needs a case."""
        case = self.case
        assert case is not None
        return (
            figures.answers(case.found, case.symbols, theme_name=self.look),
            figures.writes(case.found, case.marks(), case.roles(), theme_name=self.look),
        )

    def words(self) -> tuple[str, str]:
        """The pictures in words."""
        answer, writes = self.figures()
        return alt(answer), alt(writes)

    def verdict(self) -> str:
        """What became of the query and which write did most to it, in two sentences."""
        if self.case is None:
            return EMPTY
        found, symbols, order = self.case.found, self.case.symbols, self.case.found.ranked()
        asked = symbols[self.case.row[self.case.place]]
        p = three(float(found.log_p[found.right].exp()))
        right, said = symbols[found.right], symbols[found.said]
        start = (
            f"Query {asked} is answered {said}, which is right (p {p})."
            if found.correct
            else f"Query {asked} is answered {said}; right is {right} (p {p})."
        )
        worst, best = order[0], order[-1]
        changed = [three(float(found.log_p_without[t].exp())) for t in (worst, best)]
        names = self.case.roles()
        hurt = (
            f"most in its way is the write of token {worst} ({names[worst]}): without it, "
            f"{changed[0]}."
            if found.effect[worst] > 0
            else "no write is in its way."
        )
        rests = f"It rests most on that of token {best} ({names[best]}): without it, {changed[1]}."
        return f"{start} In layer {found.query.layer}: {hurt} {rests}"

    def writes(self) -> list[Line]:
        """The most harmful and the most helpful writes, each with its step in the stepper."""
        if self.case is None:
            return []
        order = self.case.found.ranked()
        shown = list(dict.fromkeys([*order[:LISTED], *order[-LISTED:]]))
        return [self._write(t) for t in shown]

    def _write(self, t: int) -> Line:
        assert self.case is not None
        found = self.case.found
        name = f"token {t}"
        margin = found.margin(t)
        wanted = margin if found.query.head is None else [margin[found.query.head]]
        cells = [
            Cell(name, "Δ log p(right) without it", float(found.effect[t])),
            Cell(name, "p(right) without it", float(found.log_p_without[t].exp())),
            Cell(name, "logit, right − other", sum(wanted)),
        ]
        return Line(name, self.case.roles()[t], cells, self.step_link(t))

    def step_link(self, token: int) -> str:
        """The address of the step that wrote this token, in the head where it weighed most.

        Empty for a file: the stepper doesn't have it.
        """
        if self.case is None or self.uploaded:
            return ""
        head = self.case.found.query.head
        if head is None:
            sizes = [abs(x) for x in self.case.found.margin(token)]
            head = sizes.index(max(sizes))
        query = {
            "stream": "layer", "checkpoint": self.scene.checkpoint,
            "layer": str(self.case.found.query.layer), "head": str(head),
            "tokens": " ".join(map(str, self.case.row)), "rules": "layer", "step": str(token + 1),
        }  # fmt: skip
        return f"../step/?{urlencode(query)}"

    def worst_link(self) -> str:
        """The address of the write that is most in the way; empty if none is."""
        if self.case is None or self.case.found.effect.max() <= 0:
            return ""
        return self.step_link(self.case.found.ranked()[0])

    def rivals(self) -> list[Line]:
        """The same query under the other rules."""
        if self.case is None:
            return []
        symbols, right = self.case.symbols, self.case.found.right
        lines = []
        for rival in self.case.rivals:
            says = rival.fault or f"{symbols[rival.said]}{' ✓' if rival.said == right else ''}"
            p = Cell(rival.title, "p(right)", float(torch.tensor(rival.log_p).exp()))
            cells = [p, Cell(rival.title, "log p(right)", rival.log_p)]
            lines.append(Line(rival.title, says, cells))
        return lines

    def to_csv(self) -> str:
        """Every token and head: its part, its logits, its effect; then the other rules."""
        file = io.StringIO()
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["token", "symbol", "role", "head", "share_of_read", "logit_right",
                       "logit_other", "effect_log_p", "p_right_without"])  # fmt: skip
        if self.case is None:
            return file.getvalue()
        found, names = self.case.found, self.case.roles()
        for t, name in enumerate(names):
            for h in range(len(found.shares)):
                numbers = [found.shares[h, t], *found.direct[:, h, t], found.effect[t],
                           found.log_p_without[t].exp()]  # fmt: skip
                symbol = self.case.symbols[self.case.row[t]]
                rows.writerow([t, symbol, name, h, *map(float, numbers)])
        rows.writerows(
            ["rule", self.case.symbols[r.said] if r.said >= 0 else "", r.title, "", "", "", "", "",
             float(torch.tensor(r.log_p).exp())]
            for r in self.case.rivals
        )  # fmt: skip
        return file.getvalue()

    def to_page(self) -> tuple[str, bytes]:
        """Both pictures as one page that works offline; without a case, the reason."""
        if self.case is None:
            return "vla-blame.html", f"<p>{EMPTY}</p>".encode()
        answer, writes = self.figures()
        page = as_page(writes).decode()
        second = answer.to_html(include_plotlyjs=False, full_html=False)
        words = f"<p>{self.verdict()}</p>"
        return "vla-blame.html", page.replace("</body>", f"{second}{words}</body>").encode()

    def _choose(self, values: Mapping[str, Any], serial: int) -> None:
        scene, notes = Blame.read(values, self.scene)
        uploaded = self.uploaded if scene.checkpoint == self.scene.checkpoint else None
        scene, more = scene.within(uploaded)
        self.controls.answered = serial
        self._show(scene, uploaded, [*notes, *more], typed=not (notes or more))

    def _obey(self, wish: str) -> None:
        act, _, name = wish.partition(":")
        if act == "open" and name in self.presets:
            self.open(name)
        elif act == "save":
            self.controls.save("vla-blame.csv", self.to_csv().encode())
        self.controls.wish = ""

    def _show(
        self, scene: Blame, uploaded: Trained | None, notes: list[str], *, typed: bool = False
    ) -> None:
        """Take the scene's answer apart. What can't be leaves all as it was and says why."""
        try:
            if uploaded or trained.names():
                self.case = examine(uploaded or trained.load(scene.checkpoint), scene)
            self.scene, self.uploaded = scene, uploaded
        except ArgumentError as error:
            notes = [*notes, f"{error} {'The last picture stays.' if self.case else ''}".strip()]
        with self.controls.hold_sync():
            self.controls.notes = notes
            # What was typed stays under the hand, right or wrong.
            if not typed:
                self.controls.values = self.scene.texts()
            self.controls.preset = self.preset
            self.controls.query = self.scene.to_query()
        self.changed(self)


HINT = (
    "A bar stands at the token that wrote. What it wrote may come from a token before it: a short "
    "convolution, or the layer below, moves keys and values forward. “step it” opens the write in "
    "the stepper, in the head where it weighed most. The last table feeds the layer's own keys, "
    "values and queries to other memories; the weights were trained for the first of them."
)
EMPTY = (
    "No trained checkpoint is here. This trains one in seconds and keeps its weights: "
    "vla sweep one --model delta --task mqar_authors --set task.pairs=8 --set task.vocab=32 "
    "--set model.width=32 --set model.heads=2 --set model.ffn=0 --set model.short_conv=4 "
    "--lr 1e-2 --steps 400 --weights data/checkpoints. Or open a .safetensors file below."
)


def from_bytes(name: str, content: bytes) -> Trained:
    """A checkpoint from a file's content. It holds numbers and texts, no code.

    Raises ``ValueError`` for a file that is too large, damaged, foreign, or of another task.
    """
    if len(content) > MAX_UPLOAD:
        raise ArgumentError("checkpoint", f"{len(content)} bytes", f"at most {MAX_UPLOAD}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "upload.safetensors"
        path.write_bytes(content)
        try:
            return replace(trained.read(path), name=name)
        except ArgumentError as error:
            raise ArgumentError("checkpoint", name, str(error)) from error


def prepared() -> dict[str, Prepared]:
    """The questions that the checkpoints at hand can answer; the first is any model's."""
    found: dict[str, Prepared] = {}
    for name, (model, prose, changes) in QUESTIONS.items():
        if model in trained.names():
            found[name] = Prepared(*prose, Blame(checkpoint=model, **changes))
    if not found and trained.names():
        found["any"] = Prepared(*ANY, Blame(checkpoint=_first()))
    return found


ANY = (
    "the query answered worst",
    "Which stored pair answers, and which one gets in the way?",
    "Top: each token's part of every head's read. Middle: what that adds to the right logit. "
    "Bottom: the right answer's log-probability with this write left out.",
    "Blue helps, orange hurts; the sentence names the write that did most harm.",
)
TWICE = "5 17 9 3 2 8 30 31 7 70 5 44 | 5"
"""A key that is stored twice: 17 first, 44 last."""
QUESTIONS: dict[str, tuple[str, tuple[str, str, str, str], dict[str, Any]]] = {
    "write": (
        "vla_authors_n16_conv",
        (
            "the write in the way",
            "VLA as the authors ran it answers this query wrong. Which write spoils it?",
            "Top: each token's part of every head's read. Middle: what that adds to the right "
            "logit. Bottom: log p(right) with this write left out.",
            "One pair, stored later: leave out its write alone and the right answer has p 0.99. "
            "Blue helps, orange hurts.",
        ),
        {},
    ),
    "memory": (
        "vla_authors_n16_conv",
        (
            "another memory",
            "Here is another failure. Would another memory have answered, from the same keys?",
            "The last table feeds the layer's own keys, values and queries to the other rules.",
            "Yes: exact least squares and VLA with u = key do, without having been trained for it.",
        ),
        {"seed": 2},
    ),
    "twice": (
        "vla_exact_n16_conv",
        (
            "a key stored twice",
            "Key 5 is stored twice, with 17 and later with 44. What should a memory answer?",
            "“Right” here is the last value, 44. The row is typed: change it.",
            "Exact least squares weighs both pairs and stays with 17; the delta rule, on the same "
            "keys and values, overwrites and says 44.",
        ),
        {"tokens": TWICE},
    ),
    "delta": (
        "delta_n8",
        (
            "DeltaNet, 8 pairs",
            "DeltaNet without a convolution answers three of four queries. What goes wrong here?",
            "Layer 0 has to bring each key to its value before layer 1 can store the pair. Try "
            "layer 1, too.",
            "No single write is to blame: the best to leave out only doubles the right answer's p.",
        ),
        {"seed": 9},
    ),
    "right": (
        "vla_exact_n16_conv",
        (
            "an answer that stands",
            "And a right answer: how many writes does it rest on?",
            "The exact gain, 16 pairs in heads of 16.",
            "On two: that of its own value, and that two tokens on, where the convolution still "
            "sees the pair. Without the latter the answer is gone.",
        ),
        {"seed": 0},
    ),
}
