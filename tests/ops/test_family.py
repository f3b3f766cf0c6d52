"""The delta rule and linear attention: their own formulas, and VLA with A fixed."""

import pytest
import torch

from vla.ops import delta_rule, linear_attention, vla_attention
from vla.ops.state import VLAState

from .oracle import assert_close, make_case, poisoned, reference, relative_error, results


@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 17, 63, 64, 65, 100])
@pytest.mark.parametrize("chunk_size", [16, 64])
@pytest.mark.parametrize("op", [delta_rule, linear_attention])
def test_chunk_equals_the_token_loop(op, chunk_size: int, tokens: int) -> None:
    case = make_case(tokens=tokens, width=8, value_width=5)._replace(u=None, A=None)
    with poisoned():
        got = results(case, op, backend="chunk", chunk_size=chunk_size)
    assert_close(got, reference(case, op), 1e-10)


@pytest.mark.parametrize("backend", ["scan", "chunk"])
def test_linear_attention_is_masked_attention_without_softmax(backend: str) -> None:
    case = make_case(tokens=33, width=6, state=False)
    o, _ = linear_attention(case.q, case.k, case.v, case.beta, backend=backend, chunk_size=16)
    scores = torch.einsum("bthd,bshd->bhts", case.q, case.k).tril()
    wanted = torch.einsum("bhts,bsh,bshv->bthv", scores, case.beta, case.v)
    assert relative_error(o, wanted) < 1e-12


@pytest.mark.parametrize("backend", ["scan", "chunk"])
def test_delta_rule_stores_the_last_unit_key_exactly(backend: str) -> None:
    case = make_case(tokens=33, width=6, state=False)
    o, _ = delta_rule(case.k, case.k, case.v, backend=backend, chunk_size=16)
    assert relative_error(o, case.v) < 1e-12


@pytest.mark.parametrize("backend", ["scan", "chunk"])
def test_vla_with_a_fixed_is_the_delta_rule(backend: str) -> None:
    """Remark 1 has it as linear attention; u = 0 and A = 10 I leave the residual in place."""
    case = make_case("zero_u", tokens=33, width=6, state=False)
    vla, _ = vla_attention(*case[:5], lambda0=0.1, backend=backend)
    delta, _ = delta_rule(case.q, case.k, case.v, case.beta, backend=backend)
    linear, _ = linear_attention(case.q, case.k, case.v, case.beta, backend=backend)
    assert relative_error(vla, delta) < 1e-12
    assert relative_error(vla, linear) > 0.1


@pytest.mark.parametrize("op", [delta_rule, linear_attention])
def test_gradcheck(op) -> None:
    case = make_case(batch=1, tokens=8, heads=1, width=3, value_width=2)

    def run(q, k, v, beta, S):
        o, state = op(
            q, k, v, beta, initial_state=VLAState(S, None, 1), output_final_state=True,
            backend="chunk", chunk_size=3,
        )  # fmt: skip
        return o, state.S

    inputs = [x.detach().requires_grad_() for x in (case.q, case.k, case.v, case.beta, case.S)]
    assert torch.autograd.gradcheck(run, inputs, eps=1e-6, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("op", [delta_rule, linear_attention])
def test_narrow_dtypes_work_in_float32(op, dtype: torch.dtype) -> None:
    case = make_case(tokens=40, state=False).to(dtype)
    o, state = op(case.q, case.k, case.v, case.beta, output_final_state=True, backend="chunk")
    exact, _ = op(*(x.double() for x in (case.q, case.k, case.v, case.beta)), backend="scan")
    assert (o.dtype, state.S.dtype) == (dtype, torch.float32)
    assert relative_error(o, exact) < max(1e-5, torch.finfo(dtype).eps)


@pytest.mark.parametrize("op", [delta_rule, linear_attention])
def test_a_split_equals_one_call(op) -> None:
    case = make_case(tokens=40, width=6, state=False)
    sequences = (case.q, case.k, case.v, case.beta)
    o, end = op(*sequences, output_final_state=True, backend="scan")
    first, state = op(*(x[:, :13] for x in sequences), output_final_state=True, backend="chunk")
    rest, last = op(
        *(x[:, 13:] for x in sequences),
        initial_state=state,
        output_final_state=True,
        backend="chunk",
    )
    assert relative_error(torch.cat([first, rest], 1), o) < 1e-12
    assert relative_error(last.S, end.S) < 1e-12
    assert last.step == 40
