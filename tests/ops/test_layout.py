"""Cutting: every token once, no chunk over its length, a cut behind every refresh."""

from hypothesis import given
from hypothesis import strategies as st

from vla.ops.layout import cut


@given(st.integers(0, 300), st.integers(1, 70), st.integers(0, 100), st.integers(0, 90))
def test_cuts(tokens: int, length: int, step: int, every: int) -> None:
    blocks = cut(tokens, length, step, every)
    ends, at = {}, 0
    for block in blocks:
        assert block.start == at
        assert 1 <= block.length <= length
        for refreshed in block.refreshed:
            at += block.length
            ends[at] = refreshed
    assert at == tokens
    due = {t for t in range(1, tokens + 1) if every and (step + t) % every == 0}
    assert {end for end, refreshed in ends.items() if refreshed} == due


@given(st.integers(1, 500), st.integers(1, 70))
def test_without_refresh_there_are_at_most_two_sizes(tokens: int, length: int) -> None:
    blocks = cut(tokens, length)
    assert len(blocks) <= 2
    assert sum(len(block.refreshed) for block in blocks) == -(-tokens // length)
