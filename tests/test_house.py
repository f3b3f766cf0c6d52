"""The house rules that a machine can check: style, types, layers, sizes, no stray paths."""

from __future__ import annotations

import ast
import json
import re
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "vla").rglob("*.py"))
SCRIPTS = [*SOURCES, *sorted((ROOT / "apps").rglob("*.py"))]


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body without its docstring: what a reader has to hold in the head."""
    first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
    return (node.end_lineno or first.lineno) - first.lineno + 1


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["marimo", "check", "--strict", "apps"],
    ],
    ids=lambda command: " ".join(command),
)
def test_linters_are_clean(command: list[str]) -> None:
    tool = Path(sys.executable).with_name(command[0])
    done = subprocess.run(
        [tool, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def undefined_names(*paths: Path | str) -> list[str]:
    """What ruff calls undefined outside strings: in them, it is a jaxtyping shape.

    The linters' own rule is off for the shapes' sake, and a name that only one branch or one
    annotation uses is then seen by nothing.
    """
    ruff = Path(sys.executable).with_name("ruff")
    done = subprocess.run(
        [ruff, "check", "--select", "F821", "--ignore-noqa", "--output-format", "json", *paths],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [
        f"{each['filename']}:{each['location']['row']}: {each['message']}"
        for each in json.loads(done.stdout)
        if not in_a_string(Path(each["filename"]), each["location"])
    ]


def in_a_string(path: Path, place: dict[str, int]) -> bool:
    at = place["row"], place["column"] - 1
    with path.open(encoding="utf-8") as file:
        return any(
            token.type == tokenize.STRING and token.start <= at < token.end
            for token in tokenize.generate_tokens(file.readline)
        )


def test_no_name_is_undefined(tmp_path: Path) -> None:
    assert undefined_names("vla", "apps", "tests", "notebooks") == []
    wrong = tmp_path / "wrong.py"
    wrong.write_text('from vla.typing import Float\nx: Float["b t"] = unknown\n')
    assert [line.rsplit(" ", 1)[1] for line in undefined_names(wrong)] == ["`unknown`"]


def test_functions_are_short() -> None:
    sizes = [
        body_lines(node)
        for path in SCRIPTS
        if "kernels" not in path.parts
        for node in functions(path)
    ]
    assert statistics.median(sizes) <= 10
    assert statistics.quantiles(sizes, n=10)[-1] <= 35


def public_functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions of a module and methods of its public classes; not those inside functions."""
    owners = [tree, *(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name[0] != "_")]
    for owner in owners:
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield node


def test_public_functions_have_docstrings() -> None:
    """A method that fills in a documented interface says what it is by its name."""
    inherited = {"init", "step", "read", "features_of", "forward", "backward", "sample"}
    bare = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in SOURCES
        for node in public_functions(ast.parse(path.read_text()))
        if body_lines(node) > 6 and node.name not in inherited and not ast.get_docstring(node)
    ]
    assert not bare


def test_library_imports_no_app_and_no_notebook() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in {"apps", "notebooks", "tests"}


def test_importing_vla_is_light() -> None:
    heavy = ["plotly", "marimo", "triton", "anywidget", "jupyterlab"]
    code = f"import sys, vla, vla.rules, vla.ops; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_path_of_a_machine_is_committed() -> None:
    stray = re.compile("/wo" + r"rk/|(?<!\w)\.lib" + "rary|/ro" + "ot/|/ho" + "me/")
    for path in tracked():
        if path.suffix in {".png", ".safetensors", ".parquet", ".npz"}:
            continue
        text = path.read_text(errors="replace")
        assert not stray.search(text), path


def test_every_notebook_cell_was_executed() -> None:
    """nbval passes a cell without an execution count uncompared."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        code = [c for c in cells if c["cell_type"] == "code" and "".join(c["source"]).strip()]
        assert code, path
        assert all(cell["execution_count"] for cell in code), path


def test_readme_names_only_files_that_exist() -> None:
    text = (ROOT / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if not target.startswith(("http", "mailto")):
            assert (ROOT / target).exists(), target


@pytest.mark.parametrize("path", sorted((ROOT / "apps").glob("*.py")), ids=lambda p: p.name)
def test_no_cell_hands_on_a_control_as_its_html(path: Path) -> None:
    """``mo.as_html`` of a control is the control itself.

    Cells that place it would run whenever it is turned, and the page be rendered with its old
    picture before the new one.
    """
    handed = re.findall(r"^    ([a-z]\w*) = mo\.as_html\(", path.read_text(), re.M)
    assert handed == [], "place it as mo.Html(control.text)"
