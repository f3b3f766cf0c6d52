"""Mixers and the small Transformer they are tried in. ``build(model("vla_exact"), seed=0)``."""

from vla.nn.checkpoint import Checkpoint, load, save
from vla.nn.config import DEFAULTS, ModelConfig
from vla.nn.delta import AuthorsDelta, DeltaNet, GatedDelta
from vla.nn.linear import Linear
from vla.nn.mixer import MIXERS, Mixer, Sequences
from vla.nn.models import MODELS, TITLES, describe, model, name_of
from vla.nn.softmax import Softmax
from vla.nn.tinylm import TinyLM, build, parameter_count, state_size
from vla.nn.vla import RLS, VLA

__all__ = [
    "DEFAULTS",
    "MIXERS",
    "MODELS",
    "RLS",
    "TITLES",
    "VLA",
    "AuthorsDelta",
    "Checkpoint",
    "DeltaNet",
    "GatedDelta",
    "Linear",
    "Mixer",
    "ModelConfig",
    "Sequences",
    "Softmax",
    "TinyLM",
    "build",
    "describe",
    "load",
    "model",
    "name_of",
    "parameter_count",
    "save",
    "state_size",
]
