"""The Triton kernels against the float64 token loop, forward and every gradient, outputs poisoned.

On a GPU the whole matrix runs. Without one, one test runs this file again in a process of its own
with ``TRITON_INTERPRET=1`` (which must be set before triton is imported) and the small sizes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.ops.oracle import assert_close, make_case, poisoned, reference, relative_error, results
from vla.ops import VLAState, delta_rule, linear_attention, vla_attention

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
GPU = torch.cuda.is_available() and not INTERPRETED
DEVICE = "cuda" if GPU else "cpu"
EPSILON = torch.finfo(torch.float32).eps
ROOT = Path(__file__).parents[2]

live = pytest.mark.skipif(not (GPU or INTERPRETED), reason="runs interpreted in a subprocess")
gpu = pytest.mark.gpu
BOUNDS = {"auto": 1e-5, "ieee": 1e-5, "tf32x3": 1e-5, "tf32": 2e-3}
HALF = {torch.bfloat16: 1e-2, torch.float16: 2e-3}


@pytest.fixture(autouse=True)
def _the_device():
    if torch.cuda.is_available() and INTERPRETED:
        pytest.skip("interpreted runs are for machines without a GPU")


@pytest.fixture(autouse=True)
def _rounding_as_on_hardware(monkeypatch):
    """Triton's interpreter truncates float32 to bfloat16; the hardware rounds to nearest."""
    if not INTERPRETED:
        return
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    plain = interpreter._convert_float

    def convert(data, source, target, mode):
        if (source, target) != (tl.float32, tl.bfloat16):
            return plain(data, source, target, mode)
        bits = np.frombuffer(data.tobytes(), dtype=np.uint32).astype(np.uint64)
        nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        nearest[(bits & 0x7FFFFFFF) > 0x7F800000] = 0x7FC0
        return nearest.reshape(data.shape)

    monkeypatch.setattr(interpreter, "_convert_float", convert)


def check(case, op=vla_attention, *, dtype=torch.float32, bound=None, precision="auto", **options):
    """Kernel results of ``case`` in ``dtype`` within ``bound`` of the float64 loop's."""
    case = case.to(dtype)
    bound = bound or HALF.get(dtype, BOUNDS[precision])
    with poisoned():
        got = results(case.to(DEVICE), op, backend="triton", precision=precision, **options)
    assert_close(got, _nothing_is_zero(reference(case, op, **options)), bound)


def _nothing_is_zero(tensors):
    """Where the loop leaves 1e-30 (its β under the root) the error is absolute, not relative."""
    return {n: torch.zeros_like(x) if x.norm() < 1e-12 else x for n, x in tensors.items()}


@pytest.mark.skipif(GPU or INTERPRETED, reason="the tests below run directly")
@pytest.mark.timeout(400)
def test_interpreted():
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(f"tests/ops/{name}.py" for name in ("test_kernels", "test_gated_kernel"))],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert " failed" not in done.stdout


@live
@pytest.mark.parametrize("tokens", [1, 16, 17, 33])
def test_ragged_lengths(tokens):
    check(make_case(tokens=tokens, batch=1, heads=2))


@live
@pytest.mark.parametrize("own_u", [False, True])
@pytest.mark.parametrize(("gain", "refresh"), [("unit", 7), ("rls", 0), ("oblique", 20)])
def test_rules(gain, refresh, own_u):
    case = make_case(tokens=23, batch=1, heads=1, own_u=own_u)
    check(case, gain=gain, refresh_every=refresh, lambda0=0.5)


@live
@pytest.mark.parametrize("gate", [False, True])
def test_without_a_state(gate):
    check(make_case(tokens=20, batch=1, heads=1, state=False, gate=gate, own_u=False))


@live
@pytest.mark.parametrize("kind", ["zero_u", "beta_zero", "beta_one", "near_duplicates"])
def test_degenerate_inputs(kind):
    check(make_case(kind, tokens=18, batch=1, heads=1, own_u=False, state=False), gain="rls")


@live
@pytest.mark.parametrize(("rank", "gain", "refresh"), [(2, "unit", 3), (4, "rls", 0)])
def test_several_directions(rank, gain, refresh):
    case = make_case(tokens=9, batch=1, heads=2, rank=rank)
    check(case, gain=gain, refresh_every=refresh, refresh_eps=0.05)


@live
def test_lambda0_of_each_head_and_its_gradient():
    case = make_case(tokens=9, batch=2, heads=2, state=False).to(torch.float32)

    def run(backend, dtype, device):
        lambda0 = torch.tensor([0.1, 2.0], dtype=dtype, device=device, requires_grad=True)
        sequences = (x.to(device=device, dtype=dtype) for x in case[:5])
        o, _ = vla_attention(*sequences, lambda0=lambda0, backend=backend)
        return o, torch.autograd.grad(o.square().sum(), lambda0)[0]

    got, wanted = run("triton", torch.float32, DEVICE), run("scan", torch.float64, "cpu")
    assert max(map(relative_error, got, wanted)) < 1e-5


@live
@pytest.mark.parametrize(("width", "value_width"), [(32, 20), (64, 64), (128, 16)])
def test_widths(width, value_width):
    case = make_case(tokens=20, batch=1, heads=1, width=width, value_width=value_width)
    check(case, gain="oblique")


@live
@pytest.mark.parametrize("own_u", [False, True])
@pytest.mark.parametrize("state", [False, True])
def test_segments(own_u, state, monkeypatch):
    """Several segments of A, each started from the inverse of its own M."""
    from vla.ops.kernels import plan

    monkeypatch.setattr(plan, "SHORTEST_SEGMENT", 64)
    plan.cut.cache_clear()
    case = make_case(tokens=150, batch=1, heads=1, own_u=own_u, state=state)
    assert plan.cut(1, 150, tile=16, period=0, step=0).segments == 2
    check(case)
    plan.cut.cache_clear()


@live
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits(dtype):
    check(make_case(tokens=40, batch=1, heads=1, width=32), dtype=dtype, gain="rls")


@live
@pytest.mark.parametrize("precision", ["ieee", "tf32x3", "tf32"])
def test_precisions(precision):
    check(make_case(tokens=40, batch=1, heads=1), precision=precision)


@live
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("op", [delta_rule, linear_attention])
def test_family(op, state):
    check(make_case(tokens=33, batch=1, heads=2, own_u=False, state=state, value_width=24), op)


@live
@pytest.mark.parametrize(("split", "refresh"), [(1, 0), (16, 7), (23, 20)])
def test_a_split_continues_exactly(split, refresh):
    case = make_case(tokens=40, batch=1, heads=1).to(torch.float32).to(DEVICE)
    options = {"refresh_every": refresh, "output_final_state": True, "backend": "triton"}
    whole, end = vla_attention(*case[:5], **options)
    first, state = vla_attention(*(x[:, :split] for x in case[:5]), **options)
    rest, last = vla_attention(*(x[:, split:] for x in case[:5]), initial_state=state, **options)
    assert relative_error(torch.cat([first, rest], 1), whole) < 2e-6
    assert relative_error(last.S, end.S) < 2e-6
    assert last.step == end.step == 40


@live
def test_strided_inputs():
    """Heads-first tensors seen through a transpose, and rows that are not contiguous."""
    case = make_case(tokens=20, batch=2, heads=2, state=False).to(torch.float32).to(DEVICE)
    strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in case[:5]]
    strided[0] = case.q.mT.contiguous().mT
    assert not any(x.is_contiguous() for x in strided)
    wanted, _ = vla_attention(*case[:5], backend="triton")
    got, _ = vla_attention(*strided, backend="triton")
    assert torch.equal(got, wanted)


@live
def test_only_the_state_is_used():
    """No gradient reaches ``o``: it counts as zero."""
    case = make_case(tokens=20, batch=1, heads=1)
    grads = []
    for device, backend in (("cpu", "scan"), (DEVICE, "triton")):
        moved = case.to(torch.float64 if backend == "scan" else torch.float32).to(device)
        k = moved.k.requires_grad_()
        start = VLAState(moved.S, moved.A, moved.step)
        _, state = vla_attention(
            moved.q, k, *moved[2:5], initial_state=start, output_final_state=True, backend=backend
        )
        grads.append(torch.autograd.grad(state.S.sum(), k)[0])
    assert relative_error(grads[1], grads[0]) < 1e-5


@live
def test_torch_compile():
    """One graph, no break, the same numbers forward and backward."""
    case = make_case(tokens=20, batch=1, heads=1, state=False).to(torch.float32).to(DEVICE)
    leaves = [x.requires_grad_() for x in case[:5]]

    def loss(*tensors):
        return vla_attention(*tensors, backend="triton")[0].square().sum()

    wanted = torch.autograd.grad(loss(*leaves), leaves)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    got = torch.autograd.grad(compiled(*leaves), leaves)
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


@live
def test_repeated_calls_agree_to_the_bit():
    case = make_case(tokens=100 if GPU else 20, batch=1, heads=1).to(torch.float32).to(DEVICE)
    first, second = (results(case, backend="triton") for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_supports_says_why():
    from vla.ops.kernels import supports

    q = torch.zeros(1, 4, 1, 48, device=DEVICE)
    reason = supports(q, q)
    assert reason
    assert ("GPU" in reason) if not (GPU or INTERPRETED) else ("48" in reason)


LENGTHS = [1, 2, 15, 16, 17, 63, 64, 65, 100, 1000, 4097]


@gpu
@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
class TestOnTheGpu:
    @pytest.mark.parametrize("width", [32, 64])
    @pytest.mark.parametrize("tokens", LENGTHS)
    def test_ragged_lengths(self, tokens, width):
        check(make_case(tokens=tokens, batch=1, width=width, own_u=False), gain="rls")

    @pytest.mark.parametrize("tokens", [1, 17, 65, 1000])
    def test_ragged_lengths_bfloat16(self, tokens):
        case = make_case(tokens=tokens, batch=1, width=64)
        check(case, dtype=torch.bfloat16, refresh_every=0)

    @pytest.mark.parametrize("own_u", [False, True])
    @pytest.mark.parametrize("refresh", [0, 7, 20])
    @pytest.mark.parametrize("gain", ["unit", "rls", "oblique"])
    def test_every_rule(self, gain, refresh, own_u):
        case = make_case(tokens=100, own_u=own_u, width=32)
        check(case, gain=gain, refresh_every=refresh)

    @pytest.mark.parametrize("lambda0", [1e-3, 0.1, 10.0])
    @pytest.mark.parametrize("kind", ["gaussian", "elu", "near_duplicates", "repeated", "zero_u"])
    def test_kinds(self, kind, lambda0):
        case = make_case(kind, tokens=200, width=32, own_u=kind == "zero_u", state=False)
        hard = lambda0 < 0.1 or kind in ("near_duplicates", "repeated", "elu")
        check(case, lambda0=lambda0, bound=max(1e-5, 4 * EPSILON * 200 / lambda0) if hard else 1e-5)

    @pytest.mark.parametrize("lambda0", [0.1, 10.0])
    def test_ten_thousand_repeats(self, lambda0):
        """One key for ever: ``A`` is λ0⁻¹ across it and 1/t along it, so its condition is 1 + t/λ0.

        No worse than float32's loop, or than ε times that condition, an inverse's rounding error.
        (At λ0 = 0.1 the loop is off by 6e-2 in ``S``; on an H200 the kernel was off by 6e-4 in
        ``A``, which the loop keeps to 2e-5.)
        """
        case = make_case("repeated", tokens=10_000, batch=1, heads=1, own_u=False, state=False)
        case = case.to(torch.float32)
        options = {"lambda0": lambda0, "gradients": False}
        wanted = reference(case, **options)
        loop = results(case, backend="scan", **options)
        got = results(case.to(DEVICE), backend="triton", **options)
        for name, exact in wanted.items():
            bound = max(relative_error(loop[name], exact), EPSILON * (1 + 10_000 / lambda0))
            assert relative_error(got[name], exact) <= bound, name

    @pytest.mark.parametrize("width", [16, 32, 64, 128])
    @pytest.mark.parametrize("precision", ["ieee", "tf32x3", "tf32"])
    def test_precisions(self, precision, width):
        if (precision, width) == ("ieee", 128):
            pytest.skip("128-wide float32 products without tensor cores take minutes to compile")
        check(make_case(tokens=150, width=width), precision=precision)

    @pytest.mark.parametrize("width", [16, 32, 64, 128])
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_sixteen_bits(self, dtype, width):
        check(make_case(tokens=200, width=width, own_u=False), dtype=dtype)

    @pytest.mark.parametrize("op", [delta_rule, linear_attention])
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
    def test_family(self, op, dtype):
        check(make_case(tokens=300, width=64, own_u=False), op, dtype=dtype)

    def test_cuda_graph(self):
        """Capture forward and backward, replay on new numbers, compare with a direct call."""
        case = make_case(tokens=700, width=64, own_u=False, state=False)
        inputs = [x.requires_grad_() for x in case.to(torch.float32).to(DEVICE)[:3]]

        def step():
            o, _ = vla_attention(*inputs, backend="triton")
            return (o, *torch.autograd.grad(o.square().sum(), inputs))

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()
        with torch.no_grad():
            inputs[2].mul_(0.5).add_(1.0)
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(captured, step(), strict=True))
