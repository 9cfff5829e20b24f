"""Run cells: start the pipeline, strike at the point, wait for the end, and count the rows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from afflux.testing import Proxy
from chaos.cells import Cell
from chaos.ledger import Ledger, count_read, count_written
from chaos.processes import PATIENCE, Driver, Service, free_port, strike, workers

__all__ = ["Outcome", "run_cells"]

BATCHES = 10
"Batches of a run."
_IN_TASKS = ("worker", "executor")
"Victims that read only if the batches have several ranges: the reader reads small batches itself."
_STRUCK = 4
"The batch in which the fault strikes."
_HELD_S = 3.0
"Seconds that a pause, a held network and a full disk last."
_RESTARTS = 20
"How often a query that has ended with an error is started again, as an operator would."
_OPERATOR_S = 0.5
"Seconds until it is started again."
_DISK = 8 << 20
_SIZE = 64
_AFFLUX = [sys.executable, "-m", "afflux"]
_SPARKS = {
    "worker": "spark.daemon pyspark.worker",  # of any daemon module, and of tasks only
    "reader": "python_streaming_source",
    "executor": "CoarseGrainedExecutorBackend",
}


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of a cell."""

    cell: str
    skipped: str | None = None
    "Why it could not run here."
    ledger: Ledger | None = None
    struck: bool = False
    "Whether the fault met a living victim."
    restarts: int = 0
    "Queries and drivers that were started again."
    errors: list[str] = field(default_factory=list)
    "The errors with which queries ended."
    recovery_s: float = 0.0
    "Seconds from the fault to the end of the next batch."
    failure: str | None = None
    "Why there is no ledger."

    @property
    def passed(self) -> bool:
        """Whether the fault struck and every row is there once."""
        return self.struck and self.ledger is not None and self.ledger.exact

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome for chaos/results.json."""
        return asdict(self)


async def run_cells(cells: Sequence[Cell], rows: int, told: Callable[[Outcome], None]) -> list[Outcome]:
    """Run cells one after another; those of one mode share a driver until it is killed."""
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="afflux-chaos-") as directory:
        for mode in dict.fromkeys(cell.mode for cell in cells):
            driver = Driver(mode, Path(directory) / "driver.log")
            try:
                await driver.start()
                for number, cell in enumerate(cell for cell in cells if cell.mode == mode):
                    place = Path(directory) / f"{number}-{cell.name}"
                    place.mkdir()
                    outcome = await _Run(cell, driver, place, rows).outcome()
                    outcomes.append(outcome)
                    told(outcome)
                    shutil.rmtree(place, ignore_errors=True)
            finally:
                await driver.stop()
    return outcomes


class _Run:
    """One cell."""

    def __init__(self, cell: Cell, driver: Driver, place: Path, rows: int) -> None:
        self._cell = cell
        self._driver = driver
        self._place = place
        self._rows = rows
        self._outcome = Outcome(cell=cell.name)
        self._services: dict[str, Service] = {}
        self._table = place / "table"
        self._checkpoint = place / "checkpoint"
        self._proxy: Proxy | None = None

    async def outcome(self) -> Outcome:
        """Run the cell. Failures are part of the outcome."""
        if self._cell.pipeline == "jetstream" and shutil.which("nats-server") is None:
            self._outcome.skipped = "nats-server is not installed"
            return self._outcome
        try:
            async with AsyncExitStack() as stack, asyncio.timeout(3 * PATIENCE):
                if self._cell.fault == "full" and not self._small_disk(stack):
                    self._outcome.skipped = "only root may mount a small file system"
                    return self._outcome
                command = await self._start(stack)
                async with asyncio.TaskGroup() as tasks:
                    striking = tasks.create_task(self._strike())
                    await self._until_done(command)
                    striking.cancel()
            count = count_written if self._cell.pipeline == "sink" else count_read
            self._outcome.ledger = count(self._table, self._rows)
        except* (OSError, RuntimeError, TimeoutError) as failures:
            self._outcome.failure = "; ".join(f"{type(each).__name__}: {each}" for each in failures.exceptions)
        return self._outcome

    def _small_disk(self, stack: AsyncExitStack) -> bool:
        self._checkpoint.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(self._checkpoint)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return False
        stack.callback(subprocess.run, ["umount", "-l", str(self._checkpoint)], check=False)
        return True

    async def _start(self, stack: AsyncExitStack) -> dict[str, Any]:
        """Start the services; return the command of the query."""
        port = free_port()
        address = f"tcp://127.0.0.1:{port}"
        asked = json.dumps({"count": self._rows, "size": _SIZE})
        if self._cell.pipeline == "sink":
            await self._serve(stack, "peer", [*_AFFLUX, "serve", address, "--sink", str(self._table)])
            files = self._files()
            options = {"uri": await self._behind(stack, address), "format": "raw"}
            return {"kind": "write", "options": options, "table": str(files)}
        journal = [] if self._cell.pipeline != "source" else ["--journal", str(self._place / "journal")]
        await self._serve(stack, "peer", [*_AFFLUX, "serve", address, "--demo", *journal])
        remote = await self._behind(stack, address)
        options = {"uri": remote, "requestData": asked, "maxRowsPerBatch": str(-(-self._rows // BATCHES))}
        if self._cell.victim in _IN_TASKS:
            options["partitions"] = "2"
        if self._cell.pipeline != "source":
            relay = f"tcp://127.0.0.1:{free_port()}"
            store = str(self._place / "relay")
            if self._cell.pipeline == "jetstream":
                store = await self._jetstream(stack)
            origin = ["--from", remote, "-d", asked, "--replays"]
            await self._serve(stack, "relay", [*_AFFLUX, "relay", *origin, "--journal", store, "--listen", relay])
            del options["requestData"]
            options["uri"] = relay
        return {"kind": "read", "options": options, "table": str(self._table)}

    async def _serve(self, stack: AsyncExitStack, name: str, command: list[str], ready: bytes = b"ready ") -> None:
        service = self._services[name] = Service(command, self._place / f"{name}.log", ready)
        stack.push_async_callback(service.stop)
        await service.start()

    async def _behind(self, stack: AsyncExitStack, address: str) -> str:
        """Put a proxy before an address, if the network is the victim."""
        if self._cell.victim != "network":
            return address
        self._proxy = await stack.enter_async_context(Proxy(address))
        return self._proxy.uri

    async def _jetstream(self, stack: AsyncExitStack) -> str:
        port = free_port()
        store = str(self._place / "nats")
        command = ["sh", "-c", f"exec nats-server -a 127.0.0.1 -p {port} -js -sd {store} 2>&1"]
        await self._serve(stack, "node", command, b"Server is ready")
        return f"nats://127.0.0.1:{port}/CHAOS"

    def _files(self) -> Path:
        """Write the rows into files, one for each batch."""
        files = self._place / "rows"
        files.mkdir()
        step = -(-self._rows // BATCHES)
        for number, first in enumerate(range(0, self._rows, step)):
            lines = (f"{row}".ljust(_SIZE, ".") for row in range(first, min(first + step, self._rows)))
            (files / f"{number:03}.txt").write_text("\n".join(lines) + "\n")
        return files

    async def _until_done(self, command: dict[str, Any]) -> None:
        command |= {"checkpoint": str(self._checkpoint), "rows": self._rows}
        answer: dict[str, Any] = {}
        for _ in range(_RESTARTS):
            if not self._driver.lives:
                await self._driver.stop()
                await self._driver.start()
            answer = await self._driver.run(command)
            if answer.get("ended"):
                return
            self._outcome.restarts += 1
            self._outcome.errors += [answer["failed"]] if answer else []
            await asyncio.sleep(_OPERATOR_S)
        raise RuntimeError(f"the query was started {_RESTARTS} times: {answer.get('failed', 'the driver was killed')}")

    async def _strike(self) -> None:
        """Wait for the point, let the fault strike, and measure until the next batch is over."""
        await _until(self._reached)
        struck = time.monotonic()
        ended = self._ended()
        await self._fault()
        await _until(lambda: self._ended() > ended)
        self._outcome.recovery_s = round(time.monotonic() - struck, 2)

    def _ended(self) -> int:
        """Return the number of batches that Spark has logged as ended."""
        return len(_numbers(self._checkpoint / "commits"))

    def _reached(self) -> bool:
        """Return whether the point of the cell has come, in the batch ``_STRUCK`` or a later one."""
        offsets, commits = (_numbers(self._checkpoint / name) for name in ("offsets", "commits"))
        match self._cell.point:
            case "planned":
                return max(commits, default=-1) >= _STRUCK - 1 and offsets == commits
            case "offsets":
                return max(offsets, default=-1) >= _STRUCK and offsets != commits
            case "task":
                return max(offsets, default=-1) >= _STRUCK and self._writes()
            case "written":
                return max(self._written(), default=-1) >= _STRUCK and self._written() != commits
            case _:
                return max(commits, default=-1) >= _STRUCK

    def _written(self) -> set[int]:
        """Return the visible batches."""
        if self._cell.pipeline != "sink":
            return _numbers(self._table / "_spark_metadata")
        return {int(path.name.removeprefix("batch=")) for path in self._table.glob("query=*/batch=*")}

    def _writes(self) -> bool:
        """Return whether a task of the current batch has written a part of it."""
        if self._cell.pipeline == "sink":
            return any((self._table / "_afflux" / "staging").glob("*/*/*"))
        parts = len(list(self._table.glob("*.parquet")))
        return parts > max(self._written(), default=-1) + 1

    async def _fault(self) -> None:
        match self._cell.fault:
            case "kill":
                await self._kill()
            case "pause":
                pids = self._victims()
                self._outcome.struck = strike(pids, signal.SIGSTOP) > 0
                await asyncio.sleep(_HELD_S)
                strike(pids, signal.SIGCONT)
            case "cut" | "hold":
                assert self._proxy is not None
                self._outcome.struck = self._proxy.connections > 0
                if self._cell.fault == "cut":
                    self._proxy.cut(reset=True)
                else:
                    self._proxy.hold()
                    await asyncio.sleep(_HELD_S)
                    self._proxy.release()
            case "full":
                other = self._checkpoint / "other"
                self._outcome.struck = await asyncio.to_thread(_fill, other)
                await asyncio.sleep(_HELD_S)
                other.unlink()

    async def _kill(self) -> None:
        if self._cell.victim in self._services:
            service = self._services[self._cell.victim]
            self._outcome.struck = strike(service.pids, signal.SIGKILL) > 0
            await service.again()
        elif self._cell.victim == "driver":
            self._outcome.struck = self._driver.lives
            pids = [self._driver.pid, *workers(self._driver.pid, "org.apache.spark.deploy.SparkSubmit")]
            strike(pids, signal.SIGKILL)
        else:
            self._outcome.struck = strike(self._victims(), signal.SIGKILL) > 0

    def _victims(self) -> list[int]:
        if self._cell.victim in self._services:
            return self._services[self._cell.victim].pids
        if self._cell.victim == "driver":
            return [self._driver.pid, *workers(self._driver.pid, "org.apache.spark.deploy.SparkSubmit")]
        return workers(self._driver.pid, _SPARKS[self._cell.victim])


def _numbers(directory: Path) -> set[int]:
    """Return the batches of a log of Spark."""
    with contextlib.suppress(OSError):
        names = (path.name.removesuffix(".compact") for path in directory.iterdir())
        return {int(name) for name in names if name.isdigit()}
    return set()


def _fill(path: Path) -> bool:
    """Write a file until the disk is full."""
    with path.open("wb", buffering=0) as file:
        for size in (0x100000, 0x1000, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
    return path.stat().st_size > 0


async def _until(reached: Callable[[], bool]) -> None:
    """Return when a condition holds; it is looked at every millisecond, because batches are short."""
    while not reached():
        await asyncio.sleep(0.001)
