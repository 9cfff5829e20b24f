"""Measure captures into Parquet tables in one run: ``python -m benchmarks.capture``.

Captures with known content (capture_files.py) are decoded by one process without Spark, and by Spark in ``local[2]``;
dpkt and ``tshark -T fields`` read the same file. Each measurement is a process of its own (capture_child.py), and its
tables are compared with the content. Memory is the largest VmHWM of each kind of process, read from outside. A complete
run writes benchmarks/captures.json and the section of docs/benchmarks.md.
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
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, Final

from benchmarks.capture_files import SHORT_BYTES, Truth, make
from benchmarks.capture_report import PAGE, report, rewritten
from benchmarks.figures import as_text, machine
from benchmarks.runner import Plan
from benchmarks.spark_memory import descendants, kind_of

__all__ = ["RESULTS", "Asked", "main", "measure"]

RESULTS: Final = Path(__file__).resolve().parent / "captures.json"
"The figures of the documentation."
_SAMPLE_S: Final = 0.05
_MB: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How much to measure."""

    megabytes: int = 1_000
    "The capture that is compared with one of a tenth, and that the references read."
    more: int = 4_000
    "A larger capture, in megabytes, for the judged rates and the memory; 0 for none."
    patience: float = 600.0
    "The most seconds of one measurement."
    spark: bool = True
    "Whether Spark is measured."


SMOKE: Final = Asked(megabytes=3, more=0, patience=240.0, spark=False)


class _Failed(Exception):
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 if everything installed could be measured, whatever the verdicts, and 1 if something failed."""
    words = _parser().parse_args(arguments)
    if words.draw:
        return _publish(json.loads(RESULTS.read_text(encoding="utf-8")))
    asked = Asked(megabytes=words.mb, more=words.more, patience=words.patience)
    figures = _about(SMOKE if words.smoke else asked, words.note)
    with tempfile.TemporaryDirectory(prefix="afflux-bench-", dir=words.dir) as directory:
        failed = measure(
            SMOKE if words.smoke else asked, Path(directory), figures,
            lambda text: print(text, file=sys.stderr, flush=True),
        )  # fmt: skip
    print(report(figures), end="")
    if words.out:
        words.out.write_text(as_text(figures), encoding="utf-8")
    elif not words.smoke and not failed:
        RESULTS.write_text(as_text(figures), encoding="utf-8")
        return _publish(figures)
    return 1 if failed else 0


def measure(asked: Asked, directory: Path, figures: dict[str, Any], tell: Callable[[str], None]) -> bool:
    """Measure everything, and add it to the figures. Returns whether something has failed."""
    figures |= {"captures": {}, "runs": [], "not_run": []}
    run = _Run(asked, directory, figures, tell)
    whole, tenth = asked.megabytes * _MB, asked.megabytes * _MB // 10
    ways = ["alone", *(["spark"] if asked.spark else [])]
    for kind in ("stream", "mtu"):
        small, file = run.made(kind, tenth), run.made(kind, whole)
        for way in (*ways, "dpkt", "tshark"):
            run.measured(way, kind, file)
        for way in ways:
            run.measured(way, kind, file, small)
            run.measured(way, kind, small)
        small.unlink()
        file.unlink()
        if asked.more:
            largest = run.made(kind, asked.more * _MB)
            for way in ways:
                run.measured(way, kind, largest)
            largest.unlink()
    for kind, size in (("requests", tenth), ("short", min(tenth, SHORT_BYTES)), ("calls", tenth)):
        file = run.made(kind, size)
        for way in (*ways, *(["dpkt"] if kind == "calls" else [])):
            run.measured(way, kind, file)
        file.unlink()
    return run.failed


class _Run:
    """Runs the measurements."""

    def __init__(self, asked: Asked, directory: Path, figures: dict[str, Any], tell: Callable[[str], None]) -> None:
        self._asked, self._directory, self._figures, self._tell = asked, directory, figures, tell
        self._truth: dict[str, Truth] = {}
        self.failed = False

    def made(self, kind: str, size: int) -> Path:
        """Write a capture."""
        path = self._directory / f"{kind}-{size // _MB}.pcap"
        self._truth[path.name] = truth = make(kind, path, size)
        self._figures["captures"][path.name] = {"kind": kind, **asdict(truth)}
        self._tell(f"{path.name}: {truth.bytes / _MB:,.0f} MB, {truth.packets:,} packets, {truth.frames:,} frames")
        return path

    def measured(self, way: str, kind: str, file: Path, small: Path | None = None) -> None:
        """Measure a way, alone or after a smaller capture."""
        if (missing := _missing(way)) is not None:
            if missing not in self._figures["not_run"]:
                self._figures["not_run"].append(missing)
            return
        load = os.getloadavg()[0]
        out = self._directory / "tables"
        command = [
            sys.executable,
            "-m",
            "benchmarks.capture_child",
            way,
            file,
            out,
            *([] if small is None else [small]),
        ]
        try:
            seconds, memory, steps = _watched([str(word) for word in command], self._asked.patience)
            for step in steps:
                _check(way, step, self._truth)
        except _Failed as failed:
            self.failed = True
            self._figures["not_run"].append(f"{way}, {file.name}: {failed}")
            self._tell(self._figures["not_run"][-1])
            return
        told = {"way": way, "kind": kind, "file": file.name, "warm": small is not None, "load": round(load, 2)}
        told |= {"seconds": round(seconds, 3), "memory_mib": memory, "steps": steps}
        self._figures["runs"].append(told)
        rate = steps[-1]["bytes"] / steps[-1]["seconds"] / _MB
        self._tell(f"    {way:<7} {file.name:<18} {rate:7.0f} MB/s, {seconds:.1f} s in all, load {load:.1f}")


def _watched(command: list[str], patience: float) -> tuple[float, dict[str, float], list[dict[str, Any]]]:
    """Run a command; return its seconds, the largest memory of each kind of its processes in MiB, and its steps."""
    begun = time.perf_counter()
    memory: dict[str, float] = {}
    with (
        tempfile.TemporaryFile("w+") as told,
        subprocess.Popen(command, stdout=told, stderr=subprocess.PIPE, text=True) as running,
    ):
        try:
            while running.poll() is None:
                for pid, kind in _processes(running.pid):
                    memory[kind] = max(memory.get(kind, 0.0), _peak(pid))
                if time.perf_counter() - begun > patience:
                    raise _Failed(f"not ready after {patience:g} s")
                time.sleep(_SAMPLE_S)
        finally:
            running.terminate()
        seconds = time.perf_counter() - begun
        errors = running.stderr.read() if running.stderr is not None else ""
        if running.returncode:
            raise _Failed(errors.strip().rpartition("\n")[2] or f"exit code {running.returncode}")
        told.seek(0)
        steps = [json.loads(line) for line in told if line.startswith("{")]
    return seconds, {kind: round(size, 1) for kind, size in memory.items() if size}, steps


def _processes(pid: int) -> list[tuple[int, str]]:
    return [(pid, "process"), *((each, kind_of(each)) for each in descendants(pid) if kind_of(each))]


def _peak(pid: int) -> float:
    """Return the peak of the resident memory of a process in MiB; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmHWM:")), 0.0)


def _check(way: str, step: dict[str, Any], truth: dict[str, Truth]) -> None:
    """Compare the counts of a step with the content of its capture."""
    if "counts" not in step:
        return
    known, counts = truth[step["what"]], step["counts"]
    right = {"packets": known.packets} if way in ("dpkt", "tshark") else {
        "frames": known.frames, "connections": known.connections, "streams": known.streams, "violations": 0,
    }  # fmt: skip
    for name, count in right.items():
        if counts[name] != count:
            raise _Failed(f"{counts[name]} {name} were found, and the capture has {count}")


def _missing(way: str) -> str | None:
    if way == "dpkt" and find_spec("dpkt") is None:
        return "dpkt is not installed"
    if way == "tshark" and which("tshark") is None:
        return "tshark is not installed"
    return None


def _about(asked: Asked, note: str | None) -> dict[str, Any]:
    about = machine(Plan(contenders=(), workloads=(), runs=1, seconds=0.0, patience=0.0))
    versions = {name: about["versions"][name] for name in ("Python", "afflux")}
    for package in ("pyspark", "pyarrow", "numba", "dpkt"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {**about, "versions": versions, "asked": asdict(asked), **({"note": note} if note else {})}


def _publish(figures: dict[str, Any]) -> int:
    """Regenerate the section of the page."""
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")
    print("\nwritten: benchmarks/captures.json and the section of docs/benchmarks.md", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capture", description="Measure captures into tables.")
    add, default = parser.add_argument, Asked()
    add(
        "--mb",
        type=int,
        default=default.megabytes,
        metavar="N",
        help="MB of a capture; another has a tenth of it (1,000)",
    )
    add("--more", type=int, default=default.more, metavar="N", help="MB of the largest capture; 0 for none (4,000)")
    add("--patience", type=float, default=default.patience, metavar="S", help="the most seconds of a measurement (600)")
    add("--dir", type=Path, metavar="DIR", help="where the captures and the tables are written for a while")
    add("--smoke", action="store_true", help="run for a moment and without Spark, to check that it works")
    add("--out", type=Path, metavar="FILE", help="write the figures here, not to benchmarks/captures.json and the docs")
    add("--note", metavar="TEXT", help="a remark for the figures, such as other load on the machine")
    add("--draw", action="store_true", help="measure nothing: regenerate the docs from benchmarks/captures.json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
