"""Write the table of docs/chaos.md from chaos/results.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chaos.cells import CELLS

__all__ = ["PAGE", "RESULTS", "rewritten"]

RESULTS = Path(__file__).resolve().parent / "results.json"
PAGE = Path(__file__).resolve().parent.parent / "docs" / "chaos.md"
BEGIN, END = "<!-- made of chaos/results.json by make chaos: begin -->", "<!-- end -->"


def rewritten(page: str, results: dict[str, Any]) -> str:
    """Return the page with the table of these results."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{_table(results)}\n{END}{after}"


def _table(results: dict[str, Any]) -> str:
    outcomes = {outcome["cell"]: outcome for outcome in results["outcomes"]}
    counted = [each for each in outcomes.values() if each["ledger"] is not None]
    lost, doubled, disordered = (sum(each["ledger"][name] for each in counted) for name in _COUNTS)
    lines = [
        f"Measured on {results['date'][:10]}, {results['cores']} cores: {len(outcomes)} cells of {results['rows']:,} "
        f"rows, {len(outcomes) - len(counted)} without a result. "
        f"Lost {lost}, doubled {doubled}, out of order {disordered}.",
        "",
        "| pipeline | victim | fault | point | Spark | lost | doubled | order | restarts | recovered in |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in CELLS:
        if (outcome := outcomes.get(cell.name)) is not None:
            told = [cell.pipeline, cell.victim, cell.fault, cell.point, f"`{cell.mode}`", *_result(outcome)]
            lines.append(f"| {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


_COUNTS = ("lost", "doubled", "disordered")


def _result(outcome: dict[str, Any]) -> list[str]:
    if (ledger := outcome["ledger"]) is None:
        return [outcome["skipped"] or outcome["failure"] or "", "", "", "", ""]
    order = "broken" if ledger["disordered"] else "kept"
    return [
        str(ledger["lost"]),
        str(ledger["doubled"]),
        order,
        str(outcome["restarts"]),
        f"{outcome['recovery_s']:.1f} s",
    ]
