"""``vla claims``, the report page, and checks with fresh training."""

from __future__ import annotations

import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.train.tiny import config
from vla import cli
from vla.claims import CLAIMS, Evidence, current, decide, get, ledger, ordered, work
from vla.claims.report import page
from vla.train import Wanted
from vla.train.progress import Silent

QUICK = "table-9-arithmetic"


def test_the_list_has_every_claim_and_can_be_narrowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["claims"]) == 0
    shown = capsys.readouterr().out
    for id in CLAIMS:
        assert f" {id} " in shown
    assert f"{len(CLAIMS)} claims: " in shown
    assert cli.main(["claims", "--section", "4 Theory", "--verdict", "fails"]) == 0
    narrowed = capsys.readouterr().out
    assert "proposition-2" in narrowed
    assert "table-9" not in narrowed


def test_show_and_run_tell_all_about_a_claim(capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("show", "run"):
        assert cli.main(["claims", action, QUICK]) == 0
        told = capsys.readouterr().out
        chosen = get(QUICK)
        flat = " ".join(told.split())
        assert "holds" in told
        for part in (chosen.title, chosen.words, chosen.place, chosen.needs, "Evidence: Table 9"):
            assert " ".join(part.split()) in flat


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show", "proposition-9"], "an id of the ledger"),
        (["run", QUICK, "--budget", "cpu"], "one of cheap"),
        (["run", QUICK, "--budget", "huge"], "'cheap', 'cpu', 'full'"),
        (["report"], "a file to write"),
        (["report", "no/such/folder/page.html"], "a folder that exists"),
        (["--verdict", "true"], "one of 'holds'"),
        (["tell"], "list, show, run, report"),
    ],
)
def test_bad_input_is_told(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["claims", *words]) == 2
    told = capsys.readouterr().err
    assert told.startswith("vla claims: ")
    assert says in told


def test_run_records_where_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ledger, "path", lambda: tmp_path / "claims" / "ledger.json")
    assert cli.main(["claims", "run", QUICK, "--record"]) == 0
    assert "kept in" in capsys.readouterr().out
    assert list(ledger.load()) == [QUICK]


class Reader(html.parser.HTMLParser):
    """Tags that are left open, ids, and addresses that a page would fetch."""

    VOID = ("meta", "link", "br", "line", "circle", "path")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"]] if given.get("id") else []
        for name in ("src", "href"):
            target = given.get(name) or ""
            if target and not target.startswith(("#", "data:")):
                self.fetched.append(target)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in self.VOID or self.open.pop() == tag


def test_the_report_is_one_page_that_fetches_nothing(tmp_path: Path) -> None:
    assert cli.main(["claims", "report", str(tmp_path / "claims.html")]) == 0
    text = (tmp_path / "claims.html").read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    assert set(CLAIMS) <= set(reader.ids)
    assert len(reader.ids) == len(set(reader.ids))
    assert not reader.fetched
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert len(text) < 1_500_000


def test_words_of_a_claim_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    entries = dict(current([QUICK]))
    bad = dataclasses.replace(get(QUICK), words="<script>alert(1)</script>", title="a <b> & c")
    monkeypatch.setitem(CLAIMS, QUICK, bad)
    text = page(entries)
    assert "<script" not in text
    assert "a &lt;b&gt; &amp; c" in text


def test_every_picture_has_words_and_is_well_formed() -> None:
    from xml.etree import ElementTree

    from vla.figures.claims import svg, words

    for each in ordered():
        entry = ledger.load()[each.id]
        if entry.finding.chart is None:
            continue
        drawn = svg(entry.finding.chart)
        root = ElementTree.fromstring(drawn)
        assert root.get("role") == "img"
        assert root.get("aria-label") == words(entry.finding.chart)
        assert len(words(entry.finding.chart)) > 20
        assert "nan" not in re.sub(r'aria-label="[^"]*"', "", drawn).lower().split()


def tiny(_: Any, budget: str, __: Any = ()) -> list[Wanted]:
    """Two runs of a few milliseconds under the labels that a claim looks for."""
    labels = ("vla_authors",) if budget == "cpu" else ("vla_authors", "softmax")
    return [Wanted(config(seed=i), label) for i, label in enumerate(labels)]


@pytest.mark.parametrize(("budget", "runs"), [("cpu", 1), ("full", 2)])
def test_fresh_runs_are_trained_and_take_the_place_of_recorded_ones(
    budget: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "wanted", tiny)
    bar = Silent()
    entry = work.run("table-9", budget, bar)
    assert bar.done_runs == bar.total_runs == runs
    assert entry.budget == budget
    assert entry.finding.why.count("seed") >= runs
    assert "Trained here just now" in entry.finding.why


def test_a_job_hands_over_plain_values() -> None:
    class Report:
        def share(self, *_: object) -> None: ...
        def point(self, *_: object) -> None: ...
        def say(self, *_: object) -> None: ...

    entry = ledger.entry_of(json.loads(json.dumps(work.job(Report(), QUICK, "cheap"))))
    assert entry.id == QUICK
    assert entry.finding.verdict == decide(get(QUICK), Evidence()).verdict


def test_a_missing_package_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Any) -> None:
        raise ModuleNotFoundError("No module named 'plotly'", name="plotly.graph_objects")

    monkeypatch.setattr("vla.claims.cli._list", refuse)
    assert cli.main(["claims"]) == 1
    told = capsys.readouterr().err
    assert "plotly is needed and isn't installed. Run: " in told
    assert "Traceback" not in told
