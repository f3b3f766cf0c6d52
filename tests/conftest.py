"""Shapes and types are checked at run time in every test of the rules, streams and traces."""

import sys
import types

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

# The hook wants its checker by name. With the numeric tower, λ0 = 1 is as good as λ0 = 1.0.
checker = types.ModuleType("vla_checker")
checker.check = beartype(conf=BeartypeConf(is_pep484_tower=True))
sys.modules[checker.__name__] = checker

# Before anything imports them: the hook wraps modules as they load.
install_import_hook(["vla.rules", "vla.tokens", "vla.words", "vla.trace"], "vla_checker.check")

import jaxtyping  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture
def unchecked():
    """Long loops without the run-time checks, which would take most of the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
