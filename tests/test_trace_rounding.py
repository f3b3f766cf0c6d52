"""Drift of lower precisions, against the rule stepped by hand in each."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vla.rules import Token, make
from vla.tokens import make_stream
from vla.trace import record, with_rounding
from vla.trace.file import from_bytes, to_bytes
from vla.trace.rounding import first_passing

RULES = {name: make(name) for name in ("softmax", "linear", "delta", "vla", "rls")}


@pytest.mark.parametrize(
    ("kind", "dtype"), [("gaussian", torch.bfloat16), ("repeated", torch.float64)]
)
def test_errors_are_those_of_a_loop(kind: str, dtype: torch.dtype) -> None:
    """Whatever the trace itself runs in; 260 pairs cross a block's edge."""
    stream = make_stream(kind, n=260, d=6, d_v=5, queries=3)
    trace = with_rounding(record(RULES, stream, dtype=dtype, keep=3), RULES, threshold=0.05)
    for lane in trace.lanes[1:]:
        wanted = {name: loop(lane.rule, stream, name) for name in ("float32", "bfloat16")}
        exact = loop(lane.rule, stream, "float64")
        for name, S in wanted.items():
            gap = (S - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)
            error = getattr(lane, f"error_{name}")
            np.testing.assert_allclose(error[1:], gap.numpy(), rtol=1e-9, atol=1e-15)
            assert error[0] == 0
            past = np.flatnonzero(error > 0.05)
            assert first_passing(lane, name, 0.05) == (past[0] if len(past) else None)
    assert np.isnan(trace.lane("softmax").error_bfloat16).all()  # type: ignore[arg-type]
    assert first_passing(trace.lane("softmax"), "bfloat16", 0.05) is None


def loop(rule: str, stream: object, dtype: str) -> torch.Tensor:
    cast = stream.to(getattr(torch, dtype))  # type: ignore[attr-defined]
    made = make(rule)
    state, rows = made.init(cast.d, cast.d_v, dtype=cast.k.dtype), []
    for t in range(len(cast)):
        if cast.writes[t]:
            state = made.step(state, Token(cast.k[t], cast.v[t], None, cast.u[t]))
        rows.append(state.S.double())
    return torch.stack(rows)


def test_bfloat16_is_the_coarser_one() -> None:
    stream = make_stream("gaussian", n=40, d=8)
    trace = with_rounding(record(RULES, stream), RULES)
    for lane in trace.lanes[1:]:
        assert lane.error_float32 is not None
        assert lane.error_bfloat16 is not None
        assert 0 < lane.error_float32[-1] < 1e-5
        assert 1e-3 < lane.error_bfloat16[-1] < 0.2


def test_it_survives_its_file_and_bad_thresholds_are_refused() -> None:
    trace = with_rounding(record(["vla"], make_stream("words")), {"vla": RULES["vla"]})
    back = from_bytes(to_bytes(trace))
    assert back.threshold == trace.threshold == 0.01
    np.testing.assert_array_equal(back.lanes[0].error_bfloat16, trace.lanes[0].error_bfloat16)
    with pytest.raises(ValueError, match="threshold"):
        with_rounding(trace, {"vla": RULES["vla"]}, threshold=0)
