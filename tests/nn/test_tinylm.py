"""TinyLM: architecture, start, counts, causality, round trips, streams, and that it learns."""

import doctest
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vla import tasks
from vla.nn import MODELS, ModelConfig, TinyLM, build, model, name_of, parameter_count, state_size
from vla.rules import Token

SMALL: dict[str, Any] = {"width": 32, "heads": 2, "ffn": 48, "vocab": 40, "max_length": 64}
VARIANTS = [
    *MODELS.values(),
    *(model(name, short_conv=4, output_norm="head") for name in ("softmax", "delta", "vla_exact")),
    model("delta", ffn=0, positions="none", key_width=8, value_width=24),
    model("vla_authors", rank=3),
    model("vla_authors", rank=2, learned_lambda0=True),
    model("vla_exact", learned_lambda0=True),
]


def some_tokens(rows: int = 2, length: int = 30) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(40, (rows, length), generator=generator)


def small(config: ModelConfig) -> TinyLM:
    kept = {k: v for k, v in SMALL.items() if not (k == "ffn" and config.ffn == 0)}
    return build(config.with_(**kept), seed=3)


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_logits_and_gradients_reach_everything(config: ModelConfig) -> None:
    net, tokens = small(config), some_tokens()
    logits = net(tokens)
    assert logits.shape == (2, 30, 40)
    assert logits.dtype == torch.float32
    F.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.norm() > 0, name


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_no_output_sees_a_later_token(config: ModelConfig) -> None:
    net, tokens = small(config).double(), some_tokens()
    before = net(tokens)
    for at in (1, 16, 29):
        changed = tokens.clone()
        changed[:, at] = (changed[:, at] + 1) % 40
        after = net(changed)
        assert torch.allclose(after[:, :at], before[:, :at], rtol=1e-10, atol=1e-12)
        assert not torch.allclose(after[:, at], before[:, at], rtol=1e-3)


def closed_form(c: ModelConfig) -> int:
    """Parameters, counted by hand."""
    H, W = c.heads, c.width
    qkv = H * (2 * c.d + c.d_v)
    mixer = W * qkv + H * c.d_v * W + c.short_conv * qkv
    mixer += {"none": 0, "layer": 2 * H * c.d_v, "head": c.d_v}[c.output_norm]
    if c.gated or c.mixer == "gated_delta":
        mixer += W * H
    if c.mixer == "authors_delta":
        mixer += W * H * c.d_v
    if c.direction == "projection" and c.adaptive:
        mixer += (c.rank or 1) * (H * c.d) ** 2
    mixer += H if c.learned_lambda0 else 0
    ffn = 2 * W + W * c.ffn + c.ffn + c.ffn * W + W if c.ffn else 0
    places = c.max_length * W if c.positions == "learned" else 0
    return c.vocab * W + places + c.layers * (2 * W + mixer + ffn) + 2 * W


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_parameter_count(config: ModelConfig) -> None:
    assert parameter_count(build(config)) == closed_form(config)


def test_parameter_counts_of_the_paper() -> None:
    """2 layers, 128 wide, 4 heads, FFN 256, 128 tokens, 4 096 positions."""
    counts = {name: parameter_count(build(config)) for name, config in MODELS.items()}
    assert counts == {
        "softmax": 804_864,
        "linear": 804_864,
        "authors_delta": 837_632,
        "gated_delta": 805_888,
        "delta": 805_888,
        "vla_paper": 837_632,
        "vla_authors": 838_144,
        "vla_exact": 806_400,
        "rls": 805_376,
    }


def test_state_sizes() -> None:
    """Per sequence, two layers of four heads, d = 32."""
    S, A, z = 2 * 4 * 32 * 32, 2 * 4 * 32 * 32, 2 * 4 * 32
    sizes = {name: state_size(build(config), 100) for name, config in MODELS.items()}
    assert sizes["softmax"] == {"cache": 2 * 100 * 256, "total": 2 * 100 * 256}
    assert sizes["linear"] == {"S": S, "z": z, "total": S + z}
    assert sizes["vla_authors"] == {"S": S, "z": z, "A": A, "total": S + z + A}
    assert sizes["vla_exact"] == {"S": S, "A": A, "total": S + A}
    for name in ("delta", "gated_delta", "authors_delta"):
        assert sizes[name] == {"S": S, "total": S}
    assert state_size(build(model("vla_paper", adaptive=False)), 5)["total"] == S
    assert state_size(build(model("delta", value_width=64)), 5)["total"] == S + A
    assert state_size(build(model("delta", short_conv=4)), 5)["conv"] == 2 * 3 * 384


def test_weights_start_as_the_authors_do() -> None:
    net = build(model("vla_authors"), seed=5)
    for name, parameter in net.named_parameters():
        if parameter.ndim == 2:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name
            assert abs(parameter.mean().item()) < 0.02 * 5 / parameter.numel() ** 0.5, name
        else:
            norm_weight = "norm" in name and name.endswith("weight")
            assert (parameter == float(norm_weight)).all(), name


def test_head_is_tied_and_architecture_is_pre_ln() -> None:
    net, tokens = small(MODELS["softmax"]).double(), some_tokens()
    assert torch.equal(net(tokens), net.hidden(tokens) @ net.embedding.weight.T)
    x = net.embedding.weight[tokens] + net.positions.weight[:30]
    for block in net.blocks:
        x = x + block.mixer(F.layer_norm(x, (32,)))
        h = F.gelu(F.layer_norm(x, (32,)) @ block.up.weight.T + block.up.bias)
        x = x + h @ block.down.weight.T + block.down.bias
    assert torch.allclose(net.hidden(tokens), F.layer_norm(x, (32,)), atol=1e-12)


def test_seed_fixes_the_weights_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    first = build(MODELS["vla_authors"], seed=1)
    assert torch.equal(torch.rand(3), expected)
    again, other = (build(MODELS["vla_authors"], seed=seed).state_dict() for seed in (1, 2))
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, again[name])
    assert not torch.equal(again["embedding.weight"], other["embedding.weight"])


def test_shorter_position_table_changes_no_other_weight() -> None:
    long, short = (build(model("vla_exact", max_length=n), seed=1).state_dict() for n in (4096, 73))
    assert all(torch.equal(short[n], w) for n, w in long.items() if n != "positions.weight")


@pytest.mark.parametrize("config", VARIANTS, ids=str)
def test_state_dict_round_trip(config: ModelConfig, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    net, tokens = small(config), some_tokens()
    safetensors.save_file(net.state_dict(), tmp_path / "weights.safetensors")
    again = build(ModelConfig(**net.config.as_dict()), seed=9)
    assert not torch.equal(again(tokens), net(tokens))
    again.load_state_dict(safetensors.load_file(tmp_path / "weights.safetensors"))
    assert torch.equal(again(tokens), net(tokens))


def test_cut_keeps_the_function() -> None:
    net, tokens = small(MODELS["vla_authors"]), some_tokens()
    cut = net.cut(30)
    assert cut.config.max_length == 30
    assert len(cut.positions.weight) == 30
    assert torch.equal(cut(tokens), net(tokens))
    assert parameter_count(cut) == parameter_count(net) - 34 * 32


@pytest.mark.parametrize("config", [c for c in VARIANTS if c.rank is None], ids=str)
def test_streams_step_to_what_the_layer_does(config: ModelConfig) -> None:
    net, tokens = small(config.with_(short_conv=4)).double(), some_tokens(1)[0]
    for name, parameter in net.named_parameters():
        if name.endswith("log_lambda0"):
            parameter.data = torch.tensor([-1.0, 2.0], dtype=torch.float64)
    layers = net.streams(tokens)
    assert len(layers) == 2
    x = net.embed(tokens[None])
    for block, streams in zip(net.blocks, layers, strict=True):
        mixer, outputs = block.mixer, []
        assert len(streams) == 2
        for head, stream in enumerate(streams):
            stream.check()
            rule = mixer.rule(head)
            state, reads = rule.init(stream.d, stream.d_v), []
            for t in range(len(stream)):
                beta = None if stream.beta is None else stream.beta[t]
                state = rule.step(state, Token(stream.k[t], stream.v[t], beta, stream.u[t]))
                reads.append(rule.read(state, stream.q[t]))
            outputs.append(torch.stack(reads))
        h = block.mixer_norm(x)
        wanted = mixer.attend(mixer.sequences(h))[0]
        assert torch.allclose(torch.stack(outputs, 1), wanted, rtol=1e-9, atol=1e-14)
        x = block(x)
    assert layers[0][0].labels[:2] == tuple(map(str, tokens[:2].tolist()))


def test_presets_are_the_three_columns_of_the_findings() -> None:
    paper, authors, exact = (MODELS[f"vla_{name}"] for name in ("paper", "authors", "exact"))
    common = {"features": "elu+1", "normalise_key": True, "direction": "projection",
              "unit_direction": True, "gain": "unit", "gated": False, "adaptive": True,
              "lambda0": 0.1, "refresh_every": 20, "refresh_eps": 1e-3, "floor": 1e-4}  # fmt: skip
    assert paper.own == {**common, "direction_scale": 1.0, "normalise_read": False}
    assert authors.own == {**common, "direction_scale": 0.0, "normalise_read": True}
    assert [c.output_norm for c in (paper, authors, exact)] == ["none", "layer", "layer"]
    assert exact.own == {
        **common, "features": "silu", "direction": "weighted", "unit_direction": False,
        "gain": "rls", "gated": True, "refresh_every": 0, "direction_scale": 1.0,
        "normalise_read": False,
    }  # fmt: skip
    for name, config in MODELS.items():
        assert (config.layers, config.width, config.heads, config.ffn) == (2, 128, 4, 256)
        assert (config.vocab, config.max_length, config.positions) == (128, 4096, "learned")
        assert config.short_conv == 0
        assert name_of(config.with_(max_length=73)) == name
    only_vla_has_a_norm = {n for n in ("softmax", "linear", "authors_delta", "vla_authors")
                           if MODELS[n].output_norm != "none"}  # fmt: skip
    assert only_vla_has_a_norm == {"vla_authors"}


def test_configs_are_values() -> None:
    assert ModelConfig() == ModelConfig(features="elu+1", lambda0=0.1)
    assert hash(ModelConfig()) == hash(ModelConfig(features="elu+1"))
    assert ModelConfig(mixer="softmax").lambda0 is None
    assert str(ModelConfig(lambda0=1).as_dict()) == str(ModelConfig(lambda0=1.0).as_dict())
    config = model("vla_exact", width=64)
    assert ModelConfig(**config.as_dict()) == config
    assert config.with_(mixer="delta").own == {"features": "silu", "gated": True}
    assert str(config) == "vla_exact(width=64)"
    assert str(MODELS["rls"]) == "rls"
    assert ModelConfig(rank=1, learned_lambda0=False) == ModelConfig()
    assert str(model("vla_authors", rank=4)) == "vla_authors(rank=4)"
    wider = ModelConfig(rank=2, learned_lambda0=True)
    assert ModelConfig(**wider.as_dict()) == wider


@pytest.mark.parametrize("module", ["config", "models"])
def test_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"vla.nn.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"mixer": "vla2"}, "mixer"),
        ({"heads": 5}, "heads"),
        ({"heads": 0}, "heads"),
        ({"width": 1.5}, "width"),
        ({"lambda0": 0.0}, "lambda0"),
        ({"gain": "oblong"}, "gain"),
        ({"features": "relu"}, "features"),
        ({"direction": "token"}, "direction"),
        ({"output_norm": "rms"}, "output_norm"),
        ({"positions": "rope"}, "positions"),
        ({"refresh_every": -1}, "refresh_every"),
        ({"gated": "yes"}, "gated"),
        ({"backend": "cuda"}, "backend"),
        ({"mixer": "softmax", "lambda0": 0.1}, "lambda0"),
        ({"mixer": "delta", "gain": "rls"}, "gain"),
        ({"rank": 5}, "rank"),
        ({"rank": 0}, "rank"),
        ({"rank": 1.5}, "rank"),
        ({"rank": 2, "direction": "key"}, "rank"),
        ({"rank": 2, "adaptive": False}, "rank"),
        ({"mixer": "delta", "rank": 2}, "rank"),
        ({"learned_lambda0": "yes"}, "learned_lambda0"),
        ({"learned_lambda0": True, "adaptive": False}, "learned_lambda0"),
        ({"mixer": "rls", "learned_lambda0": True}, "learned_lambda0"),
    ],
)
def test_bad_settings_are_named(settings: dict, argument: str) -> None:
    with pytest.raises(ValueError, match=rf"^{argument}: got .+, wanted .+"):
        ModelConfig(**settings)


def test_bad_calls_are_named() -> None:
    with pytest.raises(ValueError, match="tokens: got 'rows of 65', wanted at most max_length"):
        small(MODELS["linear"])(some_tokens(1, 65))
    with pytest.raises(ValueError, match="setting: got 'lr'"):
        model("linear", lr=1)
    with pytest.raises(ValueError, match="model: got 'vla'"):
        model("vla")
    with pytest.raises(ValueError, match="seed: got -1"):
        build(MODELS["linear"], seed=-1)
    with pytest.raises(ValueError, match="tokens: got"):
        small(MODELS["linear"]).streams(some_tokens())
    with pytest.raises(ValueError, match="rank: got 2, wanted 1"):
        small(model("vla_authors", rank=2)).streams(some_tokens(1)[0])


def train(net: TinyLM, task: tasks.Task, steps: int, lr: float) -> float:
    """Plain AdamW, one cycle; the accuracy on fresh rows."""
    generator = tasks.seeded(0)
    trained = [p for p in net.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=lr, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps)
    for _ in range(steps):
        batch = task.sample(32, generator=generator)
        loss = F.cross_entropy(net(batch.tokens).mT, batch.targets, ignore_index=tasks.IGNORED)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        schedule.step()
    batch = task.sample(256, generator=tasks.seeded(0, stream="test"))
    asked = batch.targets != tasks.IGNORED
    with torch.no_grad():
        return (net(batch.tokens).argmax(-1) == batch.targets)[asked].double().mean().item()


def without_attention() -> TinyLM:
    net = build(model("softmax", max_length=16, layers=1, width=64, ffn=64), seed=0)
    for block in net.blocks:
        torch.nn.init.zeros_(block.mixer.out.weight)
        block.mixer.requires_grad_(False)
    return net


def test_authors_copy_needs_no_attention_and_the_real_one_does() -> None:
    assert train(without_attention(), tasks.make("copy_authors", length=16), 100, 1e-2) == 1.0
    assert train(without_attention(), tasks.make("copy", length=16), 100, 1e-2) < 0.05


@pytest.mark.parametrize("name", ["softmax", "linear"])
def test_authors_copy_is_nearly_solved_before_training(name: str) -> None:
    """0.76 in the authors' log at step 1: the tied head reads the input back."""
    net = build(model(name, max_length=64), seed=42)
    batch = tasks.make("copy_authors").sample(64, generator=tasks.seeded(42))
    asked = batch.targets >= 0
    with torch.no_grad():
        accuracy = (net(batch.tokens).argmax(-1) == batch.targets)[asked].double().mean()
    assert 0.6 < accuracy < 0.95


def test_training_moves_each_heads_lambda0() -> None:
    task = tasks.make("mqar_authors", pairs=2)
    config = model("vla_authors", max_length=task.length, width=32, heads=2, ffn=0)
    net = build(config.with_(learned_lambda0=True, rank=2), seed=1)
    train(net, task, 5, 1e-3)
    for block in net.blocks:
        lambda0 = block.mixer.lambda0()
        assert (lambda0 > 0).all()
        assert (lambda0 != 0.1).all()


@pytest.mark.parametrize("name", ["vla_exact", "delta"])
def test_learns_recall_far_beyond_guessing(name: str) -> None:
    task = tasks.make("mqar_authors", pairs=4, vocab=24)
    config = model(
        name, vocab=24, width=32, heads=1, layers=1, ffn=0, short_conv=2, output_norm="layer",
        max_length=task.length,
    )  # fmt: skip
    accuracy = train(build(config, seed=1), task, 250, 2e-2)
    assert accuracy > 0.9
    assert task.guess < 0.35


def test_training_repeats_bit_for_bit() -> None:
    task = tasks.make("mqar_authors", pairs=2)
    config = model("vla_authors", max_length=task.length, width=32, heads=2, ffn=32)
    first, again = (build(config, seed=1) for _ in range(2))
    for net in (first, again):
        train(net, task, 3, 1e-3)
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    "config",
    [*MODELS.values(), model("vla_authors", rank=4, learned_lambda0=True, refresh_every=0)],
    ids=str,
)
def test_a_training_step_is_one_cuda_graph(config: ModelConfig) -> None:
    """Data, forward and backward captured; a replay gives the gradients of an eager step."""
    task = tasks.make("mqar_authors", pairs=8)
    net = build(config.with_(max_length=task.length), device="cuda")
    generator = tasks.seeded(0, "cuda")

    def step() -> tuple[Tensor, Tensor]:
        net.zero_grad(set_to_none=False)
        batch = task.sample(8, generator=generator, device="cuda")
        loss = F.cross_entropy(net(batch.tokens).mT, batch.targets, ignore_index=tasks.IGNORED)
        loss.backward()
        return batch.tokens, batch.targets

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph, stream=side):
        tokens, targets = step()
    graph.replay()
    replayed = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    F.cross_entropy(net(tokens).mT, targets, ignore_index=tasks.IGNORED).backward()
    for mine, parameter in zip(replayed, net.parameters(), strict=True):
        assert (mine - parameter.grad).norm() <= 1e-5 * parameter.grad.norm()
