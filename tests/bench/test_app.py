"""The table of latencies covers every app, each with a control that its scene has."""

from pathlib import Path

import pytest

from vla import home, lab
from vla.bench import app

APPS = lab.find_apps()


def test_every_app_is_measured():
    assert {case.slug for case in app.cases(APPS)} == {each.slug for each in APPS}
    other = lab.App(Path("99_new_one.py"), "New", "is it?")
    assert app.cases([other]) == [app.Case("new-one", "first scene", {})]


@pytest.mark.parametrize("case", app.CASES, ids=lambda case: f"{case.slug}-{case.key}")
def test_a_case_turns_a_knob_of_its_scene(case):
    table = type(next(iter(home.prepared(case.slug).values())).scene)
    scene, messages = table.from_query(case.query)
    assert messages == []
    assert case.key in {knob.key for knob in table.knobs().values()}
    assert case.query == {} or scene != table()


def test_what_is_over_its_target_says_so(capsys):
    good = app.Reading("step", "first", "λ0", "canvas", app.CANVAS, 149.0, 200.0, 30, 1500.0, 3)
    slow = app.Reading("step", "first", "λ0", "canvas", app.CANVAS, 151.0, 200.0, 30, 1500.0, 3)
    late = app.Reading("step", "first", "λ0", "canvas", app.CANVAS, 149.0, 200.0, 30, 5001.0, 3)
    told = []
    for reading in (good, slow, late):
        app._print(reading)
        told.append("over" in capsys.readouterr().out)
    assert told == [False, True, True]
