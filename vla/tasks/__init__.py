"""Synthetic tasks, each drawn in its docstring. ``make(name, **settings).sample(...)``."""

from vla.tasks.base import IGNORED, STREAMS, TASKS, Batch, Task, make, register, seeded
from vla.tasks.copy import Copy, CopyAuthors
from vla.tasks.mqar import HELD_OUT_KEYS, TRAIN_KEYS, MQARAuthors, MQARFair, MQARPaper
from vla.tasks.recall import AssociativeRecall, DelayedRecall

__all__ = [
    "HELD_OUT_KEYS",
    "IGNORED",
    "STREAMS",
    "TASKS",
    "TRAIN_KEYS",
    "AssociativeRecall",
    "Batch",
    "Copy",
    "CopyAuthors",
    "DelayedRecall",
    "MQARAuthors",
    "MQARFair",
    "MQARPaper",
    "Task",
    "make",
    "register",
    "seeded",
]
