"""One way to read a capture, in a process of its own: ``python -m benchmarks.capture_child WAY FILE OUT [SMALL]``.

Writes a line of JSON for each step: what it was, the seconds, and the seconds of CPU of this process. The process that
has started it measures memory from outside.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["FIELDS", "WAYS"]

FIELDS: Final = (
    "frame.time_epoch", "ip.src", "tcp.srcport", "ip.dst", "tcp.dstport", "tcp.seq", "tcp.ack", "tcp.flags",
    "tcp.window_size", "tcp.len",
)  # fmt: skip
"What tshark writes."


def alone(file: Path, out: Path, small: Path | None) -> None:
    """Decode into Parquet without Spark: the small file first, so that both have warm kernels, and then this one."""
    from afflux.capture.output import write_tables

    for each in [file] if small is None else [small, small, file]:
        _timed(each, lambda path=each: write_tables([str(path)], str(out)))


def spark(file: Path, out: Path, small: Path | None) -> None:
    """Decode into Parquet with Spark, ``local[2]``; the start of the session is a step of its own."""
    from afflux.capture.units import Decoding
    from afflux.spark.capturejob import decode
    from afflux.spark.session import build

    begun = time.perf_counter()
    session = build("afflux-bench", "local[2]")
    print(json.dumps({"what": "start", "seconds": time.perf_counter() - begun}), flush=True)
    try:
        for each in [file] if small is None else [small, small, file]:
            _timed(each, lambda path=each: decode(session, [str(path)], str(out), Decoding(), lambda text: None))
    finally:
        session.stop()


def dpkt(file: Path, out: Path, small: Path | None) -> None:
    """Parse all packets with dpkt, as far as TCP."""
    _timed(file, lambda: _parse(file))


def _parse(path: Path) -> dict[str, int]:
    import dpkt

    packets = octets = 0
    with path.open("rb") as file:
        for _, data in dpkt.pcap.Reader(file):
            packets += 1
            octets += len(dpkt.ethernet.Ethernet(data).data.data.data)
    return {"packets": packets, "bytes": octets}


def tshark(file: Path, out: Path, small: Path | None) -> None:
    """Write fields of all packets with tshark."""
    _timed(file, lambda: _fields(file))


def _fields(path: Path) -> dict[str, int]:
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", *(word for name in FIELDS for word in ("-e", name))]
    lines = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        for _ in running.stdout:
            lines += 1
    return {"packets": lines}


def _timed(path: Path, work: Callable[[], dict[str, int]]) -> None:
    begun, cpu = time.perf_counter(), time.process_time()
    counts = work()
    seconds, spent = time.perf_counter() - begun, time.process_time() - cpu
    told = {"what": path.name, "bytes": path.stat().st_size, "seconds": seconds, "cpu": spent, "counts": counts}
    print(json.dumps(told), flush=True)


WAYS: Final[dict[str, Callable[[Path, Path, Path | None], None]]] = {
    "alone": alone,
    "spark": spark,
    "dpkt": dpkt,
    "tshark": tshark,
}
"The ways to read a capture."


if __name__ == "__main__":
    way, *paths = sys.argv[1:]
    with suppress(KeyboardInterrupt):
        WAYS[way](Path(paths[0]), Path(paths[1]), Path(paths[2]) if len(paths) > 2 else None)
