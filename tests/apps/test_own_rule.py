"""A rule from a file of one's own, named on the command line, among the rules of the app."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from step_page import StepPage

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

RULE = '''
"""The delta rule with half a step."""

from dataclasses import dataclass

from vla.rules import Rule, State, Token, register
from vla.rules.base import matvec, outer


@register
@dataclass(frozen=True)
class Half(Rule):
    name = "half"
    title = "half a step <i>"
    equation = "S ← S + ½ (v − S k) kᵀ"
    source = "a test"
    colour = "#CC79A7"

    def step(self, state: State, token: Token) -> State:
        error = token.v - matvec(state.S, token.k)
        return State(S=state.S + outer(error, token.k) / 2, step=state.step + 1)
'''


def test_it_appears_and_steps_and_ctrl_c_is_quiet(
    start_lab: Callable[..., Any], contexts: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "half.py"
    path.write_text(RULE)
    lab = start_lab("--rule", str(path))
    context = contexts()
    app = StepPage(context, lab.address)
    origin = app.page.get_by_test_id("origin").inner_text()
    assert str(path) in origin
    assert "half" in origin
    box = app.control("rule", "half")
    assert not box.is_checked()
    assert app.query() == {}
    box.check()
    app.page.locator("[data-testid=number][data-lane=half]").first.wait_for()
    assert app.query() == {"rules": "linear,delta,vla,half"}
    shown = app.shown()
    # The first write leaves half of its pair's error, whatever the words.
    app.page.locator("[data-testid=token][data-token='0']").click()
    app.wait_for_step(1)
    shown = app.shown()
    np.testing.assert_allclose(shown["half", "recall_mean"], 0.5, rtol=1e-6)
    assert "half a step <i>" in app.page.get_by_test_id("panel").inner_text()
    front = context.new_page()
    front.goto(lab.address)
    told = front.get_by_role("note").inner_text()
    assert str(path) in told
    assert "half" in told
    assert "runs with the rights of the user" in told
    front.goto(f"{lab.address}stability/")
    front.locator("[data-testid=rule][data-key=half]").wait_for()
    front.close()
    watch = dict(contexts.opened)[context]  # type: ignore[attr-defined]
    assert watch.faults == []
    status, errors = lab.interrupt()
    assert status == 0
    assert errors == ""
    app.page.close()
    watch.faults.clear()  # An open page complains that its server is gone.
