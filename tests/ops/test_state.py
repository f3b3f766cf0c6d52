"""A split anywhere equals one call, refresh phase included."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vla.ops import VLAState, decode_step, delta_rule, linear_attention, vla_attention

from .oracle import make_case, relative_error

BACKENDS = ("scan", "associative", "chunk")


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(1, 40),
    splits=st.lists(st.integers(0, 40), max_size=3),
    refresh=st.sampled_from([0, 1, 3, 7, 20]),
    gain=st.sampled_from(["unit", "rls", "oblique"]),
    chunk_size=st.integers(1, 20),
    step=st.integers(0, 25),
    backends=st.lists(st.sampled_from(BACKENDS), min_size=4, max_size=4),
)
def test_any_split_on_any_backends_equals_one_call(
    tokens: int,
    splits: list[int],
    refresh: int,
    gain: str,
    chunk_size: int,
    step: int,
    backends: list[str],
) -> None:
    case = make_case(batch=1, tokens=tokens, heads=2, width=4, value_width=3, step=step)
    options = {"gain": gain, "refresh_every": refresh, "refresh_eps": 0.1, "chunk_size": chunk_size}
    start = VLAState(case.S, case.A, step)
    options["output_final_state"] = True
    o, end = vla_attention(*case[:5], initial_state=start, backend="scan", **options)
    bounds = sorted({0, tokens, *(min(s, tokens) for s in splits)})
    pieces, state = [], start
    for backend, first, last in zip(backends, bounds, bounds[1:], strict=False):
        part = [x[:, first:last] for x in case[:5]]
        piece, state = vla_attention(*part, initial_state=state, backend=backend, **options)
        pieces.append(piece)
    assert state.step == end.step == step + tokens
    assert relative_error(torch.cat(pieces, 1), o) < 1e-10
    assert relative_error(state.S, end.S) < 1e-10
    assert relative_error(state.A, end.A) < 1e-10


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_tokens_give_no_output_and_the_state_back(backend: str) -> None:
    case = make_case(tokens=0, width=5, value_width=3)
    start = VLAState(case.S, case.A, 7)
    o, state = vla_attention(
        *case[:5], initial_state=start, output_final_state=True, backend=backend
    )
    assert o.shape == (2, 0, 2, 3)
    assert state.step == 7
    assert torch.equal(state.S, case.S)
    assert torch.equal(state.A, case.A)
    _, fresh = vla_attention(*case[:5], lambda0=0.5, output_final_state=True, backend=backend)
    assert torch.equal(fresh.A, 2 * torch.eye(5, dtype=torch.float64).expand(2, 2, 5, 5))


@pytest.mark.parametrize("op", [delta_rule, linear_attention])
def test_no_tokens_in_the_family(op) -> None:
    case = make_case(tokens=0, width=5, value_width=3)
    start = VLAState(case.S, None, 7)
    o, state = op(case.q, case.k, case.v, case.beta, initial_state=start, output_final_state=True)
    assert o.shape == (2, 0, 2, 3)
    assert (state.step, state.A) == (7, None)
    assert torch.equal(state.S, case.S)


@pytest.mark.parametrize("batch_heads", [(0, 2), (2, 0)])
def test_no_rows_give_no_output(batch_heads: tuple[int, int]) -> None:
    q = torch.zeros(batch_heads[0], 5, batch_heads[1], 4)
    o, state = vla_attention(q, q, q, output_final_state=True)
    assert o.shape == q.shape
    assert state.A.shape == (*batch_heads, 4, 4)


def test_the_state_is_none_unless_asked_for() -> None:
    case = make_case(tokens=5, state=False)
    assert vla_attention(*case[:5])[1] is None
    assert delta_rule(case.q, case.k, case.v)[1] is None


def test_a_state_is_left_as_it_was() -> None:
    """Feeding the same state twice gives the same answer twice."""
    case = make_case(tokens=20)
    start = VLAState(case.S, case.A, 3)
    for backend in BACKENDS:
        first = vla_attention(*case[:5], initial_state=start, backend=backend, refresh_every=7)[0]
        again = vla_attention(*case[:5], initial_state=start, backend=backend, refresh_every=7)[0]
        assert torch.equal(first, again)


@pytest.mark.parametrize("backend", ["auto", "scan", "chunk"])
@pytest.mark.parametrize("refresh", [0, 7])
def test_decoding_continues_from_any_prefix(refresh: int, backend: str) -> None:
    case = make_case(tokens=30, width=6, state=False)
    rule = {"refresh_every": refresh, "refresh_eps": 0.1, "gain": "oblique", "lambda0": 0.3}
    o, _ = vla_attention(*case[:5], **rule, backend="scan")
    for prefix in (0, 1, 6, 7, 13, 29):
        part = [x[:, :prefix] for x in case[:5]]
        _, state = vla_attention(*part, **rule, output_final_state=True, backend="chunk")
        for t in range(prefix, min(prefix + 9, 30)):
            token = [x[:, t] for x in case[:5]]
            read, state = decode_step(*token, state, **rule, backend=backend)
            assert relative_error(read, o[:, t]) < 1e-10


def test_decoding_starts_from_nothing_and_keeps_its_size() -> None:
    case = make_case(tokens=4, state=False)
    state, sizes = None, set()
    for t in range(4):
        _, state = decode_step(case.q[:, t], case.k[:, t], case.v[:, t], state=state)
        sizes.add(state.S.untyped_storage().nbytes() + state.A.untyped_storage().nbytes())
    assert len(sizes) == 1
    assert state.step == 4
