"""Parse the command line of ``python -m interop``, run the cases and write the page."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from interop.cases import CASES
from interop.peers import PEERS
from interop.report import page, summary
from interop.runner import ROLES, TRANSPORTS, Plan, peers_of, run

__all__ = ["main"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "interop.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 if the results match the table in known.py, 1 if not, 2 for wrong usage."""
    asked = _parser().parse_args(arguments)
    cases = [case for case in CASES if not asked.case or any(fnmatchcase(case.name, one) for one in asked.case)]
    cases = [case for case in cases if case.smoke or not asked.smoke]
    if not cases:
        print(f"no such case; there are {', '.join(case.name for case in CASES)}", file=sys.stderr)
        return 2
    plan = Plan(
        peers=peers_of(asked.peer),
        cases=cases,
        roles=asked.role or ROLES,
        transports=asked.transport or TRANSPORTS,
    )
    results = asyncio.run(run(plan, _tell))
    _tell("")
    print(summary(results, verbose=asked.verbose))
    whole = not (asked.peer or asked.case or asked.role or asked.transport or asked.smoke)
    stale = results.stale() if whole and not results.away else []
    print("".join(f"! {text}\n" for text in stale), end="")
    missing = [name for name in results.away if not PEERS[name].optional]
    surprises = bool(results.unexpected() or missing or stale)
    if asked.out or (whole and not surprises):
        out = asked.out or PAGE
        out.write_text(page(results))
        print(f"written to {out.name}", file=sys.stderr)
    return 1 if surprises else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m interop", description="afflux with other RSocket implementations.")
    add = parser.add_argument
    add("--peer", nargs="+", choices=list(PEERS), metavar="PEER", help=f"of {' '.join(PEERS)}")
    add("--case", nargs="+", metavar="CASE", help="by name, such as stream.items or 'stream.*'")
    add("--role", nargs="+", choices=ROLES, metavar="ROLE", help="what the peer is: client server")
    add("--transport", nargs="+", choices=TRANSPORTS, metavar="TRANSPORT", help=f"of {' '.join(TRANSPORTS)}")
    add("--smoke", action="store_true", help="a handful of cases of each peer")
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="where the page goes (docs/interop.md, after a whole run without surprises)",
    )
    add("-v", "--verbose", action="store_true", help="show the last frames of every failure, declared ones too")
    return parser


def _tell(line: str) -> None:
    """Print progress in place on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
