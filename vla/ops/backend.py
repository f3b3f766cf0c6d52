"""Which implementation runs a call, and why."""

from types import ModuleType

from vla.errors import ArgumentError
from vla.typing import Tensor

# On a CPU the token loop is the faster one up to this many tokens (`python -m vla.bench.cpu`).
SCAN_TOKENS = 2


def choose_backend(q: Tensor, v: Tensor, backend: str = "auto") -> tuple[str, str]:
    """The name of the backend that runs ``q [b,t,h,d]``, ``v [b,t,h,dv]``, and the reason.

    A backend asked for by name is used, or refused. ``"auto"``:

    1. on a GPU, ``triton`` where the kernels support the dtype and the widths;
    2. otherwise ``scan`` for up to ``SCAN_TOKENS`` tokens, where the chunk form cannot pay;
    3. otherwise ``chunk``.

    :raises ArgumentError: ``backend="triton"`` where the kernels cannot run.
    """
    if backend == "triton":
        _require_triton(q, v)
    if backend != "auto":
        return backend, "asked for"
    obstacle = _triton_obstacle(q, v) if q.is_cuda else "a CPU tensor"
    if obstacle is None:
        return "triton", "a GPU tensor that the kernels support"
    if q.shape[1] <= SCAN_TOKENS:
        return "scan", f"no Triton: {obstacle}; at most {SCAN_TOKENS} tokens"
    return "chunk", f"no Triton: {obstacle}"


def kernels() -> ModuleType:
    """The Triton kernels, imported when first needed, by a statement that torch.compile follows."""
    from vla.ops import kernels as module

    return module


def _require_triton(q: Tensor, v: Tensor) -> None:
    obstacle = _triton_obstacle(q, v)
    if obstacle is not None:
        raise ArgumentError(
            "backend", "triton", "inputs that the kernels can run", f"{obstacle}. Use 'auto'."
        )


def _triton_obstacle(q: Tensor, v: Tensor) -> str | None:
    """Why the kernels cannot run, or ``None``. ``kernels.supports(q, v)`` knows the details."""
    try:
        supports = kernels().supports
    except (ImportError, AttributeError) as error:
        return f"the kernels are not installed ({error})"
    return supports(q, v)
