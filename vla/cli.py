"""The ``vla`` command: open the laboratory, run the benchmarks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import vla


class Command(NamedTuple):
    """A subcommand. Both functions import what they need when called, so that help stays quick."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    main: Callable[[argparse.Namespace], int]


def _lab_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, help="port to listen on (default: a free one)")
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address and open nothing"
    )
    parser.add_argument(
        "--rule",
        metavar="PATH",
        help="a Python file with memory rules of your own; it runs with your rights",
    )


def _lab(args: argparse.Namespace) -> int:
    from vla import lab

    return lab.main(port=args.port, browser=not args.no_browser, rule_file=args.rule)


def _bench_arguments(parser: argparse.ArgumentParser) -> None:
    from vla import bench

    bench.add_arguments(parser)


def _bench(args: argparse.Namespace) -> int:
    from vla import bench

    return bench.main(args)


def _sweep_arguments(parser: argparse.ArgumentParser) -> None:
    from vla.train import cli

    cli.add_sweep_arguments(parser)


def _sweep(args: argparse.Namespace) -> int:
    from vla.train import cli

    return cli.sweep_main(args)


def _runs_arguments(parser: argparse.ArgumentParser) -> None:
    from vla.train import cli

    cli.add_runs_arguments(parser)


def _runs(args: argparse.Namespace) -> int:
    from vla.train import cli

    return cli.runs_main(args)


def _claims_arguments(parser: argparse.ArgumentParser) -> None:
    from vla.claims import cli

    cli.add_arguments(parser)


def _claims(args: argparse.Namespace) -> int:
    from vla.claims import cli

    return cli.main(args)


COMMANDS = {
    "lab": Command("open the laboratory in a browser", _lab_arguments, _lab),
    "bench": Command("time the operations beside their peers", _bench_arguments, _bench),
    "sweep": Command("train many models, each run once", _sweep_arguments, _sweep),
    "runs": Command("list, compare, export and mend recorded runs", _runs_arguments, _runs),
    "claims": Command(
        "the paper's claims, each with the check that decides it", _claims_arguments, _claims
    ),
}


def parser_for(name: str | None = None) -> argparse.ArgumentParser:
    """The parser. Only the named subcommand gets its arguments, so nothing else is imported."""
    parser = argparse.ArgumentParser(
        prog="vla", description="A laboratory for linear attention as recursive least squares."
    )
    parser.add_argument("--version", action="version", version=f"vla {vla.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command, spec in COMMANDS.items():
        sub = commands.add_parser(command, help=spec.help, description=spec.help)
        if command == name:
            spec.add_arguments(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; without a command, print the help."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = next((word for word in words if word in COMMANDS), None)
    parser = parser_for(name)
    args = parser.parse_args(words)
    if args.command is None:
        parser.print_help()
        return 0
    return COMMANDS[args.command].main(args)


if __name__ == "__main__":
    sys.exit(main())
