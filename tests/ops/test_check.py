"""Bad input: one ValueError that names the argument and says what to do."""

import pytest
import torch

from vla.errors import ArgumentError
from vla.ops import VLAState, decode_step, delta_rule, linear_attention, vla_attention

B, T, H, D, DV = 2, 5, 3, 4, 6


def call(**changes):
    given = {
        "q": torch.ones(B, T, H, D),
        "k": torch.ones(B, T, H, D),
        "v": torch.ones(B, T, H, DV),
        "u": torch.ones(B, T, H, D),
        "beta": torch.ones(B, T, H),
    }
    return vla_attention(**(given | changes))


def state(**changes):
    return VLAState(torch.zeros(B, H, DV, D), torch.eye(D).repeat(B, H, 1, 1), 0)._replace(
        **changes
    )


BAD = {
    "rank of q": ({"q": torch.ones(T, H, D)}, "q", "4 axes"),
    "rank of beta": ({"beta": torch.ones(B, T, H, 1)}, "beta", "3 axes"),
    "k of another length": ({"k": torch.ones(B, T + 1, H, D)}, "k.shape", "(2, 5, 3, 4)"),
    "k of another width": ({"k": torch.ones(B, T, H, D + 1)}, "k.shape", "the shape of q"),
    "v with other heads": ({"v": torch.ones(B, T, H + 1, DV)}, "v.shape", "heads of q"),
    "u of another width": ({"u": torch.ones(B, T, H, D + 1)}, "u.shape", "shape of q and k"),
    "five directions": ({"u": torch.ones(B, T, H, 5, D)}, "u.shape", "1 to 4 directions"),
    "no directions": ({"u": torch.ones(B, T, H, 0, D)}, "u.shape", "1 to 4 directions"),
    "directions behind the width": ({"u": torch.ones(B, T, H, D, 2)}, "u.shape", "(2, 5, 3, 4, 4)"),
    "rank of u": ({"u": torch.ones(B, T, D)}, "u", "or 5 with up to 4 directions"),
    "beta transposed": ({"beta": torch.ones(B, H, T)}, "beta.shape", "time"),
    "width 0": (
        {n: torch.ones(B, T, H, 0) for n in "qku"},
        "q.shape",
        "at least 1",
    ),
    "value width 0": ({"v": torch.ones(B, T, H, 0)}, "v.shape", "at least 1"),
    "a list": ({"q": [[1.0]]}, "q", "torch.Tensor"),
    "integers": ({"k": torch.ones(B, T, H, D, dtype=torch.long)}, "k", ".float()"),
    "mixed dtypes": ({"v": torch.ones(B, T, H, DV).double()}, "v.dtype", ".to(q.dtype)"),
    "mixed devices": ({"k": torch.ones(B, T, H, D, device="meta")}, "k.device", ".to(q.device)"),
    "lambda0 zero": ({"lambda0": 0.0}, "lambda0", "> 0"),
    "lambda0 negative": ({"lambda0": -1.0}, "lambda0", "> 0"),
    "lambda0 infinite": ({"lambda0": float("inf")}, "lambda0", "finite"),
    "lambda0 a word": ({"lambda0": "0.1"}, "lambda0", "finite number"),
    "lambda0 of other heads": ({"lambda0": torch.ones(H + 1)}, "lambda0.shape", "(3,)"),
    "lambda0 without heads": (
        {"lambda0": torch.tensor(0.1)},
        "lambda0.shape",
        "plain number",
    ),
    "lambda0 in whole numbers": (
        {"lambda0": torch.ones(H, dtype=torch.long)},
        "lambda0.dtype",
        "floating",
    ),
    "lambda0 elsewhere": ({"lambda0": torch.ones(H, device="meta")}, "lambda0.device", "of q"),
    "lambda0 zero at a head": (
        {"lambda0": torch.tensor([1.0, 0.0, 1.0]), "check": True},
        "lambda0",
        "finite numbers > 0",
    ),
    "unknown gain": ({"gain": "kalman"}, "gain", "'oblique'"),
    "unknown backend": ({"backend": "cuda"}, "backend", "'chunk'"),
    "unknown precision": ({"precision": "fp8"}, "precision", "'tf32x3'"),
    "negative refresh": ({"refresh_every": -1}, "refresh_every", "at least 0"),
    "half a token": ({"refresh_every": 2.5}, "refresh_every", "whole number"),
    "negative refresh size": ({"refresh_eps": -1e-3}, "refresh_eps", "≥ 0"),
    "chunk size 0": ({"chunk_size": 0}, "chunk_size", "at least 1"),
    "a tuple for a state": ({"initial_state": (1, 2, 3)}, "initial_state", "VLAState"),
    "S of another shape": (
        {"initial_state": state(S=torch.zeros(B, H, D, DV))},
        "initial_state.S.shape",
        "(2, 3, 6, 4)",
    ),
    "A of another shape": (
        {"initial_state": state(A=torch.eye(D))},
        "initial_state.A.shape",
        "(2, 3, 4, 4)",
    ),
    "a delta rule's state": (
        {"initial_state": state(A=None)},
        "initial_state.A",
        "a tensor of shape (2, 3, 4, 4)",
    ),
    "A in float64": (
        {"initial_state": state(A=torch.eye(D).repeat(B, H, 1, 1).double())},
        "initial_state.A.dtype",
        "torch.float32",
    ),
    "S elsewhere": (
        {"initial_state": state(S=torch.zeros(B, H, DV, D, device="meta"))},
        "initial_state.S.device",
        "device of q",
    ),
    "step negative": ({"initial_state": state(step=-1)}, "initial_state.step", "at least 0"),
    "NaN in v": (
        {"v": torch.full((B, T, H, DV), float("nan")), "check": True},
        "v",
        "180 of 180 entries not finite",
    ),
    "infinite state": (
        {"initial_state": state(S=torch.full((B, H, DV, D), float("inf"))), "check": True},
        "initial_state.S",
        "finite",
    ),
    "negative gate": (
        {"u": None, "beta": -torch.ones(B, T, H), "check": True},
        "beta",
        "entries ≥ 0",
    ),
}


@pytest.mark.parametrize(("changes", "name", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_named(changes, name: str, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(**changes)
    message = str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert message.startswith(f"{name}: got ")
    assert words in message


def test_unchecked_nan_shows_in_the_output() -> None:
    """Without check=True nothing raises, and nothing hides it either."""
    for backend in ("scan", "chunk"):
        for name in ("q", "k", "v", "u", "beta"):
            size = {"v": (B, T, H, DV), "beta": (B, T, H)}.get(name, (B, T, H, D))
            o, _ = call(**{name: torch.full(size, float("nan"))}, backend=backend)
            assert o.isnan().any()


def test_a_negative_gate_is_fine_beside_an_own_direction() -> None:
    call(beta=-torch.ones(B, T, H), check=True)


@pytest.mark.parametrize("op", [delta_rule, linear_attention])
def test_the_family_checks_the_same(op) -> None:
    x = torch.ones(B, T, H, D)
    with pytest.raises(ArgumentError, match=r"k\.shape: got"):
        op(x, torch.ones(B, T, H, D + 1), x)
    with pytest.raises(ArgumentError, match="A: got 'a tensor', wanted None"):
        op(x, x, torch.ones(B, T, H, DV), initial_state=state())
    with pytest.raises(ArgumentError, match="backend: got 'associative'"):
        op(x, x, x, backend="associative")
    with pytest.raises(ArgumentError, match="v: got '60 of 60"):
        op(x[:1], x[:1], x[:1] * float("nan"), check=True)


def test_decoding_checks_the_same() -> None:
    x = torch.ones(B, H, D)
    with pytest.raises(ArgumentError, match="lambda0"):
        decode_step(x, x, x, lambda0=0.0)
    with pytest.raises(ArgumentError, match=r"u\.shape"):
        decode_step(x, x, x, torch.ones(B, H, D + 1))
