"""The laboratory's server, as far as it goes without a browser."""

from __future__ import annotations

import ast
import re
import threading
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from vla import home, lab, rules


def test_every_app_says_its_question() -> None:
    apps = lab.find_apps()
    assert [app.path.name for app in apps] == sorted(app.path.name for app in apps)
    for app in apps:
        assert app.title
        assert app.question.endswith("?")
        assert app.slug == app.slug.lower()
    assert apps[0].slug == "step"


def test_apps_are_found_in_a_wheel_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "vla"
    package.mkdir()
    monkeypatch.setattr(lab, "__file__", str(package / "lab.py"))
    assert lab.apps_folder() == tmp_path / "apps"
    (package / "_apps").mkdir()
    assert lab.apps_folder() == package / "_apps"


def test_helpers_of_apps_are_no_apps(tmp_path: Path) -> None:
    (tmp_path / "02_second_one.py").write_text('"""Second: is it?"""')
    (tmp_path / "_helper.py").write_text("")
    (tmp_path / "10_bare.py").write_text("x = 1")
    assert [(app.slug, app.title, app.question) for app in lab.find_apps(tmp_path)] == [
        ("second-one", "Second", "is it?"),
        ("bare", "10_bare", ""),
    ]


def test_the_front_page_has_every_app_and_escapes_words() -> None:
    apps = [lab.App(Path("1_x.py"), "<b>bold</b>", "a & b?"), *lab.find_apps()]
    page = home.home(apps, pictures=["x.png"], rule_files=[lab.RuleFile(Path("<i>.py"), ("<u>",))])
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "a &amp; b?" in page
    assert "&lt;i&gt;.py" in page
    assert "&lt;u&gt;" in page
    for app in apps:
        assert f'href="{app.slug}/"' in page
    assert page.count("<img") == 1
    assert not re.search(r"<script|https?:|//", page), "it asks nothing of any other machine"


def test_every_app_has_its_pictures() -> None:
    there = {path.name for path in lab.pictures_folder().glob("*.png")}
    for app in lab.find_apps():
        assert {f"{app.slug}.png", f"{app.slug}-dark.png"} <= there, (
            "python -m vla.bench.app --shots docs"
        )
    assert sum(path.stat().st_size for path in lab.pictures_folder().iterdir()) < 1_000_000


def test_the_front_page_says_which_rule_file_runs() -> None:
    assert "No rule file is loaded" in home.home([])
    page = home.home([], rule_files=[lab.RuleFile(Path("/here/mine.py"), ("mine", "yours"))])
    assert "/here/mine.py" in page
    assert "mine, yours" in page
    assert "runs with the rights of the user" in page


def test_the_rule_on_the_front_page_is_the_readmes() -> None:
    readme = Path(__file__).parents[1] / "README.md"
    assert f"```python\n{home.OWN_RULE}```" in readme.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "stop", home.tour(lab.find_apps()), ids=lambda stop: f"{stop.slug}-{stop.scene}"
)
def test_a_stop_of_the_tour_is_the_scene_it_names(stop: home.Stop) -> None:
    wanted = home.prepared(stop.slug)[stop.scene]
    path, _, query = home.link(stop).partition("?")
    assert path == f"{stop.slug}/"
    assert type(wanted.scene).from_query(dict(parse_qsl(query))) == (wanted.scene, [])
    assert wanted.question.endswith("?")
    assert stop.do.endswith(".")
    assert stop.see or wanted.answer


def test_the_tour_leaves_out_apps_that_are_not_there() -> None:
    assert home.tour([]) == []
    assert 'id="tour"' not in home.home([])
    assert home.tour(lab.find_apps()) == list(home.TOUR)
    assert {stop.slug for stop in home.TOUR} == {app.slug for app in lab.find_apps()}


def test_the_readme_shows_every_app() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    for app in lab.find_apps():
        for part in (app.title, app.question, f"apps/{app.path.name}", f"docs/{app.slug}.png"):
            assert part in readme, f"{app.slug}: {part}"
        for name in (f"{app.slug}.png", f"{app.slug}-dark.png"):
            picture = Path(__file__).parents[1] / "docs" / name
            assert picture.stat().st_size < 150_000


@pytest.mark.parametrize(("count", "opened"), [(0, []), (1, ["here/one/"]), (2, ["here/one/"])])
def test_the_browser_opens_on_the_first_app(
    count: int, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(lab.webbrowser, "open", seen.append)
    lab._announce("here/", [lab.App(Path(name), "", "") for name in ("one.py", "two.py")[:count]])
    for timer in threading.enumerate():
        if isinstance(timer, threading.Timer):
            timer.join()
    assert seen == opened


def test_it_listens_on_this_machine_only() -> None:
    with lab.listen() as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        with pytest.raises(ValueError, match="leave --port out"):
            lab.listen(listener.getsockname()[1])


def test_apps_hold_no_mathematics() -> None:
    for app in lab.find_apps():
        for node in ast.walk(ast.parse(app.path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not {alias.name for alias in node.names} & {"torch", "numpy"}


def test_a_rule_file_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "rule_files", [])
    monkeypatch.setattr(rules, "load_file", lambda _: ["mine"])
    lab.load_rules(tmp_path / "mine.py")
    assert lab.rule_files == [lab.RuleFile(tmp_path / "mine.py", ("mine",))]
