"""Every rule by name: found by looking into this folder, open to files from outside."""

from __future__ import annotations

import dataclasses
import importlib.util
import pkgutil
import sys
from pathlib import Path
from typing import Any, TypeVar

from vla.errors import ArgumentError
from vla.rules.base import Rule

RULES: dict[str, type[Rule]] = {}
"""Name to class. :func:`names` has them in the order people see."""

_R = TypeVar("_R", bound=type[Rule])


def register(rule: _R) -> _R:
    """Class decorator: make a rule known to traces, figures and apps.

    Raises ``ValueError`` if the name belongs to another class already, or a method is missing.
    """
    if missing := sorted(getattr(rule, "__abstractmethods__", ())):
        wanted = "a class with " + " and ".join(f"{name}()" for name in missing)
        raise ArgumentError("rule", rule.__name__, wanted, "Define what is missing.")
    known = RULES.get(rule.name)
    if known is not None and known.__qualname__ != rule.__qualname__:
        raise ArgumentError("name", rule.name, "a name no other rule has", "Rename one of them.")
    RULES[rule.name] = rule
    return rule


def names() -> list[str]:
    """Every rule's name, in the order in which apps and figures show them."""
    return sorted(RULES, key=lambda name: (RULES[name].order, name))


def make(name: str, **settings: Any) -> Rule:
    """The named rule with these settings.

    Raises ``ValueError`` for an unknown name (with the known ones) or an unknown setting.
    """
    if name not in RULES:
        raise ArgumentError("rule", name, "one of " + ", ".join(RULES))
    try:
        return RULES[name](**settings)
    except TypeError as error:
        known = ", ".join(field.name for field in dataclasses.fields(RULES[name]))
        raise ArgumentError("settings", settings, f"settings of {name!r}: {known}") from error


def load_file(path: str | Path) -> list[str]:
    """Run a Python file that registers rules; return the names it added or replaced.

    The file runs with your rights: load only what you trust. Raises ``ValueError`` if it can't be
    read, fails, or registers nothing.
    """
    path = Path(path)
    if not path.is_file():
        raise ArgumentError("rule file", str(path), "a Python file that exists")
    before = dict(RULES)
    module_name = f"vla_rule_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ArgumentError("rule file", str(path), "a file whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        _take_back(before, module_name)
        raise ArgumentError("rule file", str(path), f"a file that runs ({error!r})") from error
    added = [name for name, rule in RULES.items() if before.get(name) is not rule]
    if not added:
        raise ArgumentError("rule file", str(path), "a file with a class under @vla.rules.register")
    return added


def _take_back(before: dict[str, type[Rule]], module_name: str) -> None:
    """Undo what a file registered before it failed."""
    RULES.clear()
    RULES.update(before)
    sys.modules.pop(module_name, None)


def discover(package_path: list[str], package: str) -> None:
    """Import every module of the rules package, so that each registers itself."""
    for module in pkgutil.iter_modules(package_path):
        importlib.import_module(f"{package}.{module.name}")
