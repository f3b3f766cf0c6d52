"""Typed pairs and the deterministic embedding of words."""

import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vla.errors import ArgumentError
from vla.words import MAX_ENTRIES, MAX_WORD, Entry, Vocabulary, embed, parse_pairs


def test_pairs_and_queries_in_order():
    assert parse_pairs("cat: meow, dog: woof, ? cat") == [
        Entry("cat", "meow"), Entry("dog", "woof"), Entry("cat"),
    ]  # fmt: skip


def test_labels_are_what_the_strip_shows():
    assert [e.label for e in parse_pairs("cat: meow, ?cat")] == ["cat → meow", "? cat"]


@pytest.mark.parametrize(
    "text",
    ["a: b\nc: d", "a: b\r\nc: d\n", " a :b ,, c: d ,", "a → b, c -> d", "a:b,c:d", "\ta:\tb\nc:d"],
)
def test_separators_and_spaces_are_forgiving(text):
    assert parse_pairs(text) == [Entry("a", "b"), Entry("c", "d")]


def test_case_and_unicode_are_kept_and_composed():
    entries = parse_pairs("Cat: Miau, cat: мяу, 猫: ニャー, cafe\u0301: x, ? café")
    assert [e.key for e in entries] == ["Cat", "cat", "猫", "café", "café"]


def test_runs_of_spaces_become_one():
    assert parse_pairs("big   cat: loud  meow")[0] == Entry("big cat", "loud meow")


@pytest.mark.parametrize(
    "word", ["<script>alert(1)</script>", "'; DROP TABLE", "{{x}}", "${x}", "=1+1", "🐈‍⬛", "../x"]
)
def test_hostile_words_are_just_words(word):
    entry, query = parse_pairs(f"{word}: {word}, ? {word}")
    assert entry == Entry(word, word)
    assert query == Entry(word)
    assert embed([word], 8).isfinite().all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one pair"),
        (" \n,, ", "at least one pair"),
        ("cat", "got 'cat', wanted one key and one value"),
        ("cat:", "one key and one value"),
        (": meow", "one key and one value"),
        ("a: b: c", "one key and one value"),
        ("cat: meow, dog", "got 'dog'"),
        ("cat: meow, ?", "a word after the question mark"),
        ("cat: meow, ? dog", r"got '\? dog', wanted .*\(cat\)\. Store it first: dog: some value"),
        ("? cat, cat: meow", r"\(nothing\)"),
        ("a\x00: b", r"no control character \(U\+0000\)"),
        ("a\u202eb: c", r"U\+202E"),
        ("a: \ud800", r"U\+D800"),
        ("x" * 41 + ": b", "words of at most 40 characters"),
        ("a: b," * 201, "got '201 entries', wanted at most 200"),
        ("a" * 30_000, "at most 20000"),
    ],
)
def test_bad_text_is_explained(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse_pairs(text)
    assert str(caught.value).startswith("pairs: got")


def test_limits_are_inclusive():
    word = "x" * MAX_WORD
    assert len(parse_pairs(f"{word}: {word}," * MAX_ENTRIES)) == MAX_ENTRIES


@given(st.text(max_size=200))
def test_any_text_parses_or_is_refused_with_a_sentence(text):
    try:
        entries = parse_pairs(text)
    except ArgumentError:
        return
    assert entries
    assert all(e.key and e.key == e.key.strip() for e in entries)
    assert embed([e.key for e in entries], 3).isfinite().all()


def test_vectors_are_the_same_on_every_machine():
    """From the definition: four little-endian 16-bit numbers a coordinate, summed and centred."""
    stream = hashlib.shake_256(b"cat").digest(16)
    sums = [
        sum(int.from_bytes(stream[8 * i + 2 * j : 8 * i + 2 * j + 2], "little") for j in range(4))
        for i in range(2)
    ]
    raw = torch.tensor([x - 2 * 65535 for x in sums], dtype=torch.float64)
    assert torch.allclose(embed(["cat"], 2)[0], raw / raw.norm(), rtol=1e-15)
    assert torch.equal(embed(["cat", "dog"], 16)[1], embed(["dog"], 16)[0])


def test_vectors_are_unit_and_spread_like_gaussian_directions():
    vectors = embed([f"w{i}" for i in range(400)], 32)
    assert torch.allclose(vectors.norm(dim=-1), torch.ones(400, dtype=torch.float64))
    cosines = (vectors @ vectors.mT)[torch.triu(torch.ones(400, 400), 1) > 0]
    assert abs(float(cosines.mean())) < 0.005
    assert abs(float(cosines.std()) - 32**-0.5) < 0.005


@pytest.mark.parametrize("similarity", [0.3, 0.8])
def test_similarity_is_the_mean_cosine(similarity):
    vectors = embed([f"w{i}" for i in range(100)], 64, similarity=similarity)
    cosines = (vectors @ vectors.mT)[torch.triu(torch.ones(100, 100), 1) > 0]
    assert abs(float(cosines.mean()) - similarity) < 0.08


@pytest.mark.parametrize("similarity", [-0.1, 1.0, float("nan")])
def test_similarity_out_of_range_is_refused(similarity):
    with pytest.raises(ValueError, match="similarity"):
        embed(["a"], 4, similarity=similarity)


def test_nearest_word_is_by_angle_not_length():
    words = ("a", "b", "c")
    vectors = torch.tensor([[10.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    vocabulary = Vocabulary(words, vectors)
    assert vocabulary.nearest(torch.tensor([[0.4, 0.5], [1e-9, 0.0], [-3.0, 1.0]])) == [
        "b",
        "a",
        "c",
    ]


def test_an_answer_without_direction_is_no_word():
    vocabulary = Vocabulary(("a", "b"), torch.eye(2))
    silent = torch.tensor([[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 0.0]])
    assert vocabulary.nearest(silent) == ["", "", ""]
