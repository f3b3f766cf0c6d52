"""Prepared scenes: a question, what is seen at first, and the answer that stepping shows.

Every answer is a fact of the recorded trace; ``tests/test_scene_presets.py`` computes each one.
"""

from __future__ import annotations

from typing import NamedTuple

from vla import trained
from vla.scene.scene import LAYER, PLAIN, Scene


class Preset(NamedTuple):
    """One prepared scene in words."""

    title: str
    question: str
    seen: str
    """What the first picture shows, in one sentence."""
    answer: str
    """What stepping to the end shows, in one sentence."""
    scene: Scene


_FOUR = ("linear", "delta", "vla", "rls")
_GATES = "cat: meow, dog: woof, cow: moo, owl: hoot, bee: buzz, ? cat"
_PLACES = "Paris: France, Roma: Italia, 東京: 日本, ? Paris, ? Roma, ? 東京"


def _trained() -> dict[str, Preset]:
    """The scene of a trained head, where its checkpoint is here."""
    if PLAIN not in trained.names():
        return {}
    return {"trained": Preset(
        "inside a trained layer",
        "A trained model's second layer stores eight pairs. Which rules find them by its own keys?",
        "Head 0 of the authors' VLA, trained on MQAR: every token writes, and queries read too.",
        "The layer's own rule and DeltaNet find all 8 values, linear attention 3: training made "
        "keys that a residual write can tell apart.",
        Scene(
            kind=LAYER, checkpoint=PLAIN, layer=1, head=0, lanes=("linear", "delta", LAYER),
            step=17,
        ),
    )}  # fmt: skip


PRESETS: dict[str, Preset] = {
    "overwrite": Preset(
        "overwrite one key",
        "The cat gets a second sound. Which memories now say purr, and still know the dog?",
        "Three pairs are stored, and the cat is about to purr.",
        "Only VLA answers both: linear attention hears the dog in the cat, and DeltaNet, writing "
        "purr, loses the dog.",
        Scene(),
    ),
    "average": Preset(
        "the exact answer to old news",
        "Exact least squares weighs old and new alike. What does it say of a cat that changed?",
        "The same words as in the first scene, with exact RLS beside VLA.",
        "Exact RLS still says meow: it answers the mean of the two sounds, the least-squares "
        "solution; VLA's unit-length write lets the last one win.",
        Scene(lanes=("vla", "rls")),
    ),
    "twins": Preset(
        "two near-twins",
        "Cat and cats are nearly the same vector. Can a memory keep them apart?",
        "Nothing is stored yet; the two keys have a cosine of about 0.9.",
        "VLA and exact RLS keep both; DeltaNet overwrites cat while it writes cats, and linear "
        "attention gives one blurred answer to both.",
        Scene(text="cat: meow, cats: purr, ? cat, ? cats", similarity=0.9, step=0, lanes=_FOUR),
    ),
    "overload": Preset(
        "2× overload",
        "Twice as many pairs as the width holds: who can still answer?",
        "32 random keys go into a memory of width 16; the last 8 tokens ask.",
        "Of 8 queries exact RLS answers 7, VLA 6, DeltaNet 3 and linear attention 1; nobody "
        "recalls without error.",
        Scene(kind="gaussian", n=32, queries=8, lanes=_FOUR),
    ),
    "orthogonal": Preset(
        "orthogonal keys: everyone is right",
        "When keys don't meet, does the rule matter?",
        "Eight keys at right angles fill a memory of width 8.",
        "All four answer all 8 queries: DeltaNet and VLA without error, RLS short by λ0/(1 + λ0), "
        "and the gated rule by direction alone, its oldest pair shrunk to 1/128.",
        Scene(
            kind="orthogonal", n=8, d=8, queries=8,
            lanes=("gated_delta", "delta", "vla", "rls"),
        ),
    ),
    "gate": Preset(
        "the gate that forgets",
        "The paper's DeltaNet multiplies its memory by a gate. What is left after five words?",
        "Three words in, the gated memories have halved the first one twice.",
        "Both gated rules have lost the cat; the published DeltaNet, whose gate weighs the write "
        "and not the memory, still says meow.",
        Scene(text=_GATES, similarity=0.0, lanes=("gated_delta", "authors_delta", "delta", "vla")),
    ),
    "drowning": Preset(
        "linear attention drowns",
        "The same four pairs come six times over. What does a memory do that only adds?",
        "Three of the four pairs are stored, and soon they come again.",
        "Linear attention's ‖S‖ grows beyond 40 and it answers 1 query of 4; DeltaNet and VLA stop "
        "writing once the residual is gone, and answer all.",
        Scene(
            kind="repeated", values="same", distinct=4, n=24, lanes=("linear", "delta", "vla"),
        ),
    ),
    "refresh": Preset(
        "refresh as process noise",
        "The world turns by 5° a token. Why add to A what the data took away?",
        "VLA has the exact gain and a refresh at every token; RLS is the same without refresh.",
        "A refresh is a Kalman filter's process noise: ‖A‖ stays up, residuals are less than half "
        "of RLS's and all 4 queries are right where RLS has none; outdated pairs fade faster.",
        Scene(
            kind="drifting", turns="map", n=60, d=4, degrees=5.0, lanes=("vla", "rls"),
            gain="rls", refresh_every=1, refresh_eps=0.3,
        ),
    ),
    "remark1": Preset(
        "Remark 1: A fixed is the delta rule",
        "The paper's Remark 1 says that VLA with A fixed is linear attention. Is it?",
        "VLA's A stays I/λ0 here; compare its lane with the other two.",
        "With A fixed VLA is the delta rule with β = 1, the same memory at every step; linear "
        "attention's is another one.",
        Scene(
            kind="correlated", n=8, d=8, rho=0.9, adaptive=False,
            lanes=("linear", "delta", "vla"),
        ),
    ),
    "norm": Preset(
        "is a step's norm exactly 1?",
        "Proposition 2 says that the transition has spectral norm 1 at every step. Does it?",
        "Twelve keys with a cosine of 0.9 between any two; watch ‖J‖.",
        "Single steps reach ‖J‖ = 1.4, yet the product of all steps never exceeds 1 here, where u "
        "is the key.",
        Scene(kind="correlated", n=12, rho=0.9, queries=8, lanes=("vla", "rls")),
    ),
    "explosion": Preset(
        "the form that explodes",
        "Leave keys at their length, take u from a projection and α as it is: what happens?",
        "VLA runs with those three choices; RLS has the same keys and takes u from them.",
        "VLA's ‖S‖ passes 10²⁰ within ten pairs, while exact RLS on the same long keys stays below "
        "10: the length of α must fit u.",
        Scene(
            kind="gaussian", n=12, direction="token", features="elu+1", gain="rls",
            normalise_key=False, lanes=("vla", "rls"),
        ),
    ),
    "three_forms": Preset(
        "published, run, corrected",
        "As written in the paper, as run by its authors, with u = k: does the form matter?",
        "Three forms of VLA and exact RLS store the same twelve random pairs.",
        "With a random, untrained projection for u the two published forms answer 1 query of 8; "
        "with u = k VLA answers all, as exact RLS does.",
        Scene(
            kind="gaussian", n=12, queries=8, lanes=("vla", "rls", "published", "as_run"),
        ),
    ),
    "healing": Preset(
        "a slip, and whether it heals",
        "One pair of 48 is stored with a wrong value. Which memories get over it?",
        "The timeline is forked at step 3; S − S′ is what the slip has changed.",
        "Linear attention never does: its ‖S−S′‖ stays 4.5. DeltaNet and VLA write over the slip, "
        "3 % and 1 % are left; exact RLS weighs old and new alike and keeps 14 %.",
        Scene(kind="gaussian", n=48, d=8, queries=0, fork="edit", lanes=_FOUR),
    ),
    "digits": Preset(
        "how many digits",
        "One key comes 60 times, with λ0 = 0.001. How many digits does each memory need?",
        "Every rule also runs in float32 and bfloat16; the third curve is how far S drifts.",
        "DeltaNet stays within 2 % in bfloat16. VLA and RLS are lost by the second token, and "
        "VLA's float32 passes 1 % at step 44: A is left as a small difference of large numbers.",
        Scene(
            kind="repeated", distinct=1, n=60, lambda0=1e-3, compare=True,
            lanes=("delta", "vla", "rls"),
        ),
    ),
    **_trained(),
    "words": Preset(
        "own words",
        "Your turn: which of these will be the first to go?",
        "Change the pairs in the box on the left; any language will do.",
        "VLA and exact RLS answer all three cities; DeltaNet has overwritten Paris, and linear "
        "attention says France to each.",
        Scene(text=_PLACES, similarity=0.6, step=2, lanes=_FOUR),
    ),
}  # fmt: skip
"""By the name that a link or a button uses; the first is what a first visit opens on."""


def preset_of(scene: Scene) -> str | None:
    """The preset that this scene is, wherever one stands in it; ``None`` if it is nobody's."""
    for name, preset in PRESETS.items():
        here = scene.with_(step=preset.scene.step, hidden=preset.scene.hidden)
        if here == preset.scene:
            return name
    return None
