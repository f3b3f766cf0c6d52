"""Shapes and types are checked at run time in every test of the rules, streams and traces."""

from jaxtyping import install_import_hook

# Before anything imports them: the hook wraps modules as they load.
install_import_hook(["vla.rules", "vla.tokens", "vla.words", "vla.trace"], "beartype.beartype")

import torch  # noqa: E402

torch.set_num_threads(1)
