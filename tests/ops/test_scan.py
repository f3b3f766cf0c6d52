"""The token loop against formulas that share no line with it."""

import pytest
import torch

from vla.ops import vla_attention

from .oracle import make_case, relative_error, results


def _inverse_of_sum(A: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return torch.linalg.inv(torch.linalg.inv(A) + torch.outer(u, u))


@pytest.mark.parametrize("refresh", [0, 3])
@pytest.mark.parametrize("gain", ["unit", "rls", "oblique"])
def test_equals_explicit_inverses(gain: str, refresh: int) -> None:
    case = make_case(batch=1, heads=1, tokens=10, width=6, value_width=4, step=2)
    q, k, v, u, beta = (x[0, :, 0] for x in case[:5])
    S, A = case.S[0, 0], case.A[0, 0]
    outputs = []
    for t in range(10):
        A = _inverse_of_sum(A, u[t])
        if refresh and (2 + t + 1) % refresh == 0:
            A = A + 0.05 * torch.eye(6, dtype=A.dtype)
        alpha = A @ k[t]
        divisor = {"unit": alpha.norm(), "rls": 1.0, "oblique": alpha @ k[t]}[gain]
        S = S + beta[t] * torch.outer(v[t] - S @ k[t], alpha / divisor)
        outputs.append(S @ q[t])
    found = results(
        case,
        gradients=False,
        backend="scan",
        gain=gain,
        refresh_every=refresh,
        refresh_eps=0.05,
    )
    assert relative_error(found["o"][0, :, 0], torch.stack(outputs)) < 1e-12
    assert relative_error(found["A"][0, 0], A) < 1e-12
    assert relative_error(found["S"][0, 0], S) < 1e-12


@pytest.mark.parametrize("backend", ["scan", "chunk"])
def test_exact_gain_is_weighted_ridge_regression(backend: str) -> None:
    """With u = √β k and the rls gain, S_T solves the batch problem."""
    case = make_case(batch=1, heads=1, tokens=40, width=6, own_u=False, state=False)
    found = results(case, gradients=False, backend=backend, gain="rls", lambda0=0.3)
    k, v, beta = case.k[0, :, 0], case.v[0, :, 0], case.beta[0, :, 0, None]
    normal = 0.3 * torch.eye(6, dtype=k.dtype) + k.mT @ (beta * k)
    assert relative_error(found["S"][0, 0], v.mT @ (beta * k) @ torch.linalg.inv(normal)) < 1e-12


@pytest.mark.parametrize("backend", ["scan", "chunk"])
def test_exact_gain_forgets_the_start_as_lambda0_A(backend: str) -> None:
    """∂S_T/∂S_0 is λ0 A_T: the read of an empty stream's state by any query."""
    case = make_case(batch=1, heads=1, tokens=30, width=6, own_u=False, state=False)
    zeros = case._replace(v=torch.zeros_like(case.v))
    S = torch.eye(6, dtype=torch.float64)[None, None]
    A = torch.eye(6, dtype=torch.float64)[None, None] / 0.3
    start = zeros._replace(S=S, A=A, step=0)
    found = results(start, gradients=False, backend=backend, gain="rls", lambda0=0.3)
    assert relative_error(found["S"], 0.3 * found["A"]) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_dtype_comes_back_as_it_went_in(dtype: torch.dtype) -> None:
    case = make_case(tokens=9, state=False).to(dtype)
    o, state = vla_attention(*case[:5], output_final_state=True, backend="scan")
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert (o.dtype, state.S.dtype, state.A.dtype) == (dtype, wide, wide)
    exact = results(case.to(torch.float64), gradients=False, backend="scan")["o"]
    assert relative_error(o, exact) < 4 * torch.finfo(dtype).eps
