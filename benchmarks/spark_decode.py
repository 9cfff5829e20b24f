"""Measure how fast one process decodes items into columns: rows per second of CPU time, without Spark and without I/O.

``python -m benchmarks.spark_decode`` decodes the same rows of five columns in each format, and JSON with shares of
malformed items, in alternating runs; medians count. Figures are rows per second of CPU time, so that other load matters
less. It returns 1 if JSON, or JSON with 10 % of malformed items, misses its bar. ``--out`` writes the figures as JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

__all__ = ["main"]

BARS = {"json": 1_000_000, "json, 10 % malformed": 200_000}
"Rows per second."
SHARES = (0.001, 0.1, 0.5, 1.0)
"Shares of malformed items."


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 1 if a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_decode")
    parser.add_argument("--rows", type=int, default=50_000, help="items in a batch (50,000, as in a task)")
    parser.add_argument("--runs", type=int, default=9, help="alternating runs (9)")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    asked = parser.parse_args(arguments)
    figures = _measure(asked.rows, asked.runs)
    for case, figure in figures.items():
        print(f"{case:<24} {figure['rows_per_s'] / 1e3:8.0f} k rows/s {figure['bytes_per_row']:5.0f} B a row")
    if asked.out:
        asked.out.write_text(json.dumps({"rows": asked.rows, "figures": figures}, indent=1) + "\n")
    return 0 if all(figures[case]["rows_per_s"] >= bar for case, bar in BARS.items()) else 1


def _measure(count: int, runs: int) -> dict[str, dict[str, Any]]:
    cases = _cases(count)
    seconds: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(runs):
        for case, (decode, _) in cases.items():
            begun = time.process_time()
            decode()
            seconds[case].append(time.process_time() - begun)
    return {
        case: {
            "rows_per_s": round(count / statistics.median(taken)),
            "best_rows_per_s": round(count / min(taken)),
            "bytes_per_row": round(cases[case][1] / count, 1),
        }
        for case, taken in seconds.items()
    }


def _cases(count: int) -> dict[str, tuple[Callable[[], object], int]]:
    """Return a function for each case that decodes all rows, and the bytes of its items."""
    import cbor2
    import msgspec
    import pyarrow as pa

    from afflux.spark.decoding import decoder_of
    from afflux.spark.options import Options

    fields = [("carrier", pa.string()), ("origin", pa.string()), ("flight", pa.int32()), ("delay", pa.float64())]
    columns = pa.schema([*fields, ("at", pa.timestamp("us", "UTC"))])

    def case(form: str, items: list[bytes]) -> tuple[Callable[[], object], int]:
        given = {"uri": "tcp://127.0.0.1:1", "format": form, "timeZone": "America/New_York"}
        decoder = decoder_of(Options.parse(given), columns)
        data, offsets = pa.array(items, pa.binary()), range(len(items))
        return lambda: list(decoder.decode(data, offsets)), sum(map(len, items))

    rows = _rows(count)
    dumped = [json.dumps(row).encode() for row in rows]
    cases = {"json": case("json", dumped)}
    for share in SHARES:
        cases[f"json, {share * 100:g} % malformed"] = case("json", _malformed(dumped, share))
    cases["msgpack"] = case("msgpack", [msgspec.msgpack.encode(row | {"at": _moment(row)}) for row in rows])
    cases["cbor"] = case("cbor", [cbor2.dumps(row) for row in rows])
    blocks = [rows[first : first + 1000] for first in range(0, count, 1000)]
    cases["arrow, 1,000 rows an item"] = case("arrow", [_stream(block) for block in blocks])
    return cases


def _rows(count: int) -> list[dict[str, Any]]:
    random = Random(1)
    return [
        {
            "carrier": random.choice(("UA", "AA", "DL", "B6")),
            "origin": random.choice(("EWR", "JFK", "LGA")),
            "flight": random.randrange(1, 6000),
            "delay": random.uniform(-30, 300),
            "at": f"2013-{number % 12 + 1:02}-{number % 28 + 1:02}T{number % 24:02}:{number % 60:02}:00",
        }
        for number in range(count)
    ]


def _malformed(items: list[bytes], share: float) -> list[bytes]:
    """Damage a share of the items: cut off, a wrong type, or an impossible date."""
    random = Random(2)
    ways: list[Callable[[bytes], bytes]] = [
        lambda item: item[:-5],
        lambda item: item.replace(b'"flight": ', b'"flight": "x", "other": '),
        lambda item: item.replace(b"T", b"T99:", 1),
    ]
    return [random.choice(ways)(item) if random.random() < share else item for item in items]


def _moment(row: dict[str, Any]) -> Any:
    from datetime import UTC, datetime

    return datetime.fromisoformat(row["at"]).replace(tzinfo=UTC)


def _stream(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow as pa

    table = pa.Table.from_pylist([row | {"at": _moment(row)} for row in rows])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return bytes(sink.getvalue())


if __name__ == "__main__":
    sys.exit(main())
