"""The notebooks in JupyterLab itself, driven by a real browser with the network blocked."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
BOOK = "01_from_linear_attention_to_vla.ipynb"
MINUTE = 60_000

CELLS = "window.jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code')"
STATE = f"""() => ({CELLS}).map(cell => ({{
    id: cell.model.id,
    count: cell.model.executionState === 'running' ? null : cell.model.executionCount,
    error: cell.model.outputs.toJSON().filter(o => o.output_type === 'error').map(o => o.evalue),
}}))"""
STARTED = f"() => !({STATE})().every(cell => cell.count)"
DONE = f"""() => {{
    const cells = ({STATE})();
    return cells.every(cell => cell.count) || cells.some(cell => cell.error.length);
}}"""
READY = """() => {
    const panel = window.jupyterapp?.shell.currentWidget;
    return panel?.content?.widgets?.length > 20
        && panel.sessionContext.session?.kernel?.status === 'idle';
}"""
SHOW = """id => {
    const content = window.jupyterapp.shell.currentWidget.content;
    const index = content.widgets.findIndex(cell => cell.model.id === id);
    content.activeCellIndex = index;
    return content.scrollToItem(index, 'start');
}"""


@pytest.fixture(scope="module")
def page(browser, jupyterlab):
    """The notebook opened and run from top to bottom."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(MINUTE)
    page.errors = []
    page.route("**/*", lambda route: _only_here(route, jupyterlab))
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.goto(f"{jupyterlab}/lab/tree/{BOOK}?reset", wait_until="domcontentloaded")
    page.wait_for_function(READY)
    # The braces keep the promise from being awaited: cells run for longer than a call may take.
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    page.wait_for_function(STARTED)
    page.wait_for_function(DONE, timeout=3 * MINUTE)
    yield page
    page.close()


def _only_here(route, server: str) -> None:
    here = route.request.url.startswith((server, server.replace("http", "ws"), "data:", "blob:"))
    route.continue_() if here else route.abort()


def cell(page, name: str):
    """The output of a cell, scrolled into view."""
    page.evaluate(SHOW, name)
    index = page.evaluate(
        "id => window.jupyterapp.shell.currentWidget.content.widgets"
        ".findIndex(cell => cell.model.id === id)",
        name,
    )
    return page.locator(f".jp-Notebook-cell[data-windowed-list-index='{index}']")


@pytest.mark.browser
@pytest.mark.slow
class TestJupyterLab:
    def test_runs_from_top_to_bottom(self, page) -> None:
        state = page.evaluate(STATE)
        assert not [c for c in state if c["error"]]
        assert [c["count"] for c in state] == list(range(1, len(state) + 1))

    def test_figures_are_drawn(self, page) -> None:
        for name in ("growth", "whitening", "ridge", "load-curves", "spectral"):
            plot = cell(page, name).locator(".js-plotly-plot").first
            plot.wait_for()
            assert plot.locator("svg.main-svg").first.bounding_box()["width"] > 300

    def test_a_slider_redraws_its_figure(self, page) -> None:
        shown = cell(page, "interference")
        error = "plot => plot.calcdata[0][0].x"
        plot = shown.locator(".js-plotly-plot")
        plot.wait_for()
        before = plot.evaluate(error)
        assert before == pytest.approx(0.6)
        handle = shown.locator(".noUi-handle").first
        handle.focus()
        handle.press("ArrowRight")
        page.wait_for_function(
            "() => [...document.querySelectorAll('.js-plotly-plot')]"
            ".some(plot => Math.abs(plot.calcdata[0][0].x - 0.61) < 1e-9)"
        )

    def test_the_stepper_steps(self, page) -> None:
        stepper = cell(page, "stepper").locator("[data-testid=stepper]")
        stepper.wait_for()
        assert stepper.get_attribute("data-step") == "3"
        stepper.locator("canvas").first.wait_for()
        stepper.press("ArrowRight")
        page.locator("[data-testid=stepper][data-step='4']").wait_for()

    def test_an_exercise_answers(self, page) -> None:
        assert "Not yet" in cell(page, "exercise-1-answer").locator(".jp-OutputArea").inner_text()

    def test_nothing_broke_in_the_page(self, page) -> None:
        assert not page.errors
