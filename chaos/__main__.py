"""Parse the command line of ``python -m chaos``, run cells and write the table."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from chaos.cells import CELLS, SMOKE
from chaos.page import PAGE, RESULTS, rewritten
from chaos.running import Outcome, run_cells

__all__ = ["main"]

ROWS = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 if every cell that could run has every row once, else 1; 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos", description="Kill parts of the pipelines; count every row."
    )
    parser.add_argument("--rows", type=int, default=ROWS, help=f"rows of each run ({ROWS:,})")
    parser.add_argument("--smoke", action="store_true", help=f"{len(SMOKE)} cells that differ most")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="cells whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="print the names of the cells")
    asked = parser.parse_args(arguments)
    cells = SMOKE if asked.smoke else CELLS
    if asked.only:
        cells = tuple(cell for cell in cells if any(text in cell.name for text in asked.only))
        if not cells:
            print("no cell has such a name: see --list", file=sys.stderr)
            return 2
    if asked.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    outcomes = asyncio.run(run_cells(cells, asked.rows, lambda outcome: print(_line(outcome), flush=True)))
    failed = [outcome for outcome in outcomes if not outcome.passed and outcome.skipped is None]
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} cells passed or were skipped")
    if cells == CELLS:
        results = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "cores": os.cpu_count(),
            "rows": asked.rows,
            "outcomes": [outcome.as_dict() for outcome in outcomes],
        }
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        PAGE.write_text(rewritten(PAGE.read_text(), results))
    return 1 if failed else 0


def _line(outcome: Outcome) -> str:
    if outcome.skipped:
        return f"{outcome.cell}: skipped, {outcome.skipped}"
    if outcome.ledger is None:
        return f"{outcome.cell}: FAILED, {outcome.failure}"
    ledger = outcome.ledger
    verdict = "passed" if outcome.passed else "FAILED" if outcome.struck else "FAILED, the fault did not strike"
    return (
        f"{outcome.cell}: {verdict}; {ledger.rows:,} rows, lost {ledger.lost}, doubled {ledger.doubled}, "
        f"out of order {ledger.disordered}; {outcome.restarts} restarts, recovered in {outcome.recovery_s} s"
        + "".join(f"\n    the query ended: {error}" for error in outcome.errors)
    )


if __name__ == "__main__":
    sys.exit(main())
