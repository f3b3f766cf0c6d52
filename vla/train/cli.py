"""What ``vla sweep`` and ``vla runs`` do: words and tables around the functions of this package."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla.errors import ArgumentError, require_choice

if TYPE_CHECKING:
    from vla.train.loop import Trainer
    from vla.train.result import RunRow
    from vla.train.store import Store, Wanted
    from vla.train.sweep import Engine, Keep

DEFAULT_STORE = "vla-runs.sqlite"
BAD_INPUT, INTERRUPTED = 2, 130
LARGE = 900_000
"""Bytes of weights above which a checkpoint is written in float16."""

CUSTOM = "one"
"""``vla sweep one``: no preset, a model and a task from the command line."""

EXAMPLES = """\
examples:
  vla sweep figure5 --budget smoke
  vla sweep figure5 --budget full --device cuda --jobs 16 --export data/runs/figure5.parquet
  vla sweep one --model vla_exact --task mqar_fair --set task.pairs=32 --lr 1e-3,3e-3 --seed 1,2
  vla sweep --plan --budget full
"""


def add_sweep_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``vla sweep``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument(
        "preset", nargs="?", help=f"a preset's name, or '{CUSTOM}'; without it, the list of presets"
    )
    parser.add_argument("--budget", default="smoke", help="smoke (default), cpu or full")
    _store_argument(parser)
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda or cuda:N")
    parser.add_argument("--jobs", type=int, help="runs at once on a GPU (default: up to 16)")
    parser.add_argument("--threads", type=int, default=1, help="threads of a run on a CPU")
    parser.add_argument("--engine", default="local", help="local (default) or ray")
    parser.add_argument("--ray-address", help="an existing Ray cluster (default: start one here)")
    parser.add_argument("--plan", action="store_true", help="say what it would cost, and stop")
    parser.add_argument(
        "--export", metavar="FILE", help="write the runs to a Parquet file at the end"
    )
    parser.add_argument("--weights", metavar="DIR", help="save every trained model's weights there")
    parser.add_argument(
        "--retry", metavar="STATUS", help="do runs again that ended as failed or nan"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    _custom_arguments(parser.add_argument_group(f"with '{CUSTOM}'"))


def _custom_arguments(group: Any) -> None:
    group.add_argument("--model", default="vla_authors", help="a named model, or several: a,b")
    group.add_argument("--task", default="mqar_authors", help="a task's name")
    group.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="settings",
        help="model.width=64, task.pairs=8, batch=32 …; may be repeated",
    )  # fmt: skip
    group.add_argument("--lr", default="3e-4", help="learning rate, or several: 1e-3,3e-3")
    group.add_argument("--steps", type=int, default=2000)
    group.add_argument("--seed", default="42", help="seed, or several: 42,123")


def sweep_main(args: argparse.Namespace) -> int:
    """Run a sweep; exit status 0 if all went well, 1 if a run failed, 2 for bad input."""
    return _guarded(_sweep, args)


def _sweep(args: argparse.Namespace) -> int:
    from vla.train.progress import ProgressBar, Silent
    from vla.train.store import Store
    from vla.train.sweep import run_sweep

    if args.preset is None and not args.plan:
        return _list_presets()
    source, name = _source(args)
    if args.plan:
        return _plan(args)
    keep = _keeper(args.weights)
    engine = _engine(args, keep)
    _check_export(args.export)
    bar = Silent() if args.quiet else ProgressBar(0, 0)
    with Store(_path(args)) as store:
        if args.retry:
            require_choice("retry", args.retry, ("failed", "nan"))
            store.requeue([args.retry], [item.config.key for item in source(())])
        with _terminable():
            summary = run_sweep(
                source, store, preset=name, budget=args.budget, engine=engine, bar=bar
            )
        print(f"{name} {args.budget}: {summary}")
        rows = store.rows(preset=name, budget=args.budget)
    _report(rows)
    if args.export and rows and not summary.interrupted:
        _export(rows, args.export)
    if summary.interrupted:
        return INTERRUPTED
    return 1 if summary.failed else 0


def _source(args: argparse.Namespace) -> tuple[Callable[[Sequence[RunRow]], list[Wanted]], str]:
    """What to run, as a function of what is recorded, and its name. Everything is checked here."""
    from vla.train.presets import BUDGETS, preset

    require_choice("budget", args.budget, BUDGETS)
    if args.preset == CUSTOM:
        wanted = _custom(args)
        return lambda _rows: wanted, CUSTOM
    if args.preset is None:
        return lambda _rows: [], ""
    chosen = preset(args.preset)
    return lambda rows: chosen.wanted(args.budget, rows), chosen.name


def _custom(args: argparse.Namespace) -> list[Wanted]:
    from vla import nn, tasks
    from vla.train.config import RunConfig
    from vla.train.store import Wanted

    given = _settings(args.settings)
    task = tasks.make(args.task, **given["task"])
    shape = {"vocab": task.vocab, "max_length": task.length, **given["model"]}
    return [
        Wanted(RunConfig(nn.model(model, **shape), task, steps=args.steps, lr=lr, seed=seed,
                         **_run_fields(given["run"])).check(), model)
        for model in args.model.split(",")
        for lr in _numbers("lr", args.lr, float)
        for seed in _numbers("seed", args.seed, int)
    ]  # fmt: skip


def _run_fields(given: dict[str, Any]) -> dict[str, Any]:
    import dataclasses

    from vla.train.config import RunConfig

    taken = ("model", "task", "also_eval", "steps", "lr", "seed")
    known = [f.name for f in dataclasses.fields(RunConfig) if f.name not in taken]
    for name in given:
        require_choice("set", name, [*known, "model.…", "task.…"])
    return given


def _settings(pairs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``model.width=64`` and the like, sorted by where they go."""
    given: dict[str, dict[str, Any]] = {"model": {}, "task": {}, "run": {}}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ArgumentError("set", pair, "NAME=VALUE, such as task.pairs=8")
        group, dot, rest = name.partition(".")
        if dot and group in ("model", "task"):
            given[group][rest] = _value(text)
        else:
            given["run"][name] = _value(text)
    return given


def _value(text: str) -> Any:
    """A number, a truth value, a pair of numbers or a word."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words and text != "none":
        return words[text.lower()]
    if "," in text:
        return tuple(_value(part) for part in text.split(","))
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _numbers(name: str, text: str, kind: type) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        wanted = "whole numbers" if kind is int else "numbers"
        raise ArgumentError(name, text, f"{wanted}, with commas between") from None


def _engine(args: argparse.Namespace, keep: Keep | None) -> Engine:
    require_choice("engine", args.engine, ("local", "ray"))
    if args.engine == "local":
        from vla.train.sweep import LocalEngine

        return LocalEngine(args.device, jobs=args.jobs, threads=args.threads, keep=keep)
    from vla.train.ray_engine import RayEngine

    if keep is not None:
        raise ArgumentError("weights", "with --engine ray", "--engine local")
    return RayEngine(args.device, jobs=args.jobs, address=args.ray_address)


def _keeper(folder: str | None) -> Keep | None:
    """Saves every run that ends well as a checkpoint, in half precision where it would be big."""
    if folder is None:
        return None
    if not Path(folder).is_dir():
        raise ArgumentError("weights", folder, "a folder that exists")
    from vla import nn
    from vla.nn import checkpoint

    def keep(wanted: Wanted, trainer: Trainer) -> None:
        result, config = trainer.result(), wanted.config
        notes = {
            "label": wanted.label, "run": config.canonical, "key": config.key,
            "evaluation": result.evaluation, "device": result.device,
            "versions": result.versions, "commit": result.commit, "finished": result.finished,
        }  # fmt: skip
        name = f"{nn.name_of(config.model)}-seed{config.seed}-{config.key[:10]}.safetensors"
        half = 4 * result.parameters > LARGE
        checkpoint.save(trainer.model, Path(folder) / name, notes=notes, half=half)

    return keep


def _list_presets() -> int:
    from vla.train.presets import BUDGETS, PRESETS

    print("vla sweep PRESET --budget " + "|".join(BUDGETS))
    for each in PRESETS.values():
        sizes = ", ".join(f"{budget} {len(each.wanted(budget))}" for budget in BUDGETS)
        print(f"  {each.name:<8} {each.title}. {each.question} Runs: {sizes}.")
    return 0


def _plan(args: argparse.Namespace) -> int:
    from vla.provenance import device_name
    from vla.train.loop import checked_device
    from vla.train.plan import estimate, measured_pace
    from vla.train.presets import PRESETS

    device = checked_device(args.device)
    if args.preset == CUSTOM:
        plans = {CUSTOM: _custom(args)}
    else:
        names = [args.preset] if args.preset else list(PRESETS)
        plans = {name: PRESETS[name].wanted(args.budget) for name in names}
    pace = measured_pace([item for wanted in plans.values() for item in wanted], device)
    for name, wanted in plans.items():
        print(estimate(f"{name} {args.budget}", wanted, pace))
    print(
        f"On {device_name(device)}, from a few steps of each mixer timed just now, one run after "
        "another. Side by side on a GPU they take less; a grid that is widened takes more."
    )
    return 0


def _report(rows: Sequence[RunRow]) -> None:
    from vla.train.tables import compare

    if any(row.status == "done" for row in rows):
        load = "task.pairs" if any(row.value("task.pairs") for row in rows) else "task.length"
        across = load if len({row.value(load) for row in rows}) > 1 else "task.length"
        print(compare(rows, "label", across))


def add_runs_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``vla runs``."""
    _store_argument(parser)
    parser.add_argument("--file", metavar="FILE", help="read a Parquet file instead of the store")
    chosen = parser.add_argument_group("which runs")
    chosen.add_argument("--preset", help="those of a preset")
    chosen.add_argument("--budget", help="those of a budget")
    chosen.add_argument("--status", help="queued, running, done, nan, failed or cancelled")
    chosen.add_argument(
        "--where", action="append", default=[], metavar="FIELD=VALUE",
        help="lr=1e-3, seed=42, task.pairs=24, model.mixer=vla, label=…; may be repeated",
    )  # fmt: skip
    chosen.add_argument("--sort", metavar="FIELD", help="order by a field, such as test.accuracy")
    what = parser.add_argument_group(
        "what to do (default: list them)"
    ).add_mutually_exclusive_group()
    what.add_argument(
        "--show", metavar="KEY", help="all about one run; the key's beginning is enough"
    )
    what.add_argument("--compare", metavar="FIELD", help="test accuracy by label and this field")
    what.add_argument("--export", metavar="FILE", help="write finished runs to a Parquet file")
    what.add_argument("--import", metavar="FILE", dest="import_file", help="take in a Parquet file")
    what.add_argument("--check", action="store_true", help="look for damage in the store")
    what.add_argument("--recover", metavar="NEW", help="save what is whole of a damaged store")
    what.add_argument("--requeue", metavar="STATUS", help="have runs done again: failed, nan, done")


def runs_main(args: argparse.Namespace) -> int:
    """List, compare, export or mend recorded runs; 0 if all is well, 2 for bad input or damage."""
    return _guarded(_runs, args)


def _runs(args: argparse.Namespace) -> int:
    from vla.train.recover import recover
    from vla.train.result import STATUSES
    from vla.train.store import Store
    from vla.train.tables import compare, listing, show

    if args.recover:
        kept, lost = recover(_path(args), args.recover)
        print(f"{kept} runs saved to {args.recover}, {lost} damaged ones left out.")
        return 0
    if args.status is not None:
        require_choice("status", args.status, STATUSES)
    if args.import_file:
        return _import(args)
    if args.check or args.requeue:
        with Store(_path(args), create=False) as store:
            return _check(store) if args.check else _requeue(store, args)
    rows = _chosen(args)
    if args.show:
        print(show(rows, args.show))
    elif args.compare:
        print(compare(rows, "label", args.compare))
    elif args.export:
        _export(rows, args.export)
    else:
        print(listing(rows))
    return 0


def _chosen(args: argparse.Namespace) -> list[RunRow]:
    """The rows that the options pick, in the order they ask for."""
    from vla.train.store import Store
    from vla.train.tables import matching, ordered
    from vla.train.transfer import load_rows

    if args.file:
        rows = [
            row
            for row in load_rows(args.file)
            if args.preset in (None, row.preset)
            and args.budget in (None, row.budget)
            and args.status in (None, row.status)
        ]
    else:
        with Store(_path(args), create=False) as store:
            rows = store.rows(preset=args.preset, budget=args.budget, status=args.status)
    wanted = dict(_condition(text) for text in args.where)
    return ordered(matching(rows, wanted), args.sort)


def _condition(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentError("where", text, "FIELD=VALUE, such as task.pairs=24")
    return name, _value(value)


def _import(args: argparse.Namespace) -> int:
    from vla.train.store import Store
    from vla.train.transfer import import_rows, load_rows

    rows = load_rows(args.import_file)
    with Store(_path(args)) as store:
        new = import_rows(store, rows)
    print(f"{new} runs taken in, {len(rows) - new} were there already.")
    return 0


def _check(store: Store) -> int:
    problems = store.problems()
    counts = ", ".join(f"{n} {status}" for status, n in store.counts().items() if n)
    print("\n".join(problems) if problems else f"{store.path}: no damage. {counts or 'No runs'}.")
    return BAD_INPUT if problems else 0


def _requeue(store: Store, args: argparse.Namespace) -> int:
    require_choice("requeue", args.requeue, ("failed", "nan", "done"))
    rows = _chosen(args)
    print(f"{store.requeue([args.requeue], [row.key for row in rows])} runs will be done again.")
    return 0


def _export(rows: Sequence[RunRow], path: str) -> None:
    from vla.train.transfer import export

    print(f"{export(rows, path)} runs written to {path}")


def _check_export(path: str | None) -> None:
    """Before hours of work: can the file be written at the end?"""
    if path is not None and not Path(path).parent.is_dir():
        raise ArgumentError("export", path, "a file in a folder that exists")


def _store_argument(parser: argparse.ArgumentParser) -> None:
    default = os.environ.get("VLA_STORE", DEFAULT_STORE)
    parser.add_argument(
        "--store", default=default, metavar="FILE",
        help=f"the run store (default: {DEFAULT_STORE}, or what VLA_STORE names)",
    )  # fmt: skip


def _path(args: argparse.Namespace) -> Path:
    return Path(args.store)


def _guarded(body: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Run ``body``; what a person did wrong, or a broken store, is one line and no stack trace."""
    from vla.train.errors import DeviceLost, StoreError

    try:
        return body(args)
    except (ArgumentError, StoreError) as error:
        print(f"vla: {error}", file=sys.stderr)
        return BAD_INPUT
    except DeviceLost as error:
        print(f"vla: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has what it wants.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


@contextmanager
def _terminable() -> Iterator[None]:
    """Let a polite kill do what Ctrl-C does: keep what is done and give the rest back."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
