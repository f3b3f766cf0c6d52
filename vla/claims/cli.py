"""``vla claims``: list the ledger, show a claim, run checks, write the report."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vla.errors import ArgumentError, missing_package

if TYPE_CHECKING:
    from vla.claims.claim import Claim
    from vla.claims.ledger import Entry

BAD_INPUT, INTERRUPTED = 2, 130

EXAMPLES = """\
examples:
  vla claims                                   every claim and its verdict
  vla claims --section "4 Theory" --verdict fails
  vla claims show proposition-2
  vla claims run proposition-2
  vla claims run table-9 --budget cpu          trains the runs that decide it
  vla claims run all --record                  decides everything, keeps it in data/claims
  vla claims report claims.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``vla claims``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument(
        "action", nargs="?", default="list", help="list (default), show, run, report"
    )
    parser.add_argument("what", nargs="?", help="a claim's id, 'all' (run), or a file (report)")
    parser.add_argument("--section", help="list only claims of this section")
    parser.add_argument("--verdict", help="list only holds, changed, fails or undecided")
    parser.add_argument("--budget", default="cheap", help="run: cheap (default), cpu or full")
    parser.add_argument(
        "--record", action="store_true", help="run: keep the verdicts in data/claims/ledger.json"
    )


def main(args: argparse.Namespace) -> int:
    """Do it; 0, 2 for bad input, 130 if interrupted."""
    actions = {"list": _list, "show": _show, "run": _run, "report": _report}
    try:
        if args.action not in actions:
            wanted = "one of " + ", ".join(actions)
            raise ArgumentError("action", args.action, wanted, "`vla claims --help` has examples.")
        return actions[args.action](args)
    except ArgumentError as error:
        print(f"vla claims: {error}", file=sys.stderr)
        return BAD_INPUT
    except ModuleNotFoundError as error:
        print(f"vla claims: {missing_package(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("vla claims: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has what it wants.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _list(args: argparse.Namespace) -> int:
    from vla.claims.claim import SECTIONS
    from vla.claims.finding import VERDICTS, counted
    from vla.claims.ledger import current
    from vla.errors import require_choice

    if args.section:
        require_choice("section", args.section, SECTIONS)
    if args.verdict:
        require_choice("verdict", args.verdict, VERDICTS)
    chosen = [each for each in _ordered() if args.section in (None, each.section)]
    entries = current([each.id for each in chosen])
    shown = [c for c in chosen if args.verdict in (None, entries[c.id].finding.verdict)]
    for section in dict.fromkeys(each.section for each in shown):
        print(f"\n{section}")
        for each in (c for c in shown if c.section == section):
            print(f"  {_words(entries[each.id]):<26} {each.id:<32} {each.title}")
    told = counted(entries[each.id].finding.verdict for each in shown)
    print(f"\n{len(shown)} claims: {told or 'none'}")
    return 0


def _show(args: argparse.Namespace) -> int:
    from vla.claims.claim import get
    from vla.claims.ledger import current

    chosen = get(args.what or "")
    print(_told(chosen, current([chosen.id])[chosen.id]))
    return 0


def _run(args: argparse.Namespace) -> int:
    from vla.claims import ledger, work
    from vla.claims.claim import get
    from vla.errors import require_choice
    from vla.train.progress import ProgressBar

    require_choice("budget", args.budget, ("cheap", "cpu", "full"))
    everything = args.what == "all"
    chosen = _ordered() if everything else [get(args.what or "")]
    done = []
    for each in chosen:
        budget = (
            args.budget if args.budget in each.budgets else _most(each, everything, args.budget)
        )
        entry = work.run(each.id, budget, ProgressBar(0, 0))
        done.append(entry)
        print(f"{_words(entry):<26} {each.id} ({entry.seconds:.1f} s)" if everything
              else _told(each, entry), flush=True)  # fmt: skip
    if args.record:
        print(f"kept in {ledger.save(done)}")
    return 0


def _most(chosen: Claim, everything: bool, budget: str) -> str:
    """With ``all``, a claim without that budget is run at its dearest; alone, it is said."""
    if everything or not chosen.budgets:
        return chosen.budgets[-1] if chosen.budgets else "cheap"
    wanted = f"one of {', '.join(chosen.budgets)} for {chosen.id}"
    raise ArgumentError("budget", budget, wanted)


def _report(args: argparse.Namespace) -> int:
    from vla.claims import report
    from vla.claims.ledger import current

    if not args.what:
        raise ArgumentError("report", None, "a file to write", "For example claims.html.")
    path = report.save(current(), Path(args.what))
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB, {len(_ordered())} claims")
    return 0


def _ordered() -> Sequence[Claim]:
    import vla.claims

    return vla.claims.ordered()


def _words(entry: Entry) -> str:
    from vla.claims.finding import VERDICTS

    return VERDICTS[entry.finding.verdict]


def _told(claim: Claim, entry: Entry) -> str:
    """A claim in full."""
    found = entry.finding
    parts = [
        f"{claim.title}: {_words(entry)}", f"“{claim.words}”", claim.place,
        f"To be true: {claim.needs}", f"Found: {found.why}",
    ]  # fmt: skip
    lines = ["\n".join(textwrap.wrap(part, 96)) for part in parts]
    if found.grid:
        from vla.train.tables import grid

        lines.append(grid([found.grid.head, *([_cell(c) for c in row] for row in found.grid.rows)]))
    commit = f", commit {entry.commit[:8]}" if entry.commit else ""
    lines.append(f"Evidence: {'; '.join(found.sources) or 'none'}")
    lines.append(f"Checked {entry.date} on {entry.device}{commit}, {entry.seconds:.1f} s")
    lines.append("; ".join(f"--budget {b}: {claim.cost(b)}" for b in claim.budgets))
    return "\n\n".join(line for line in lines if line)


def _cell(cell: str | float | None) -> str:
    from vla.figures.theme import three

    return cell if isinstance(cell, str) else three(cell)
