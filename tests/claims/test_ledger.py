"""The ledger: nothing without a check or a reason, and every verdict is what its check says now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vla.claims import CLAIMS, Claim, Evidence, decide, get, ledger, ordered
from vla.claims.cards import path_of
from vla.claims.claim import SECTIONS, add, claim
from vla.claims.work import wanted
from vla.errors import ArgumentError

KEPT = ledger.load()
ALL = [pytest.param(each, id=each.id) for each in ordered()]
SHARED = Evidence()

ASKED_FOR = [
    "proposition-1", "proposition-2", "proposition-3", "remark-1", "norm-ratio",
    "A-from-56-to-10", "updates-diminish", "post-update-A", "section-7-2", "capacity-is-width",
    "graceful-degradation", "constant-factor", "overhead-3x", "kernel-14x", "crossover-43000",
    "slope-of-T", "copy-sanity-check", "steps-match", "tables-8-and-12-agree", "table-11-columns",
    "long-context-agrees", "deltanet-at-8", "three-seeds", "table-1-softmax", "table-1-linear",
    "table-1-deltanet", "table-1-vla", "table-2-d32", "table-2-d64", "table-2-d96",
    "table-2-d128", "table-4-vla", "table-4-a-fixed", "table-4-no-key-norm", "table-4-deltanet",
    "table-4-linear", "table-4-random", "table-5-update", "table-5-source", "table-5-scale",
    "table-5-jacobian", "table-5-gradients", "table-7", "table-8", "table-9", "table-10",
    "table-11", "table-12", "table-13", "figure-2", "figure-3", "figure-4", "figure-5",
    "figure-6", "readme-exact-recall-10k", "readme-stable-10m", "readme-learned-lambda",
    "readme-rank-r", "readme-stabiliser", "readme-parallel-streaming",
]  # fmt: skip


def test_every_claim_that_was_asked_for_is_there() -> None:
    assert set(ASKED_FOR) <= set(CLAIMS)


@pytest.mark.parametrize("each", ALL)
def test_a_claim_says_all_it_has_to(each: Claim) -> None:
    assert re.fullmatch(r"[A-Za-z0-9-]+", each.id)
    for words in (each.title, each.words, each.place, each.needs):
        assert words.strip()
    assert each.section in SECTIONS
    assert each.check is not None or len(each.reason) > 40
    for link in each.links:
        assert path_of(link).startswith(f"{link.app}/")


@pytest.mark.parametrize("each", [p for p in ALL if p.values[0].trained])
def test_a_claim_on_training_can_be_repeated(each: Claim) -> None:
    few, everything = wanted(each, "cpu"), wanted(each, "full")
    assert 1 <= len(few) <= 3
    assert {item.config.key for item in few} <= {item.config.key for item in everything}
    assert all(item.config.model.width == 128 for item in few)


def test_the_kept_file_has_every_claim_with_date_commit_and_device() -> None:
    assert list(KEPT) == [each.id for each in ordered()]
    for entry in KEPT.values():
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", entry.date)
        assert entry.commit
        assert entry.device


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("each", ALL)
def test_a_kept_verdict_is_what_the_check_says_now(each: Claim) -> None:
    """Recorded evidence is read, cheap evidence computed from scratch."""
    kept = KEPT[each.id]
    gone = [name for name, was in kept.files.items()
            if was != "absent" and ledger.digest(_root() / name) == "absent"]  # fmt: skip
    if gone:
        pytest.skip(f"its evidence isn't in this checkout: {', '.join(gone)}")
    found = decide(each, SHARED)
    assert found.verdict == kept.finding.verdict, (
        f"{each.id}: {found.why}\nIf this is right: vla claims run {each.id} --record"
    )
    assert found.why
    if each.check and found.verdict != "undecided":
        assert found.chart is not None
        assert found.sources


def _root() -> Path:
    return ledger.data_folder().parent


def test_unknown_claims_are_named_with_near_ones() -> None:
    with pytest.raises(ArgumentError, match="proposition-2-chain"):
        get("proposition-2-cha")
    with pytest.raises(ArgumentError, match="wanted an id of the ledger"):
        get("nonsense")


def test_a_claim_needs_a_check_or_a_reason() -> None:
    given = {"title": "t", "words": "w", "place": "p", "section": "README", "needs": "n"}
    with pytest.raises(ArgumentError, match="either a check or the reason"):
        Claim("x", **given, check=None)
    with pytest.raises(ArgumentError, match="an id that no other claim has"):
        add(get("proposition-2"))
    with pytest.raises(ArgumentError, match="section"):
        claim("x", "t", words="w", place="p", section="12 Elsewhere", needs="n")(lambda _: None)
    assert "x" not in CLAIMS


def test_a_ledger_is_kept_and_read_back(tmp_path: Path) -> None:
    place = tmp_path / "ledger.json"
    assert ledger.load(place) == {}
    entry = ledger.examine(get("table-9-arithmetic"))
    other = ledger.examine(get("proposition-2"))
    ledger.save([entry], place)
    ledger.save([other], place)
    back = ledger.load(place)
    assert list(back) == ["proposition-2", "table-9-arithmetic"]
    assert back["proposition-2"].finding.verdict == "fails"
    assert back["proposition-2"].finding.chart.series[1].name == other.finding.chart.series[1].name
    place.write_text("{}")
    with pytest.raises(ArgumentError, match="vla claims run --record"):
        ledger.load(place)
