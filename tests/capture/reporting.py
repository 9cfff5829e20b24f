"""Makes capture tables by hand, for tests of reports: rows as dicts, with a default for every column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from afflux.capture.report.source import COLUMNS
from afflux.capture.schemas import schema

HOSTILE = (
    """</script><script>document.title='owned'</script>"'><img src=x onerror=alert(1)>\x1b[31m=cmd()|'/C'!A1\u202e{x}"""
)
"A text that tries to become markup, a script, a colour, a formula or a template."
START = 1_790_000_000_000_000
"Microseconds since 1970."
_DEFAULTS: dict[str, Any] = {
    "conn": "Caaaaaaaaaaa",
    "stream": 5,
    "protocol": "rsocket",
    "kind": "stream",
    "requester": ">",
    "route": "prices",
    "dir": "<",
    "content": "rsocket",
    "client": "10.0.0.7:51000",
    "server": "10.0.0.9:7000",
    "closing": "fin",
    "closed_by": ">",
    "announced_by": None,
    "one_way": False,
    "file": "a.pcapng",
    "ended": "complete",
    "cause": "peer",
    "after_type": "PAYLOAD",
    "after_dir": "<",
    "after_offset": 512,
    "resumed_by": "REQUEST_N",
    "event": "grant",
    "history": "Rppc",
}


class Tables:
    """Tables under construction. Times are seconds after ``START``."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {table: [] for table in COLUMNS}

    def add(self, table: str, **values: Any) -> None:
        row: dict[str, Any] = {}
        for column in schema(table):
            value = values.pop(column.name, _DEFAULTS.get(column.name))
            if pa.types.is_timestamp(column.type) and value is not None:
                value = START + round(value * 1e6)
            elif value is None and column.type == pa.int64() and column.name not in ("code", "packet", "n", "offset"):
                value = 0
            row[column.name] = value
        assert values == {}, f"{table} has no such columns"
        self.rows[table].append(row)

    def stream(self, stream: int, *frames: tuple[float, str, str, int | None], **values: Any) -> None:
        """Add a stream with its frames: time, direction, type, n."""
        conn = values.get("conn", _DEFAULTS["conn"])
        self.add("streams", stream=stream, first=frames[0][0], last=frames[-1][0], **values)
        for at, side, kind, n in frames:
            self.add("frames", conn=conn, stream=stream, ts=at, dir=side, type=kind, n=n, length=64)

    def batch(self, table: str) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(self.rows[table], schema(table))

    def __call__(self, tables: frozenset[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the tables, as the function that a report calls."""
        for table in sorted(tables):
            yield table, self.batch(table)

    def once(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield all tables, to be read once."""
        return self(frozenset(COLUMNS))

    def write(self, place: Path) -> Path:
        """Write the tables as Parquet."""
        for table in COLUMNS:
            (place / table).mkdir(parents=True)
            pq.write_table(pa.Table.from_batches([self.batch(table)]), place / table / "part-0.parquet")
        return place


def stalled(route: str | None = "prices.EUR") -> Tables:
    """One connection; stream 5 stalls for 2.5 seconds without credit, and stream 7 breaks a rule."""
    made = Tables()
    made.add(
        "connections",
        opened=0,
        closed=4,
        client_bytes=900,
        server_bytes=40_000,
        frames=22,
        streams=2,
        violations=1,
    )
    items = [(0.01 + at / 1000, "<", "PAYLOAD", None) for at in range(8)]
    later = [(2.53 + at / 1000, "<", "PAYLOAD", None) for at in range(8)]
    made.stream(
        5,
        *((0.0, ">", "REQUEST_STREAM", 8), *items, (2.517, ">", "REQUEST_N", 8), *later),
        route=route,
        items_in=16,
        stalls=1,
        stalled_s=2.5,
        longest_stall_s=2.5,
        history="Rppp…",
    )
    made.add("stalls", stream=5, route=route, start=0.017, stop=2.517, seconds=2.5)
    for at, event, n, granted, used in (
        *((0.0, "grant", 8, 8, 0), (0.017, "empty", 0, 8, 8)),
        *((2.517, "grant", 8, 16, 8), (2.537, "empty", 0, 16, 16)),
    ):
        made.add("credit", ts=at, event=event, n=n, granted=granted, used=used, balance=granted - used)
    made.stream(
        7, (3.0, ">", "REQUEST_RESPONSE", None), (3.2, "<", "ERROR", None), kind="request", ended="error", code=0x201
    )
    for seconds in (0.01, 0.02, 0.2):
        made.add("latencies", kind="request", route="echo", first_s=seconds, total_s=seconds)
    made.add("latencies", kind="stream", route=route, first_s=0.01, total_s=2.6)
    made.add(
        "violations",
        ts=3.1,
        stream=7,
        type="PAYLOAD",
        offset=800,
        rule="too-many-items",
        reason="more items than credit",
        expected="at most 8 items",
        kind="state",
        packet=31,
        dir="<",
    )
    return made


def hostile() -> Tables:
    """Tables in which every text is hostile."""
    tables = stalled(HOSTILE)
    for rows in tables.rows.values():
        for row in rows:
            for name, value in row.items():
                if isinstance(value, str) and name not in ("conn", "dir", "requester", "event"):
                    row[name] = HOSTILE
    tables.rows["stalls"].append(tables.rows["stalls"][0] | {"cause": "peer"})
    return tables
