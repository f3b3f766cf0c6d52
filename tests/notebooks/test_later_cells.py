"""A control still works when the whole chapter has run: no later cell changes what it draws."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
BOOKS = sorted(NOTEBOOKS.glob("*.ipynb"))


def trees(sources: list[str]) -> list[ast.Module]:
    """The cells parsed; a cell with a magic at its head is text for a file, not code."""
    return [ast.parse("" if source.startswith("%%") else source) for source in sources]


def assigned(nodes: list[ast.stmt]) -> set[str]:
    """Names that statements bind at the top level of a chapter."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(name.asname or name.name).split(".")[0] for name in node.names}
        else:
            found |= _stored(node)
    return found


def _stored(node: ast.AST) -> set[str]:
    """Names stored in a statement, not those inside its comprehensions and lambdas."""
    inner = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda
    found = {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, inner):
            found |= _stored(child)
    return found


def borrowed(function: ast.FunctionDef) -> set[str]:
    """Names that a function takes from the chapter when it is called."""
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    own = {arg.arg for node in ast.walk(function) if isinstance(node, ast.arguments)
           for arg in (*node.args, *node.kwonlyargs)}  # fmt: skip
    own |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    body = {node.id for part in function.body for node in ast.walk(part)
            if isinstance(node, ast.Name)}  # fmt: skip
    return body - own


def is_control(node: ast.stmt) -> bool:
    calls = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return any(isinstance(c, ast.Call) and getattr(c.func, "id", "") == "interact" for c in calls)


def disturbed(sources: list[str]) -> list[str]:
    """Controls that read a name, directly or through a helper, which a later cell binds again."""
    cells = trees(sources)
    helpers = {node.name: node for cell in cells for node in cell.body
               if isinstance(node, ast.FunctionDef)}  # fmt: skip
    found = []
    for i, cell in enumerate(cells):
        later = set().union(*(assigned(after.body) for after in cells[i + 1 :]), set())
        for control in filter(is_control, cell.body):
            needs, new = set(), borrowed(control)  # type: ignore[arg-type]
            while new:
                needs |= new
                called = [helpers[name] for name in new if name in helpers]
                new = set().union(*map(borrowed, called), set()) - needs
            found += [f"{control.name} reads {name}" for name in sorted(needs & later)]  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_no_later_cell_changes_what_a_control_draws(path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    assert not disturbed([cell.source for cell in cells if cell.cell_type == "code"])


def test_the_test_bites() -> None:
    control = "@interact(t=slider)\ndef draw(t):\n    return show(A, t)"
    assert disturbed([control, "A = 2"]) == ["draw reads A"]
    assert disturbed([control, "for A in x:\n    pass"]) == ["draw reads A"]
    helper = "def show(A, t):\n    return B"
    assert disturbed([helper, control, "B = 2"]) == ["draw reads B"]
    assert disturbed([helper, control, "y = [A for A in x]\ndef f(A): A = 1"]) == []
