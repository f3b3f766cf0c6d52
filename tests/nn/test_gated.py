"""The chunk form of decaying delta rules against the token loop, and the loop against the rules."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vla.ops.gated import UnitLowerInverse, gated_delta_rule, gated_delta_scan
from vla.rules import Token, make

TOKENS = [1, 2, 15, 16, 17, 33, 100]


def inputs(tokens: int, *, rows: bool, kind: str = "random", d_v: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    draw = {"dtype": torch.float64, "generator": generator}
    q, k = (torch.randn(2, tokens, 3, 8, **draw) for _ in range(2))
    if kind == "one key":
        k = k[:, :1].expand_as(k)
    v = torch.randn(2, tokens, 3, d_v, **draw)
    logits = {"random": 3.0, "one key": 3.0, "closing": 200.0}[kind]
    gate = F.logsigmoid(logits * torch.randn(v.shape if rows else v.shape[:3], **draw))
    return [x.clone().requires_grad_() for x in (q, F.normalize(k, dim=-1), v, gate)]


def relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().norm() / b.detach().norm().clamp_min(1e-30))


@pytest.mark.parametrize("kind", ["random", "one key", "closing"])
@pytest.mark.parametrize("rows", [False, True], ids=["per token", "per row"])
@pytest.mark.parametrize("tokens", TOKENS)
def test_chunk_equals_loop_forward_and_backward(tokens: int, rows: bool, kind: str) -> None:
    case = inputs(tokens, rows=rows, kind=kind)
    weight = torch.randn(case[2].shape, dtype=torch.float64)
    o = gated_delta_rule(*case, backend="chunk")
    wanted = gated_delta_scan(*case)
    assert relative(o, wanted) < 1e-12
    got = torch.autograd.grad((o * weight).sum(), case)
    for mine, theirs in zip(got, torch.autograd.grad((wanted * weight).sum(), case), strict=True):
        assert mine.isfinite().all()
        assert relative(mine, theirs) < 1e-11


@pytest.mark.parametrize("chunk_size", [1, 2, 4, 32])
def test_chunk_size_changes_nothing(chunk_size: int) -> None:
    case = inputs(37, rows=True)
    assert relative(
        gated_delta_rule(*case, backend="chunk", chunk_size=chunk_size), gated_delta_scan(*case)
    ) < 1e-12  # fmt: skip


@pytest.mark.parametrize(("rows", "name"), [(False, "gated_delta"), (True, "authors_delta")])
def test_loop_is_the_rule(rows: bool, name: str) -> None:
    q, k, v, log_gate = inputs(40, rows=rows)
    rule = make(name, **({"query_features": "identity"} if rows else {"normalise_key": False}))
    state, outputs = rule.init(8, 5, batch=(2, 3)), []
    for t in range(40):
        state = rule.step(state, Token(k[:, t], v[:, t], beta=log_gate[:, t].exp()))
        outputs.append(rule.read(state, q[:, t]))
    assert relative(gated_delta_scan(q, k, v, log_gate), torch.stack(outputs, 1)) < 1e-13


def test_float32_stays_close_and_repeats() -> None:
    case = inputs(100, rows=True)
    single = [x.detach().float() for x in case]
    o = gated_delta_rule(*single, backend="chunk")
    assert o.dtype == torch.float32
    assert relative(o.double(), gated_delta_scan(*case)) < 1e-5
    assert torch.equal(o, gated_delta_rule(*single, backend="chunk"))


def test_auto_takes_the_loop_for_row_gates_on_a_cpu_only() -> None:
    per_row, per_token = inputs(20, rows=True), inputs(20, rows=False)
    assert torch.equal(gated_delta_rule(*per_row), gated_delta_scan(*per_row))
    assert torch.equal(gated_delta_rule(*per_token), gated_delta_rule(*per_token, backend="chunk"))


def test_no_tokens_give_no_output() -> None:
    for backend in ("chunk", "scan"):
        assert gated_delta_rule(*inputs(0, rows=True), backend=backend).shape == (2, 0, 3, 5)


def test_unit_lower_inverse_passes_gradcheck() -> None:
    N = torch.tril(torch.randn(3, 8, 8, dtype=torch.float64), -1).requires_grad_()
    eye = torch.eye(8, dtype=torch.float64)
    assert torch.allclose(UnitLowerInverse.apply(N) @ (N + eye), eye.expand(3, 8, 8), atol=1e-12)
    assert torch.autograd.gradcheck(lambda x: UnitLowerInverse.apply(torch.tril(x, -1)), (N,))


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"log_gate": torch.zeros(2, 4, 3, 7)}, "log_gate.shape"),
        ({"k": torch.zeros(2, 4, 3, 7)}, "q, k, v"),
        ({"chunk_size": 12}, "chunk_size"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"backend": "triton"}, "backend"),
    ],
)
def test_bad_arguments_are_named(change: dict, argument: str) -> None:
    names = ("q", "k", "v", "log_gate")
    good = dict(zip(names, inputs(4, rows=False), strict=True))
    with pytest.raises(ValueError, match=f"{argument}: got"):
        gated_delta_rule(**{**good, **change})
