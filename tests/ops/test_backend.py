"""Which backend runs, and why."""

import sys
import types

import pytest
import torch

import vla.ops
from vla.errors import ArgumentError
from vla.ops import choose_backend, delta_rule, linear_attention, vla_attention
from vla.ops.backend import SCAN_TOKENS
from vla.ops.state import VLAState


class OnGPU(torch.Tensor):
    """A tensor that says it lies on a GPU."""

    is_cuda = True


def sequences(tokens: int, *, gpu: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    q, v = torch.zeros(1, tokens, 1, 16), torch.zeros(1, tokens, 1, 16)
    return (q.as_subclass(OnGPU), v.as_subclass(OnGPU)) if gpu else (q, v)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Kernels that support everything and record how they were called."""
    module = types.ModuleType("vla.ops.kernels")
    module.calls = []
    module.supports = lambda *_: None

    def entry(name):
        def run(*args, **kwargs):
            module.calls.append((name, args, kwargs))
            state = VLAState(torch.ones(1, 1, 16, 16), torch.ones(1, 1, 16, 16), 5)
            return args[2], state if kwargs["output_final_state"] else None

        return run

    for name in ("vla_attention_triton", "delta_rule_triton", "linear_attention_triton"):
        setattr(module, name, entry(name))
    monkeypatch.setattr(vla.ops, "kernels", module, raising=False)
    return module


@pytest.mark.parametrize("name", ["scan", "associative", "chunk"])
def test_asked_for_is_used(name: str) -> None:
    assert choose_backend(*sequences(100), name) == (name, "asked for")


def test_on_a_cpu_by_length() -> None:
    name, reason = choose_backend(*sequences(SCAN_TOKENS))
    assert name == "scan"
    assert "CPU" in reason
    name, reason = choose_backend(*sequences(SCAN_TOKENS + 1))
    assert name == "chunk"
    assert "CPU" in reason


@pytest.mark.usefixtures("kernels")
def test_on_a_gpu_the_kernels() -> None:
    assert choose_backend(*sequences(100, gpu=True))[0] == "triton"
    assert choose_backend(*sequences(1, gpu=True))[0] == "triton"


def test_what_the_kernels_refuse_falls_back_with_their_reason(kernels: types.ModuleType) -> None:
    kernels.supports = lambda *_: "a head width of 48"
    assert choose_backend(*sequences(100, gpu=True)) == ("chunk", "no Triton: a head width of 48")
    name, reason = choose_backend(*sequences(1, gpu=True))
    assert name == "scan"
    assert "a head width of 48" in reason
    with pytest.raises(ArgumentError, match="a head width of 48"):
        choose_backend(*sequences(100), "triton")


def test_without_kernels_it_falls_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(vla.ops, "kernels", raising=False)
    monkeypatch.setitem(sys.modules, "vla.ops.kernels", None)
    name, reason = choose_backend(*sequences(100, gpu=True))
    assert name == "chunk"
    assert "not installed" in reason
    with pytest.raises(ArgumentError, match="backend: got 'triton'"):
        choose_backend(*sequences(100), "triton")


def test_triton_on_a_cpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    x = torch.zeros(1, 5, 1, 16)
    for op in (vla_attention, delta_rule, linear_attention):
        with pytest.raises(ArgumentError, match="backend: got 'triton'"):
            op(x, x, x, backend="triton")


@pytest.mark.parametrize(
    ("width", "dtype", "words"),
    [(48, torch.float32, "width 48"), (16, torch.float64, "float64 is not supported")],
)
def test_what_the_kernels_cannot_run_is_named(
    width: int, dtype: torch.dtype, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    x = torch.zeros(1, 5, 1, width, dtype=dtype)
    with pytest.raises(ArgumentError, match=words):
        vla_attention(x, x, x, backend="triton")
    assert choose_backend(x, x)[0] == "chunk"


def test_the_kernels_get_what_was_given(kernels: types.ModuleType) -> None:
    q = torch.zeros(1, 5, 1, 16)
    start = VLAState(torch.zeros(1, 1, 16, 16), torch.eye(16)[None, None], 3)
    rule = {"lambda0": 0.2, "gain": "rls", "refresh_every": 7, "refresh_eps": 0.1}
    vla_attention(q, q, q, backend="triton", precision="tf32", initial_state=start, **rule)
    name, args, kwargs = kernels.calls[0]
    assert name == "vla_attention_triton"
    assert args[3:] == (None, None)
    assert kwargs.pop("initial_state").step == 3
    assert kwargs == rule | {"precision": "tf32", "output_final_state": False}


@pytest.mark.parametrize("op", [delta_rule, linear_attention])
def test_the_family_gets_its_kernels(kernels: types.ModuleType, op) -> None:
    q = torch.zeros(1, 5, 1, 16)
    start = VLAState(torch.zeros(1, 1, 16, 16), None, 3)
    _, state = op(q, q, q, backend="triton", initial_state=start, output_final_state=True)
    name, _, kwargs = kernels.calls[0]
    assert name == f"{op.__name__}_triton"
    assert kwargs["precision"] == "auto"
    assert (state.A, state.step) == (None, 8)


def test_importing_the_operations_imports_no_triton() -> None:
    import subprocess

    code = "import sys, vla.ops; print('triton' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
