"""Scenes of the stepping app: the whole state as one value, and prepared ones with a question."""

from vla.scene.knob import Knob
from vla.scene.presets import PRESETS, Preset, preset_of
from vla.scene.scene import Scene, knobs, lane_names, lane_title

__all__ = [
    "PRESETS", "Knob", "Preset", "Scene", "knobs", "lane_names", "lane_title", "preset_of",
]  # fmt: skip
