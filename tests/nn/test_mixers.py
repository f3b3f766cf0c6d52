"""Every layer against its rule in ``vla.rules``, stepped token by token with the layer's weights.

The oracle of a named model starts from the raw projections and uses the rule's own feature maps and
presets, so it shares neither features, directions nor operations with the layer.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vla.nn import MODELS, Mixer, ModelConfig, build, model
from vla.rules import Rule, Token
from vla.rules.authors_delta import AuthorsDelta
from vla.rules.delta import Delta
from vla.rules.gated_delta import GatedDelta
from vla.rules.linear import Linear
from vla.rules.rls import RLS
from vla.rules.softmax import Softmax
from vla.rules.vla import VLA

SMALL: dict[str, Any] = {
    "width": 24, "heads": 3, "key_width": 8, "value_width": 6,
    "layers": 2, "ffn": 20, "vocab": 40, "max_length": 64,
}  # fmt: skip
T = 45

RULES: dict[str, Rule] = {
    "softmax": Softmax(),
    "linear": Linear(),
    "authors_delta": AuthorsDelta(),
    "gated_delta": GatedDelta(),
    "delta": Delta(features="silu"),
    "vla_paper": VLA.as_published(),
    "vla_authors": VLA.as_run(),
    "vla_exact": VLA.exact().with_(features="silu"),
    "rls": RLS(features="silu"),
}
GATES: dict[str, Callable[[Mixer, Tensor], Tensor]] = {
    "authors_delta": lambda m, x: torch.sigmoid(x @ m.gate.weight.T).unflatten(-1, (3, 6)),
    "gated_delta": lambda m, x: torch.sigmoid(x @ m.gate.weight.T),
    "delta": lambda m, x: torch.sigmoid(x @ m.gate.weight.T),
    "vla_exact": lambda m, x: torch.sigmoid(x @ m.gate.weight.T),
}

ABLATIONS: list[ModelConfig] = [
    model("vla_authors", output_norm="none"),
    model("vla_authors", output_norm="head"),
    model("vla_authors", adaptive=False),
    model("vla_authors", adaptive=False, gain="rls", gated=True),
    model("vla_authors", adaptive=False, gain="oblique", normalise_key=False),
    model("vla_authors", adaptive=False, normalise_key=False),
    model("vla_authors", direction_scale=1.0),
    model("vla_authors", lambda0=0.01),
    model("vla_authors", normalise_read=False),
    model("vla_authors", refresh_every=7, refresh_eps=0.1),
    model("vla_authors", direction="key"),
    model("vla_authors", features="silu", normalise_read=False),
    model("vla_paper", unit_direction=False),
    model("vla_paper", normalise_key=False, features="identity"),
    model("vla_exact", direction="key"),
    model("vla_exact", direction="projection", unit_direction=True),
    model("vla_exact", direction_scale=0.5),
    model("vla_exact", gain="unit"),
    model("vla_exact", gain="oblique"),
    model("vla_exact", gated=False),
    model("vla_exact", short_conv=4),
    model("vla_authors", rank=2),
    model("vla_authors", rank=4, refresh_every=7, refresh_eps=0.1),
    model("vla_paper", rank=3, gain="oblique", unit_direction=False),
    model("vla_exact", direction="projection", rank=2, unit_direction=True, short_conv=4),
    model("rls", gated=True),
    model("delta", gated=False, features="elu+1"),
    model("linear", normalise_read=False),
    model("linear", features="silu", floor=0.5),
    model("softmax", short_conv=3, output_norm="head"),
    model("authors_delta", short_conv=4, output_norm="layer"),
]


def layer(config: ModelConfig, seed: int = 0) -> Mixer:
    """A mixer in float64 with weights large enough for every nonlinearity to matter."""
    mixer = build(config.with_(**SMALL), seed=seed).double().blocks[0].mixer
    with torch.no_grad():
        for name, parameter in mixer.named_parameters():
            if not name.startswith(("norm", "conv")):
                parameter.mul_(10)
    return mixer


def tokens_in(seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, T, SMALL["width"], dtype=torch.float64, generator=generator)


def step_through(rule: Rule, q: Tensor, token: Callable[[int], Token]) -> Tensor:
    first = token(0)
    state = rule.init(first.k.shape[-1], first.v.shape[-1], batch=first.k.shape[:-1])
    outputs = []
    for t in range(q.shape[1]):
        state = rule.step(state, token(t))
        outputs.append(rule.read(state, q[:, t]))
    return torch.stack(outputs, 1)


def project_out(mixer: Mixer, heads: Tensor) -> Tensor:
    flat = heads.flatten(-2)
    if mixer.config.output_norm == "layer":
        flat = F.layer_norm(flat, flat.shape[-1:], mixer.norm.weight, mixer.norm.bias)
    return flat @ mixer.out.weight.T


def oracle(name: str, mixer: Mixer, x: Tensor) -> Tensor:
    """The named model's layer from raw projections by the rule's own preset."""
    raw = x @ mixer.qkv.weight.T
    q, k, v = (raw[..., a:b].unflatten(-1, (3, -1)) for a, b in ((0, 24), (24, 48), (48, 66)))
    beta = GATES[name](mixer, x) if name in GATES else None
    u = None
    if name in ("vla_paper", "vla_authors"):
        u = (k.flatten(-2) @ mixer.direction.weight.T).unflatten(-1, (3, -1))

    def token(t: int) -> Token:
        return Token(
            k[:, t], v[:, t],
            beta=None if beta is None else beta[:, t], u=None if u is None else u[:, t],
        )  # fmt: skip

    return project_out(mixer, step_through(RULES[name], q, token))


def grads(loss: Tensor, mixer: Mixer, x: Tensor) -> dict[str, Tensor]:
    named = dict(mixer.named_parameters())
    found = torch.autograd.grad(loss, [x, *named.values()])
    return dict(zip(["x", *named], found, strict=True))


def assert_same(mine: Tensor, theirs: Tensor, mixer: Mixer, x: Tensor, bound: float) -> None:
    weight = torch.randn(
        mine.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
    )
    assert mine.shape == x.shape
    assert (mine - theirs).norm() <= bound * theirs.norm()
    got, wanted = (grads((o * weight).sum(), mixer, x) for o in (mine, theirs))
    for name, gradient in wanted.items():
        assert gradient.norm() > 0, name
        assert (got[name] - gradient).norm() <= 100 * bound * gradient.norm(), name


@pytest.mark.parametrize("name", MODELS)
def test_named_layer_is_its_rule_from_raw_weights(name: str) -> None:
    mixer, x = layer(model(name)), tokens_in().requires_grad_()
    assert_same(mixer(x), oracle(name, mixer, x), mixer, x, 1e-11)


def test_every_named_model_has_an_oracle() -> None:
    assert set(RULES) == set(MODELS)


@pytest.mark.parametrize("config", ABLATIONS, ids=str)
def test_ablation_is_the_rule_its_layer_names(config: ModelConfig) -> None:
    mixer, x = layer(config), tokens_in().requires_grad_()
    s = mixer.sequences(x)
    gates, u = mixer.gates(s), mixer.directions(s)

    def token(t: int) -> Token:
        return Token(s.k[:, t], s.v[:, t], None if gates is None else gates[:, t], u[:, t])

    heads = step_through(mixer.rule(), s.q, token)
    theirs = mixer.out(mixer.norm(heads).flatten(-2))
    assert_same(mixer(x), theirs, mixer, x, 1e-10)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"lambda0": 0.01}, {"lambda0": 0.01}),
        ({"gain": "rls"}, {"gain": "rls"}),
        ({"gain": "oblique"}, {"gain": "oblique"}),
        ({"unit_direction": False}, {"unit_direction": False}),
        ({"direction_scale": 0.0}, {"direction_scale": 0.0}),
        ({"direction": "key"}, {"direction": "key"}),
        ({"refresh_every": 3, "refresh_eps": 0.5}, {"refresh_every": 3, "refresh_eps": 0.5}),
        ({"features": "silu"}, {"features": "silu"}),
        ({"normalise_key": False}, {"normalise_key": False}),
        ({"normalise_read": True}, {"normalise_read": True}),
        ({"adaptive": False}, {"adaptive": False}),
    ],
)
def test_each_keyword_means_what_the_rule_means(settings: dict, rule: dict) -> None:
    """From raw projections again, one keyword of ``vla_paper`` changed at a time."""
    mixer, x = layer(model("vla_paper", **settings)), tokens_in()
    q, k, v = mixer.raw(x)
    weight = torch.eye(24, dtype=torch.float64)
    if mixer.direction is not None:
        weight = mixer.direction.weight
    u = (k.flatten(-2) @ weight.T).view_as(k)
    stepped = step_through(
        VLA.as_published().with_(**rule), q, lambda t: Token(k[:, t], v[:, t], u=u[:, t])
    )
    heads = mixer.attend(mixer.sequences(x))
    assert (heads - stepped).norm() <= 1e-10 * stepped.norm()


@pytest.mark.parametrize("name", ["vla_authors", "vla_exact"])
def test_learned_lambda0_is_each_heads_own_and_is_trained(name: str) -> None:
    """Against one fixed-λ0 layer per head; and a step along the gradient lowers the loss."""
    mixer, x = layer(model(name, learned_lambda0=True)), tokens_in()
    theta = torch.tensor([-2.0, 0.0, 1.5], dtype=torch.float64)
    mixer.log_lambda0.data.copy_(theta)
    weights = {n: w for n, w in mixer.state_dict().items() if n != "log_lambda0"}
    heads = mixer.attend(mixer.sequences(x))
    for head, value in enumerate((0.1 * theta.exp()).tolist()):
        fixed = layer(model(name, lambda0=value))
        fixed.load_state_dict(weights)
        wanted = fixed.attend(fixed.sequences(x))[:, :, head]
        assert torch.allclose(heads[:, :, head], wanted, rtol=1e-9, atol=1e-12)
        assert mixer.rule(head).lambda0 == pytest.approx(value)
    weight = torch.linspace(-1, 1, x.numel(), dtype=torch.float64).view_as(x)
    (slope,) = torch.autograd.grad((mixer(x) * weight).sum(), mixer.log_lambda0)
    for head in range(3):
        ends = []
        for step in (1e-5, -1e-5):
            mixer.log_lambda0.data.copy_(theta)
            mixer.log_lambda0.data[head] += step
            ends.append(float((mixer(x) * weight).sum().detach()))
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(float(slope[head]), rel=1e-5, abs=1e-9)


def test_learned_lambda0_starts_at_the_fixed_one() -> None:
    fixed, learned = (layer(model("vla_authors", learned_lambda0=c)) for c in (False, True))
    assert torch.allclose(learned(tokens_in()), fixed(tokens_in()), rtol=1e-12)
    assert set(learned.state_dict()) - set(fixed.state_dict()) == {"log_lambda0"}


def test_a_wider_projection_gives_the_directions() -> None:
    """Rank 1 of a rank-2 layer whose second directions are zero is the rank-1 layer."""
    two, one = layer(model("vla_paper", rank=2, unit_direction=False)), None
    one = layer(model("vla_paper", unit_direction=False))
    weights = dict(two.state_dict())
    by_head = weights["direction.weight"].view(3, 2, 8, 24)
    by_head[:, 1] = 0
    weights["direction.weight"] = by_head[:, 0].reshape(24, 24)
    one.load_state_dict(weights)
    assert two.sequences(tokens_in()).u.shape == (2, T, 3, 2, 8)
    assert torch.allclose(two(tokens_in()), one(tokens_in()), rtol=1e-10)


def test_fixed_penalty_is_the_delta_rule_and_has_no_direction() -> None:
    """Table 4's "A fixed": DeltaNet with β = 1 on ELU+1 keys, to the last digits."""
    mixer = layer(model("vla_paper", adaptive=False))
    assert mixer.direction is None
    q, k, v = mixer.raw(tokens_in())
    delta = step_through(Delta(features="elu+1"), q, lambda t: Token(k[:, t], v[:, t]))
    assert torch.allclose(mixer.attend(mixer.sequences(tokens_in())), delta, rtol=1e-10)


def test_gated_exact_layer_is_weighted_least_squares() -> None:
    """``vla_exact`` and a gated ``rls`` are one layer: the weights of one run the other."""
    exact, rls = layer(model("vla_exact")), layer(model("rls", gated=True))
    rls.load_state_dict(exact.state_dict())
    assert torch.allclose(exact(tokens_in()), rls(tokens_in()), rtol=1e-11)


@pytest.mark.parametrize("name", MODELS)
def test_float32_is_near_float64(name: str) -> None:
    mixer = layer(model(name))
    wanted = mixer(tokens_in())
    got = mixer.float()(tokens_in().float())
    assert got.dtype == torch.float32
    assert (got - wanted).norm() <= 1e-4 * wanted.norm()


@pytest.mark.parametrize("length", [1, 2, 17])
@pytest.mark.parametrize("name", MODELS)
def test_short_rows_are_prefixes_of_long_ones(name: str, length: int) -> None:
    mixer, x = layer(model(name, short_conv=4)), tokens_in()
    assert torch.allclose(mixer(x[:, :length]), mixer(x)[:, :length], rtol=1e-9, atol=1e-12)
