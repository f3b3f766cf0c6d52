"""Float32 against the float64 token loop on the same numbers.

Promised (README.md): ``chunk`` within 1e-5 relative, forward and every gradient, whatever T/λ0 up
to 1e7, because its A part is float64. The float32 token loop loses up to 4 eps · T/λ0 in ``o`` (2.6
was seen), and so does a chunked sequence whose ``A`` passes through a float32 state.
"""

import pytest
import torch

from vla.ops import vla_attention

from .oracle import assert_close, make_case, poisoned, reference, relative_error, results

EPS = torch.finfo(torch.float32).eps
GAINS = ("unit", "rls", "oblique")
KEYS = ("gaussian", "elu", "near_duplicates", "repeated")
CHUNK_BOUND = 1e-5


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("lambda0", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("gain", GAINS)
def test_chunk_in_float32(gain: str, lambda0: float, kind: str) -> None:
    case = make_case(kind, batch=1, tokens=150, own_u=False, state=False).to(torch.float32)
    options = {"gain": gain, "lambda0": lambda0}
    with poisoned():
        got = results(case, backend="chunk", **options)
    assert_close(got, reference(case, **options), CHUNK_BOUND)


@pytest.mark.parametrize("refresh", [0, 7, 20])
@pytest.mark.parametrize("gain", GAINS)
@pytest.mark.parametrize("tokens", [1, 17, 65, 100])
def test_chunk_in_float32_with_a_direction_of_its_own(tokens: int, gain: str, refresh: int) -> None:
    case = make_case(batch=1, tokens=tokens, value_width=9).to(torch.float32)
    options = {"gain": gain, "refresh_every": refresh}
    with poisoned():
        got = results(case, backend="chunk", **options)
    assert_close(got, reference(case, **options), CHUNK_BOUND)


@pytest.mark.slow
@pytest.mark.parametrize("gain", GAINS)
def test_one_key_ten_thousand_times(gain: str) -> None:
    """T/λ0 = 1e7, where a float32 A has no correct digit left."""
    case = make_case("repeated", batch=1, heads=1, tokens=10_000, width=8, own_u=False, state=False)
    case = case.to(torch.float32)
    options = {"gain": gain, "lambda0": 1e-3, "gradients": False}
    assert_close(results(case, backend="chunk", **options), reference(case, **options), CHUNK_BOUND)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("lambda0", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("route", ["scan", "split"])
def test_what_a_float32_A_loses(route: str, lambda0: float, kind: str) -> None:
    """The loop, or a chunked sequence cut in two, is within 4 eps · T/λ0 or 1e-5 in o."""
    tokens = 200
    case = make_case(kind, batch=1, tokens=tokens, own_u=False, gate=False, state=False)
    case = case.to(torch.float32)
    wanted = reference(case, lambda0=lambda0, gradients=False)["o"]
    o = _loop(case, lambda0) if route == "scan" else _split(case, lambda0)
    assert relative_error(o, wanted) <= max(1e-5, 4 * EPS * tokens / lambda0)


def _loop(case, lambda0: float) -> torch.Tensor:
    return vla_attention(*case[:5], lambda0=lambda0, backend="scan")[0]


def _split(case, lambda0: float) -> torch.Tensor:
    options = {"lambda0": lambda0, "backend": "chunk", "output_final_state": True}
    q, k, v = case[:3]
    first, state = vla_attention(q[:, :111], k[:, :111], v[:, :111], **options)
    rest = vla_attention(q[:, 111:], k[:, 111:], v[:, 111:], initial_state=state, **options)[0]
    return torch.cat([first, rest], dim=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("gain", GAINS)
def test_sixteen_bits_are_rounded_once(gain: str, dtype: torch.dtype) -> None:
    """Inputs as they are, float32 or better inside, outputs and gradients rounded at the end."""
    case = make_case(batch=1, tokens=100).to(dtype)
    got = results(case, backend="chunk", gain=gain)
    assert_close(got, reference(case, gain=gain), torch.finfo(dtype).eps)
