"""Memory rules, one per file. ``vla.rules.make("vla", gain="rls")`` builds one by name."""

from vla.rules.base import Rule, State, Token, Write, transition
from vla.rules.registry import RULES, discover, load_file, make, names, register

discover(list(__path__), __name__)

__all__ = [
    "RULES",
    "Rule",
    "State",
    "Token",
    "Write",
    "load_file",
    "make",
    "names",
    "register",
    "transition",
]
