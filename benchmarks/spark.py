"""Measure everything around Spark in one run: ``python -m benchmarks.spark``.

Each part is a module with a process of its own (spark_parts.py), so that none has the memory or the JVM of another.
They run one after the other. References, such as Spark's own sources, are measured in the session of their part. Bars
are shown beside the figures that have one. A complete run writes benchmarks/spark.json and the section of
docs/benchmarks.md; ``--only PART --update`` writes the parts that it has measured, with their date and machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import as_text, machine
from benchmarks.runner import Plan
from benchmarks.spark_parts import PARTS, Asked, Part
from benchmarks.spark_report import PAGE, report, rewritten

__all__ = ["RESULTS", "main", "measure", "updated"]

RESULTS: Final = Path(__file__).resolve().parent / "spark.json"
"The figures of the documentation."
SMOKE: Final = Asked(rows=20_000, runs=1, seconds=3.0, delay_s=2.0, items=20_000, batches=12, decoded=500, quick=True)
"Just enough to see that everything runs and counts correctly."
QUICK: Final = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"The environment of a smoke test: a JVM that starts sooner, and runs slower."
_TAIL: Final = 300
"The most characters of a failed part's output that are shown."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 if everything installed could be measured, whatever the verdicts; 1 if something failed; 2 for
    wrong usage or without Spark."""
    words = _parser().parse_args(arguments)
    if words.draw:
        return _publish(json.loads(RESULTS.read_text(encoding="utf-8")))
    names = [part.name for part in PARTS]
    if unknown := set(words.only or ()) - set(names):
        print(f"no part {', '.join(sorted(unknown))}; parts are {', '.join(names)}", file=sys.stderr)
        return 2
    parts = [part for part in PARTS if not words.only or part.name in words.only]
    asked = SMOKE if words.smoke else Asked(rows=words.rows, runs=words.runs)
    if words.seconds is not None:
        asked = replace(asked, seconds=words.seconds)
    if (missing := _missing()) is not None:
        print(missing, file=sys.stderr)
        return 2
    figures = _about(asked, words.note)
    failed = measure(parts, asked, figures, lambda text: print(text, file=sys.stderr, flush=True))
    print(report(figures), end="")
    if words.out:
        words.out.write_text(as_text(figures), encoding="utf-8")
    elif not failed and not words.smoke and (words.update or len(parts) == len(PARTS)):
        published = updated(json.loads(RESULTS.read_text(encoding="utf-8")), figures) if words.update else figures
        RESULTS.write_text(as_text(published), encoding="utf-8")
        return _publish(published)
    return 1 if failed else 0


def updated(published: dict[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
    """Return published figures with these parts instead of those of the same name, each with its date and machine."""
    where = {"date": figures["date"], "cpu": figures["cpu"]}
    new = {part["name"]: part | where for part in figures["parts"]}
    return published | {"parts": [new.get(part["name"], part) for part in published["parts"]]}


def measure(parts: Sequence[Part], asked: Asked, figures: dict[str, Any], tell: Callable[[str], None]) -> list[str]:
    """Run the parts, and add what they measure to the figures. Returns the names of those that failed."""
    failed: list[str] = []
    figures |= {"parts": [], "not_run": []}
    for number, part in enumerate(parts):
        if (missing := part.missing()) is not None:
            figures["not_run"].append(f"{part.name}: {missing}")
            continue
        tell(f"{number + 1} of {len(parts)}: {part.title}")
        begun = time.monotonic()
        told = _run(part, asked)
        tell(f"    {time.monotonic() - begun:.0f} s")
        if isinstance(told, str):
            failed.append(part.name)
            figures["not_run"].append(f"{part.name} failed: {told}")
            tell(figures["not_run"][-1])
            continue
        of = [{**figure._asdict(), "verdict": figure.verdict} for figure in part.figures(told)]
        figures["parts"].append({"name": part.name, "title": part.title, "figures": of, "told": told})
    return failed


def _run(part: Part, asked: Asked) -> dict[str, Any] | str:
    """Return what a part has measured, or why it has failed."""
    with tempfile.TemporaryDirectory(prefix="afflux-bench-") as directory:
        out = Path(directory) / "figures.json"
        command = [sys.executable, "-m", part.module, *map(str, part.words(asked)), "--out", str(out)]
        environment = QUICK | os.environ if asked.quick else None
        ran = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment
        )
        if out.exists():  # the exit code is 1 if a bar is missed
            told: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
            return told
    return " ".join(ran.stdout.split())[-_TAIL:] or f"exit code {ran.returncode}"


def _about(asked: Asked, note: str | None) -> dict[str, Any]:
    about = machine(Plan(contenders=(), workloads=(), runs=asked.runs, seconds=0.0, patience=0.0))
    versions = {name: about["versions"][name] for name in ("Python", "afflux")}
    for package in ("pyspark", "pyarrow", "msgspec", "nats-py"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    from afflux.spark.session import java_home

    versions["Java"] = str(java_home().version)
    return {**about, "versions": versions, "asked": asdict(asked), **({"note": note} if note else {})}


def _missing() -> str | None:
    """Return what Spark lacks here."""
    from afflux.core.errors import MissingExtra, Unsupported
    from afflux.spark.session import check

    try:
        check()
    except (MissingExtra, Unsupported) as error:
        return str(error)
    return None


def _publish(figures: dict[str, Any]) -> int:
    """Regenerate the section of the page."""
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")
    print("\nwritten: benchmarks/spark.json and the section of docs/benchmarks.md", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description="Measure everything around Spark.")
    add, default = parser.add_argument, Asked()
    add("--rows", type=int, default=default.rows, metavar="N", help=f"rows of a read ({default.rows:,})")
    add("--runs", type=int, default=default.runs, metavar="N", help=f"alternating runs of each way ({default.runs})")
    add("--seconds", type=float, metavar="S", help=f"how long memory is measured ({default.seconds:g})")
    add("--smoke", action="store_true", help="run everything for a moment, to check that it works")
    add("--only", nargs="+", metavar="PART", help=f"some of: {' '.join(part.name for part in PARTS)}")
    add("--out", type=Path, metavar="FILE", help="write the figures here, not to benchmarks/spark.json and the docs")
    add("--note", metavar="TEXT", help="a remark for the figures, such as other load on the machine")
    add("--update", action="store_true", help="publish only these parts; the others keep their figures")
    add("--draw", action="store_true", help="measure nothing: regenerate the docs from benchmarks/spark.json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
