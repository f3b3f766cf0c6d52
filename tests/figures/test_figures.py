"""Every figure draws every trace, shows the trace's own numbers, and says them in words."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from vla import figures
from vla.errors import ArgumentError
from vla.figures.theme import THEMES
from vla.rules import make
from vla.rules.vla import VLA
from vla.theory import overlap_grid, recall_curve, ridge_curve
from vla.tokens import from_pairs, make_stream
from vla.trace import Trace, record

OVER_TIME = (figures.norms, figures.ridge, figures.spectral, figures.forgetting)
AT_STEP = (figures.matrices, figures.ladder)
TRACES = ("trace", "one_step", "long", "overwritten", "external")


def draw(figure, trace: Trace, theme: str = "light") -> go.Figure:
    if figure in OVER_TIME:
        return figure(trace, theme_name=theme)
    return figure(trace, len(trace) - 1, theme_name=theme)


def named(figure: go.Figure, name: str) -> list:
    return [t for t in figure.data if t.name == name or t.legendgroup == name]


CASES = [*((which, "light") for which in TRACES), ("overwritten", "dark")]


@pytest.mark.parametrize(("which", "theme"), CASES)
@pytest.mark.parametrize("figure", [*OVER_TIME, *AT_STEP])
def test_every_figure_draws_every_trace(figure, which, theme, request) -> None:
    trace = request.getfixturevalue(which)
    drawn = draw(figure, trace, theme)
    assert drawn.data
    assert drawn.layout.template.layout.paper_bgcolor == THEMES[theme].paper
    assert len(figures.alt(drawn)) > 20
    assert "$" not in drawn.to_json().replace("$schema", "")
    assert drawn.to_json() == draw(figure, trace, theme).to_json()
    words = repr(drawn.to_dict())
    assert all(lane.title in words for lane in trace.lanes)


def test_a_rule_that_explodes_hides_no_other() -> None:
    """Long keys without normalisation: the delta rule overflows to infinity and NaN."""
    generator = torch.Generator().manual_seed(0)
    k, v = torch.randn(2, 60, 4, generator=generator, dtype=torch.float64)
    trace = record([make("delta", normalise_key=False), "vla"], from_pairs(300 * k, v))
    assert not np.isfinite(trace.lanes[0].norm_S).all()
    assert figures.norms(trace).layout.yaxis.type == "log"
    marks, sound = figures.ladder(trace, 60).data
    assert set(marks.marker.symbol) == {"triangle-right"}
    assert max(marks.x) == 10
    assert np.array_equal(sound.x, trace.lanes[1].recall[60].clip(max=10))
    for figure in (*OVER_TIME, *AT_STEP):
        axes = draw(figure, trace).to_dict()["layout"]
        assert "inf" not in repr([axes[name] for name in axes if "axis" in name])


def test_norms_are_the_traces(trace) -> None:
    drawn = figures.norms(trace)
    for lane in trace.lanes:
        curves = named(drawn, lane.title)
        assert np.array_equal(curves[0].y, lane.norm_S)
        assert len(curves) == (3 if lane.A is not None else 2)
    assert all(np.isfinite(curve.y).all() for curve in drawn.data)


def test_long_curves_are_thinned_but_keep_their_ends(long) -> None:
    curve = figures.norms(long).data[0]
    assert len(curve.x) == 2_000
    assert (curve.x[0], curve.x[-1]) == (0, 2_050)
    assert curve.y[-1] == long.lanes[0].norm_S[-1]


def test_spectral_shows_measured_norms_and_the_published_claim(trace) -> None:
    drawn = figures.spectral(trace)
    lane = trace.lane("vla")
    dots = next(t for t in named(drawn, lane.title) if t.mode == "markers")
    assert np.nanmax(dots.y) == np.nanmax(lane.spectral_svd)
    claim = next(t for t in drawn.data if t.name and "as published" in t.name)
    assert list(claim.y) == [1, 1]
    assert claim.line.dash == "dash"


def test_ridge_marks_the_first_step_apart(trace) -> None:
    drawn = figures.ridge(trace)
    marked = {x for t in drawn.data if t.marker.symbol == "x" for x in t.x}
    assert marked == {lane.parts_at for lane in trace.lanes if lane.parts_at is not None}
    assert "exact RLS never parts" in figures.alt(drawn)
    (label,) = (a for a in drawn.layout.annotations if a.text.startswith("tolerance"))
    assert label.y == pytest.approx(np.log10(trace.tolerance))


def test_matrices_share_a_scale_centred_at_zero(trace) -> None:
    drawn = figures.matrices(trace, 3)
    lanes = [lane for lane in trace.lanes if lane.S.any()]
    assert len(lanes) == len(trace.lanes) - 1  # softmax attention keeps no matrix
    for axis, field in ((drawn.layout.coloraxis2, "A"), (drawn.layout.coloraxis3, "S")):
        stacks = [getattr(lane, field) for lane in lanes if getattr(lane, field) is not None]
        assert axis.cmax == max(np.abs(stack).max() for stack in stacks) == -axis.cmin
    for lane in lanes:
        pictures = {
            t.name: t.z for t in drawn.data if t.name and t.name.endswith(", " + lane.title)
        }
        assert np.array_equal(pictures[f"S, {lane.title}"], lane.S[3])
        assert np.allclose(pictures[f"ΔS, {lane.title}"], lane.S[3] - lane.S[2], atol=0)


def test_a_step_without_matrices_shows_the_last_kept_one(long) -> None:
    kept = int(long.lanes[0].kept[2])
    drawn = figures.matrices(long, kept + 1)
    assert drawn.layout.title.text.startswith(f"Step {kept}:")
    assert not any(t.name and t.name.startswith("ΔS") for t in drawn.data)


def test_ladder_has_a_mark_for_every_pair_stored(trace) -> None:
    drawn = figures.ladder(trace, 4)
    assert len(drawn.data) == len(trace.lanes)
    for lane, dots in zip(trace.lanes, drawn.data, strict=True):
        assert np.array_equal(dots.x, lane.recall[4, :4])


def test_ladder_names_an_overwritten_pair(overwritten) -> None:
    rows = figures.ladder(overwritten, 3).data[0].y
    assert [row.endswith("(overwritten)") for row in rows] == [True, False, False]


def test_forgetting_has_every_error_on_one_scale_from_zero(trace) -> None:
    drawn = figures.forgetting(trace)
    for lane, picture in zip(trace.lanes, drawn.data, strict=True):
        assert np.array_equal(picture.z, lane.recall.T, equal_nan=True)  # nothing overwritten here
        assert np.array_equal(picture.x, lane.kept)
    largest = max(np.nanmax(lane.recall) for lane in trace.lanes)
    assert (drawn.layout.coloraxis.cmin, drawn.layout.coloraxis.cmax) == (0, max(1, largest))


def test_an_overwritten_pair_is_not_blamed_on_anyone(overwritten) -> None:
    picture = figures.forgetting(overwritten).data[0]
    assert np.isnan(picture.z[0]).tolist() == [True, False, False, True]


def test_a_typed_tag_stays_text() -> None:
    trace = record(["vla"], make_stream("words", text="<b>cat: <script>, ? <b>cat"))
    assert figures.ladder(trace, 1).data[0].y[0] == "1  &lt;b&gt;cat → &lt;script&gt;"
    assert figures.matrices(trace, 1).layout.title.text == "Step 1: &lt;b&gt;cat → &lt;script&gt;"
    assert "<script>" in figures.alt(figures.matrices(trace, 1))


def test_an_empty_memory_is_said_to_be_empty(trace) -> None:
    assert figures.alt(figures.ladder(trace, 0)) == "No pair is stored at step 0."
    assert "nothing stored yet" in figures.alt(figures.matrices(trace, 0))


@pytest.mark.parametrize("figure", AT_STEP)
def test_a_step_outside_the_trace_is_refused(figure, trace) -> None:
    with pytest.raises(ArgumentError, match="step"):
        figure(trace, len(trace))


@pytest.mark.parametrize("figure", [*OVER_TIME, *AT_STEP])
def test_an_unknown_theme_is_refused(figure, trace) -> None:
    with pytest.raises(ArgumentError, match="light"):
        draw(figure, trace, "sepia")


def test_lanes_of_one_rule_differ_by_dash_and_as_published_is_dashed(trace) -> None:
    curves = {t.name: t.line.dash for t in figures.ridge(trace).data if t.name}
    vla = [dash for name, dash in curves.items() if name.startswith("VLA")]
    assert sorted(vla) == ["dot", "solid"]


def test_the_published_preset_is_dashed_and_hollow() -> None:
    stream = make_stream("gaussian", n=3, d=4, d_v=4, queries=0)
    curve = figures.norms(record(VLA.as_published(), stream)).data[0]
    assert (curve.line.dash, curve.marker.symbol) == ("dash", "circle-open")


@pytest.mark.parametrize("theme", THEMES)
def test_whitening_draws_the_claim_the_formula_and_the_rule(theme) -> None:
    grid = overlap_grid((0.1, 1.0), points=19)
    drawn = figures.whitening(grid, theme_name=theme)
    claim = next(t for t in drawn.data if t.name.startswith("as published"))
    assert set(claim.y) == {0.0}
    assert claim.marker.symbol == "circle-open"
    measured = [t for t in drawn.data if t.mode == "markers"]
    assert np.array_equal([t.y for t in measured], grid.measured)
    assert "λ0 = 0.1: 0.06" in figures.alt(drawn)


@pytest.mark.parametrize("theme", THEMES)
def test_capacity_draws_every_curve_and_the_width(theme) -> None:
    curves = [recall_curve(make("delta"), (2, 4), d=4, draws=2), ridge_curve((2, 4), d=4, draws=2)]
    drawn = figures.capacity(curves, theme_name=theme)
    assert [t.name for t in drawn.data] == ["DeltaNet", "batch ridge"]
    assert np.array_equal(drawn.data[0].y, curves[0].mean)
    assert drawn.data[1].mode == "markers"
    assert figures.alt(figures.capacity([])) == "No curve."
