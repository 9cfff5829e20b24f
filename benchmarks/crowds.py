"""Measure two crowds on one server: ``python -m benchmarks.crowds``. 10,000 clients ask, and 10,000 are silent.

The server is ``afflux serve --demo``, those who ask are ``afflux bench --rate``, and the silent ones, which only send
keepalives, are a process of their own (crowd.py). Those who ask do so twice: alone, and next to the silent ones. The
memory is resident memory of all processes of the server (``/proc``); the kernel's memory of sockets is not included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import crowds_report
from benchmarks.bars import OURSELVES
from benchmarks.crowd import room
from benchmarks.figures import as_text, machine
from benchmarks.idle import start
from benchmarks.pairs import Failure
from benchmarks.peers import Contender
from benchmarks.runner import Plan

__all__ = ["RESULTS", "Asked", "main", "measure", "plan"]

RESULTS: Final = Path(__file__).resolve().parent / "crowds.json"
"The figures of the documentation."

_ROOT: Final = RESULTS.parent.parent
_WHOLE: Final = 10_000
_SPARE: Final = 300
"Descriptors of the server in addition to its connections."
_SAMPLE_S: Final = 0.25
_SILENT: Final = "127.0.0.1"
_ASKING: Final = "127.0.0.2"
"Each crowd has an address of the server, because two addresses have only about 28,000 ports between them."
_PIPE: Final = asyncio.subprocess.PIPE
_FIGURES: Final = (
    *("connections_open", "connections_refused", "requests", "succeeded", "failed"),
    *("latency_p50_ms", "latency_p99_ms", "latency_max_ms", "client_cpu"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One measurement."""

    n: int
    "Clients of each crowd."
    workers: int
    "Processes of the server."
    rate: float
    "Requests per second of all who ask."
    seconds: float
    "Duration of the load."

    def words(self) -> list[str]:
        """Return the arguments of the server."""
        words = ["--demo", f"--limit=connections={2 * self.n + 1}", "--limit=connections_per_address=off"]
        return [*words, f"--workers={self.workers}"] if self.workers > 1 else words


class Server:
    """A running ``afflux serve``."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.port = port
        "The port, at every address of this machine."
        self._process = process

    def _processes(self) -> list[int]:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        return [self._process.pid, *map(int, children.split())]

    def memory(self) -> float:
        """Return the resident memory of all its processes in MiB."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._processes())
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def cpu(self) -> float:
        """Return the CPU seconds of all its processes, user and system."""
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self._processes()]
        return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def served(asked: Asked) -> AsyncIterator[Server]:
    """Run the server; it has ended after the context.

    Raises:
        Failure: it did not start.
    """
    command = ("-m", "afflux", "serve", "tcp://0.0.0.0:0", *asked.words())
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=_PIPE, cwd=_ROOT)
    try:
        if process.stdout is None or not (line := await process.stdout.readline()):
            raise Failure("the server did not come up")
        yield Server(process, int(line.decode().rpartition(":")[2]))
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def measure(asked: Asked, told: Callable[[str], None]) -> dict[str, Any]:
    """Return the figures of one server.

    Raises:
        Failure: a client failed.
    """
    async with served(asked) as server:
        found: dict[str, Any] = asdict(asked) | {"memory": {"empty": server.memory()}}
        told(f"{asked.n:,} ask, {asked.workers} process(es)")
        found["alone"] = await _load(server, asked)
        with tempfile.TemporaryFile() as errors:
            silent = await start(["client", "uvloop", str(asked.n), f"tcp://{_SILENT}:{server.port}"], errors)
            try:
                told(f"{asked.n:,} are silent, {asked.workers} process(es)")
                await silent.ask({"do": "connect", "with": {"n": asked.n, "keepalive": 20.0}})
                found["memory"]["silent"] = server.memory()
                told(f"{asked.n:,} are silent and {asked.n:,} ask, {asked.workers} process(es)")
                found["beside"] = await _load(server, asked)
                alive = await silent.ask({"do": "alive", "with": {}})
                found["silent_refused"] = asked.n - int(alive["count"])
            finally:
                await silent.end()
    found["memory"]["both"] = found["beside"].pop("peak_mib")
    found["memory"]["asking"] = found["alone"].pop("peak_mib")
    return found


async def _load(server: Server, asked: Asked) -> dict[str, Any]:
    """Let the crowd ask once; return the figures of ``afflux bench`` and the server's peak memory and CPU time."""
    words = ["-c", str(asked.n), "-m", "1", "--rate", str(asked.rate), "-D", f"{asked.seconds}s", "-q", "-o", "json"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "afflux", "bench", f"tcp://{_ASKING}:{server.port}", *words),
        stdout=_PIPE,
        stderr=_PIPE,
        cwd=_ROOT,
    )
    before, peak = server.cpu(), 0.0
    ended = asyncio.ensure_future(process.communicate())
    while not ended.done():
        await asyncio.wait((ended,), timeout=_SAMPLE_S)
        peak = max(peak, server.memory())
    out, errors = ended.result()
    if not out:
        raise Failure(f"afflux bench: {errors.decode().strip()}")
    run = json.loads(out)["runs"][0]
    figures = {name: run[name] for name in _FIGURES}
    return figures | {"server_cpu_s": round(server.cpu() - before, 2), "peak_mib": peak}


# -- the command ------------------------------------------------------------------------------------------------


def plan(n: int, rate: float, seconds: float) -> tuple[list[Asked], list[str]]:
    """Return the measurements that fit the limit of open files, and what does not fit: all of it on one process, and
    on two."""
    most = (room(2 * n + _SPARE) - _SPARE) // 2
    fits = n if most >= n else most // 100 * 100 or most
    shared = Asked(n=n, workers=2, rate=rate, seconds=seconds)
    one = Asked(n=fits, workers=1, rate=rate, seconds=seconds)
    text = f"2 × {n:,} on one process, only 2 × {fits:,}: a process may open no more files here (ulimit -Hn)"
    return [one, shared], [] if fits == n else [text]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 if everything could be measured."""
    words = _parser().parse_args(arguments)
    if words.draw:
        return _publish(json.loads(RESULTS.read_text(encoding="utf-8")))
    if not Path("/proc/self/statm").exists():
        print("memory and CPU time are read from /proc, which this system does not have", file=sys.stderr)
        return 1
    asked, not_run = plan(20 if words.smoke else words.clients, words.rate, 0.5 if words.smoke else words.seconds)
    judged = Plan(contenders=[Contender(OURSELVES, "uvloop")], workloads=(), runs=1, seconds=0.0, patience=0.0)
    figures: dict[str, Any] = machine(judged)  # the load is that of before
    del figures["versions"]["rsocket"], figures["versions"]["grpcio"]  # no peer has a part in this
    try:
        found = [asyncio.run(measure(one, _tell)) for one in asked]
    except Failure as failure:
        print(f"{failure}", file=sys.stderr)
        return 1
    figures |= {"found": found, "not_run": not_run} | ({"note": words.note} if words.note else {})
    print(crowds_report.report(figures), end="")
    if words.out:
        words.out.write_text(as_text(figures), encoding="utf-8")
    elif not words.smoke and words.clients == _WHOLE:
        RESULTS.write_text(as_text(figures), encoding="utf-8")
        return _publish(figures)
    else:
        print("\nonly a part: benchmarks/crowds.json stays as it is; --out FILE keeps these figures", file=sys.stderr)
    return 0


def _publish(figures: dict[str, Any]) -> int:
    """Regenerate the page."""
    page = crowds_report.PAGE
    page.write_text(crowds_report.rewritten(page.read_text(encoding="utf-8"), figures), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowds", description="Two crowds on one server.")
    add = parser.add_argument
    add("--clients", type=int, default=_WHOLE, metavar="N", help="clients of each crowd (10,000)")
    add("--rate", type=float, default=1000.0, metavar="R", help="requests per second of all who ask (1,000)")
    add("--seconds", type=float, default=10.0, metavar="S", help="duration of each load (10)")
    add("--smoke", action="store_true", help="20 of each for half a second, to check that it runs and counts correctly")
    add("--out", type=Path, metavar="FILE", help="write the figures here, instead of benchmarks/crowds.json and docs")
    add("--note", metavar="TEXT", help="a remark for the figures, such as other load on the machine")
    add("--draw", action="store_true", help="measure nothing: regenerate the docs' table from benchmarks/crowds.json")
    return parser


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
