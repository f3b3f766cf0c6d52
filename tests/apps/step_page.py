"""The stepping app as a person sees it: what to press, what to read."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np

from vla.scene import Scene
from vla.trace import Trace

NUMBERS = (
    "norm_error", "cosine", "delta", "norm_dS", "spectral_svd", "spectral_closed", "recall_mean",
)  # fmt: skip


class StepPage:
    """One page of the app. Every method waits for what it names."""

    def __init__(self, context: Any, address: str, query: dict[str, str] | None = None) -> None:
        self.page = context.new_page()
        self.page.goto(f"{address}step/?{urlencode(query or {})}")
        self.stepper = self.page.get_by_test_id("stepper")
        self.stepper.wait_for()
        self.page.get_by_test_id("panel").wait_for()
        self.page.get_by_text("All apps").wait_for()

    def query(self) -> dict[str, str]:
        """The scene's part of the address."""
        given = parse_qs(urlsplit(self.page.url).query, keep_blank_values=True)
        return {key: values[-1] for key, values in given.items() if key != "file"}

    def wait_for_scene(self, scene: Scene) -> None:
        """Until the address says exactly this scene."""
        wanted = scene.to_query()
        self.page.wait_for_function(
            """wanted => {
                const here = Object.fromEntries(new URLSearchParams(location.search));
                delete here.file;
                const names = Object.keys(wanted);
                return names.length === Object.keys(here).length
                    && names.every(name => here[name] === wanted[name]);
            }""",
            arg=wanted,
        )

    def step(self) -> int:
        return int(self.stepper.get_attribute("data-step"))

    def wait_for_step(self, step: int, timeout: float = 20_000) -> None:
        self.page.locator(f"[data-testid=stepper][data-step='{step}']").wait_for(timeout=timeout)

    def notes(self) -> list[str]:
        return self.page.get_by_test_id("notes").locator("p").all_inner_texts()

    def wait_for_note(self, text: str) -> None:
        self.page.get_by_test_id("notes").get_by_text(text).first.wait_for()

    def wait_for_no_note(self) -> None:
        self.page.wait_for_function(
            "node => node.childElementCount === 0",
            arg=self.page.get_by_test_id("notes").element_handle(),
        )

    def shown(self) -> dict[tuple[str, str], float]:
        """Every number on screen by lane and name, at full precision. Hidden lanes have none."""
        rows = self.page.get_by_test_id("number").evaluate_all(
            "nodes => nodes.map(n => [n.dataset.lane, n.dataset.number, n.dataset.value])"
        )
        return {
            (lane, name): float(value)
            for lane, name, value in rows
            if name in NUMBERS and value is not None
        }

    def control(self, kind: str, key: str) -> Any:
        return self.page.locator(f"[data-testid='{kind}'][data-key='{key}']")

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def question(self) -> str:
        return str(self.page.locator(".words h1").inner_text())

    def wait_for_question(self, question: str) -> None:
        self.page.locator(".words h1", has_text=re.compile(re.escape(question))).wait_for()


def expected(trace: Trace, step: int) -> dict[tuple[str, str], float]:
    """The numbers that the stepper should show, from the library's trace."""
    return {
        (lane.rule, name): float(getattr(lane, name)[step])
        for lane in trace.lanes
        for name in NUMBERS
    }


def assert_same(shown: dict[Any, float], wanted: dict[Any, float]) -> None:
    """Equal up to the float32 in which frames travel; NaN where the trace has NaN."""
    assert shown.keys() == wanted.keys()
    names = list(wanted)
    np.testing.assert_allclose(
        [shown[name] for name in names], [wanted[name] for name in names],
        rtol=1e-6, atol=1e-12, equal_nan=True, err_msg=str(names),
    )  # fmt: skip
