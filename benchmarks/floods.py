"""Measure what floods cost a server and an honest client: ``python -m benchmarks.floods``.

Each flood has its own server process (``afflux serve`` with default limits), a process with several attackers, and a
third process with an honest client that echoes throughout. Memory is the server's resident memory from ``/proc``: its
peak, and the rest after the attackers have left, above the memory with the honest client alone. The bar: an attacker
costs at most ``connection_bytes`` and a tenth, and every request of the honest client is answered.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from afflux import Limits
from benchmarks.figures import as_text, machine
from benchmarks.flood_ends import FLOODS
from benchmarks.pairs import Failure
from benchmarks.report import table
from benchmarks.runner import Plan

__all__ = ["RESULTS", "figures_of", "main", "measure", "report"]

RESULTS: Final = Path(__file__).resolve().parent / "floods.json"
"The figures of the last complete run."

_ROOT = Path(__file__).resolve().parent.parent
_MI = 1 << 20
_OVER = 1.1
"Maximum cost of an attacker, in connection_bytes."
_AFTER = 1.0
"Seconds without attackers before memory is read again."
_STEP = 0.02
"Seconds between two readings of the server's memory."


class _Process:
    """A process that answers lines with lines."""

    def __init__(self, *words: str) -> None:
        pipe = subprocess.PIPE
        self.popen = subprocess.Popen(
            [sys.executable, *words], stdin=pipe, stdout=pipe, stderr=pipe, cwd=_ROOT, text=True
        )

    def hear(self) -> str:
        """Return the next line.

        Raises:
            Failure: the process has ended.
        """
        assert self.popen.stdout is not None
        if line := self.popen.stdout.readline():
            return line
        raise Failure(f"{self.popen.args}: {self.popen.communicate()[1][-500:]}")

    def ask(self) -> dict[str, Any]:
        """Return its findings since the last call."""
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write("\n")
            self.popen.stdin.flush()
        except BrokenPipeError:
            pass
        answer: dict[str, Any] = json.loads(self.hear())
        return answer

    def end(self) -> None:
        """Stop the process."""
        self.popen.kill()
        self.popen.communicate()


@contextmanager
def _started(*words: str) -> Iterator[_Process]:
    process = _Process(*words)
    try:
        yield process
    finally:
        process.end()


def measure(name: str, seconds: float, attackers: int) -> dict[str, Any]:
    """Run one flood.

    Raises:
        Failure: the server has ended, or the honest client was not served.
    """
    flood = FLOODS[name]
    serve = (
        "-m",
        "afflux",
        "serve",
        f"{flood.wire}+tcp://127.0.0.1:0",
        "--handler",
        "benchmarks.flood_handler:Handler",
    )
    with _started(*serve) as server:
        port = server.hear().rpartition(":")[2].strip()
        ends = ("-m", "benchmarks.flood_ends")
        with _started(*ends, "honest", flood.wire, port) as honest:
            time.sleep(max(0.5, seconds / 4))
            alone = honest.ask()
            before = _resident(server)
            with _started(*ends, "attack", name, port, str(seconds), str(attackers)) as attack:
                peak = after = before
                while attack.popen.poll() is None:
                    peak = max(peak, _resident(server))
                    time.sleep(_STEP)
                came = json.loads(attack.hear())
            flooded = honest.ask()
            end = time.monotonic() + _AFTER
            while time.monotonic() < end:
                after = _resident(server)
                peak = max(peak, after)
                time.sleep(_STEP)
            honest.ask()
    return {
        "wire": flood.wire,
        "what": flood.what,
        "attackers": attackers,
        "connections": came["connections"],
        "written_mib": round(came["written"] / _MI, 1),
        "rss_before_mib": round(before / _MI, 1),
        "rss_peak_mib": round(peak / _MI, 1),
        "rss_after_mib": round(after / _MI, 1),
        "growth_mib": round((peak - before) / _MI, 1),
        "growth_per_attacker_mib": round((peak - before) / _MI / attackers, 1),
        "alone": _round(alone),
        "flooded": _round(flooded),
    }


def _resident(process: _Process) -> int:
    """Return the resident memory of a process in bytes."""
    try:
        pages = Path(f"/proc/{process.popen.pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        raise Failure("the server has ended") from None
    return int(pages) * 4_096


def _round(times: dict[str, Any]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in times.items()}


def figures_of(found: dict[str, dict[str, Any]], seconds: float, attackers: int) -> dict[str, Any]:
    """Return all results for JSON, with the worst flood and whether each is below its bar."""
    if not found:
        return {"floods": {}}
    bar = round(Limits.server().connection_bytes * _OVER / _MI, 1)
    worst = max(found, key=lambda name: float(found[name]["growth_per_attacker_mib"]))
    slowest = max(found, key=lambda name: float(found[name]["flooded"]["p99_ms"]))
    about = machine(Plan(contenders=(), workloads=(), runs=1, seconds=seconds, patience=0.0))
    del about["versions"]["rsocket"], about["versions"]["grpcio"]  # no peer has a part in this
    return {
        **about,
        "seconds": seconds,
        "attackers": attackers,
        "bar_mib_per_attacker": bar,
        "floods": found,
        "worst": {"flood": worst, "mib_per_attacker": found[worst]["growth_per_attacker_mib"]},
        "slowest": {"flood": slowest, "p99_ms": found[slowest]["flooded"]["p99_ms"]},
        "above_bar": [name for name, one in found.items() if one["growth_per_attacker_mib"] > bar],
    }


def report(figures: dict[str, Any]) -> str:
    """Return a table for a terminal."""
    header = (
        "flood",
        "wire",
        "MiB written",
        "connections",
        "RSS before",
        "peak",
        "after",
        "+ an attacker",
        "p50 ms",
        "p99 ms",
        "p99 alone",
    )
    rows = [
        (
            name,
            one["wire"],
            f"{one['written_mib']:,.0f}",
            f"{one['connections']:,}",
            f"{one['rss_before_mib']:.0f}",
            f"{one['rss_peak_mib']:.0f}",
            f"{one['rss_after_mib']:.0f}",
            f"{one['growth_per_attacker_mib']:.1f}",
            f"{one['flooded']['p50_ms']:.2f}",
            f"{one['flooded']['p99_ms']:.1f}",
            f"{one['alone']['p99_ms']:.1f}",
        )
        for name, one in figures["floods"].items()
    ]
    worst, slowest = figures["worst"], figures["slowest"]
    above = ", ".join(figures["above_bar"]) or "none"
    return (
        f"{table(header, rows)}\n\n{figures['attackers']} attackers, {figures['seconds']:g} s each; memory in MiB. "
        f"Worst: {worst['flood']}, {worst['mib_per_attacker']} MiB an attacker; the bar is "
        f"{figures['bar_mib_per_attacker']}, above it: {above}. Slowest echo: {slowest['flood']}, p99 "
        f"{slowest['p99_ms']} ms.\n"
    )


def run(names: Sequence[str], seconds: float, attackers: int, told: Callable[[str], None]) -> dict[str, Any]:
    """Run several floods in sequence."""
    found: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for name in names:
        told(f"{name}: {FLOODS[name].what}")
        try:
            found[name] = measure(name, seconds, attackers)
        except Failure as failure:
            failed[name] = str(failure)
            told(f"  failed: {failure}")
    return figures_of(found, seconds, attackers) | {"failed": failed}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the figures of a complete run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floods", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=tuple(FLOODS), default=tuple(FLOODS), metavar="FLOOD")
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each flood")
    parser.add_argument("--attackers", type=int, default=4, help="concurrent attackers")
    parser.add_argument(
        "--out", type=Path, default=None, help="write the figures here; default for a complete run: floods.json"
    )
    asked = parser.parse_args(arguments)
    figures = run(asked.only, asked.seconds, asked.attackers, lambda text: print(text, file=sys.stderr))
    if figures["floods"]:
        print(report(figures), end="")
    out = asked.out or (RESULTS if set(asked.only) == set(FLOODS) else None)
    if out is not None:
        out.write_text(as_text(figures))
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
