"""Sum up the tables of a capture as text of 80 columns, for ``afflux inspect``. The memory does not grow with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from afflux.core.dissect import escaped

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Summary", "page"]

WIDTH: Final = 80
CAUSES: Final = {
    "peer": "the receiver granted no credit",
    "transport": "the receiver's window or the network full",
    "producer": "credit and room, and nothing sent",
    "local": "credit and room, other streams sent",
    "lease": "the requester waited for a lease",
    "unknown": "lost frames would tell why",
}
"The causes of stalls, in words."
_RESET: Final = {"content": "no data", "closing": "rst"}
"A connection that was opened, and reset before it had data: such as one of a proxy that does not reach its server."
_STREAM: Final = 16
"Columns of a stream's id and its kind, the longest of which is ``subscription``."
_MOST_LINES: Final = 8
"Lines that a long text takes: a route, a reason, contents."
NOT_WHOLE: Final = ("lost", "cut", "limit", "undecoded", "order")
"The kinds of violations that are no broken rules: the capture lacks bytes, or its packets are not in order."
_MOST_KINDS: Final = 64
"Kinds that are counted apart: contents and rules."


class Summary:
    """What is shown of a capture.

    Args:
        files: their names.
        top: rows of each part.
        absent: tables that are not there: nothing is said of their rows.
    """

    def __init__(self, files: Sequence[str], top: int, absent: frozenset[str] = frozenset()) -> None:
        self.files = files
        self.top = top
        self.absent = absent - {"credit", "latencies"} - ({"frames"} if "connections" not in absent else set())
        "Tables that are not there. The number of frames is in connections too."
        self.tallies: Counter[str] = Counter()
        "Rows of each table, and frames and items."
        self.others: Counter[str] = Counter()
        "Connections that are not decoded, by content."
        self.causes: dict[str, tuple[int, float]] = {}
        "Stalls of each cause, and their seconds."
        self.rules: Counter[tuple[str, str]] = Counter()
        "Broken rules, by rule and kind."
        self.lost: Counter[str] = Counter()
        "Bytes that the capture lacks, connections that lack some, and those with one direction."
        self.first: datetime | None = None
        self.last: datetime | None = None
        self.tables: dict[str, pa.Table] = {}
        "The rows that are shown."

    def add(self, name: str, batch: pa.RecordBatch) -> None:
        """Take rows of a table."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self.tallies[name] += len(batch)
        if name == "frames":
            self.tallies[name] -= batch["protocol"].null_count  # bytes that could not be decoded
            return
        {"connections": self._connections, "stalls": self._stalls, "violations": self._violations}.get(
            name, lambda batch: None
        )(batch)
        if name == "violations":
            whole = pc.invert(pc.is_in(batch["kind"], pa.array(NOT_WHOLE)))
            told = pc.or_(whole, pc.equal(batch["rule"], "encrypted"))  # the head counts them
            self._keep("losses", batch.filter(pc.invert(told)), _ORDERS[name])
            batch = batch.filter(whole)
        self._keep(name, batch, _ORDERS[name])

    def _connections(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        from afflux.capture.wording import unseen

        self.tallies["frames"] += pc.sum(batch["frames"]).as_py() or 0
        first, last = pc.min(batch["opened"]).as_py(), pc.max(batch["closed"]).as_py()
        self.first = min((one for one in (self.first, first) if one is not None), default=None)
        self.last = max((one for one in (self.last, last) if one is not None), default=None)
        self.lost["bytes"] += pc.sum(batch["lost_bytes"]).as_py() or 0
        self.lost["connections"] += pc.sum(pc.greater(batch["lost_bytes"], 0)).as_py() or 0
        ours = batch.filter(pc.and_(batch["one_way"], pc.is_valid(batch["protocol"])))
        sides = ours.select(["one_way", "client_packets", "server_packets"]).to_pylist()
        self.lost["one way"] += sum(map(unseen, sides))
        for row in batch.filter(pc.is_null(batch["protocol"])).select(["content", "closing"]).to_pylist():
            content = row["content"] + (", reset" if row == _RESET else "")
            self.others[content if content in self.others or len(self.others) < _MOST_KINDS else "other"] += 1

    def _stalls(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        sums = pa.table({"cause": batch["cause"], "seconds": batch["seconds"]}).group_by("cause")
        for row in sums.aggregate([("seconds", "sum"), ("seconds", "count")]).to_pylist():
            count, seconds = self.causes.get(row["cause"], (0, 0.0))
            self.causes[row["cause"]] = (count + row["seconds_count"], seconds + row["seconds_sum"])

    def _violations(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        names = pa.table({"rule": batch["rule"], "kind": batch["kind"]}).group_by(["rule", "kind"])
        for row in names.aggregate([([], "count_all")]).to_pylist():
            key = (row["rule"], row["kind"])
            self.rules[key if key in self.rules or len(self.rules) < _MOST_KINDS else ("other", "")] += row["count_all"]

    def _keep(self, name: str, batch: pa.RecordBatch, order: list[tuple[str, str]]) -> None:
        """Keep the rows that come first in an order."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if name == "connections":
            batch = batch.filter(pc.is_valid(batch["protocol"]))
        if not len(batch):
            return
        rows = pa.Table.from_batches([batch])
        if name in self.tables:
            rows = pa.concat_tables([self.tables[name], rows])
        if len(rows) > 1:
            rows = rows.take(pc.sort_indices(rows, sort_keys=order))
        self.tables[name] = rows.slice(0, self.top).combine_chunks()


_ORDERS: Final[dict[str, list[tuple[str, str]]]] = {
    "connections": [("frames", "descending")],
    "streams": [("longest_stall_s", "descending"), ("stalled_s", "descending"), ("items_in", "descending")],
    "stalls": [("seconds", "descending")],
    "violations": [("ts", "ascending")],
}
"What is shown first."


def page(summary: Summary, *, detailed: bool = False) -> str:
    """Return the text. ``detailed``: with the whole history of each stream."""
    parts = [
        _head(summary),
        _losses(summary),
        _stalls(summary),
        _violations(summary),
        _streams(summary, detailed),
        _connections(summary),
    ]
    return "\n\n".join("\n".join(part) for part in (list(part) for part in parts) if part) + "\n"


def _head(summary: Summary) -> Iterator[str]:
    tallies = summary.tallies
    name = escaped(summary.files[0]) if len(summary.files) == 1 else f"{len(summary.files)} files"
    span = _span(summary.first, summary.last)
    yield _fit(name)
    counts = (("connections", "connection"), ("streams", "stream"), ("frames", "frame"))
    if told := [_count(tallies[key], word) for key, word in counts if key not in summary.absent]:
        yield _fit(f"  {', '.join(told)}{span}")
    if summary.absent:
        yield _fit(f"  not in these tables: {', '.join(sorted(summary.absent))}")
    if summary.lost["bytes"]:
        where = _count(summary.lost["connections"], "connection")
        yield _fit(f"  lost    {_size(summary.lost['bytes']):>8}  of {where}: what is missing proves nothing")
    if summary.lost["one way"]:
        where = _count(summary.lost["one way"], "connection")
        yield _fit(f"  one direction only: {where}, so no stalls are told of {_them(summary.lost['one way'])}")
    if disordered := summary.rules["order", "order"]:
        where = _count(disordered, "connection")
        yield _fit(f"  not in the order of time: {where}, so nothing is concluded of {_them(disordered)}")
    for cause, (count, seconds) in sorted(summary.causes.items(), key=lambda item: -item[1][1]):
        yield _fit(f"  stalled {_time(seconds):>8}  {cause:<9} {_count(count, 'stall')}: {CAUSES.get(cause, '')}")
    if not summary.causes and tallies["streams"] and "stalls" not in summary.absent:
        yield "  no stalls"
    broken = [one for one in summary.rules.most_common() if one[0][1] not in NOT_WHOLE]
    for (rule, kind), count in broken[: summary.top]:
        yield _fit(f"  {kind:<9} {_count(count, 'frame' if kind != 'damaged' else 'file')}: {rule}")
    if not broken and tallies["frames"] and "violations" not in summary.absent:
        yield "  no broken rules"
    if summary.others:
        others = ", ".join(f"{count} {escaped(content)}" for content, count in summary.others.most_common(summary.top))
        yield _fit(f"  not decoded: {others}")
    if any(content.startswith("encrypted") and "key log" not in content for content in summary.others):
        yield "  --keylog FILE decrypts TLS, with the file that SSLKEYLOGFILE names"


def _losses(summary: Summary) -> Iterator[str]:
    all_of_them = sum(
        count for (rule, kind), count in summary.rules.items() if kind in NOT_WHOLE and rule != "encrypted"
    )
    yield from _wrong(_rows(summary, "losses"), "Problems of the capture, the first ones", all_of_them)


def _stalls(summary: Summary) -> Iterator[str]:
    rows = _rows(summary, "stalls")
    if not rows:
        return
    yield _title("Stalls, the longest first", len(rows), summary.tallies["stalls"])
    for row in rows:
        route = f" {escaped(row['route'])}" if row["route"] else ""
        where = f"{row['conn']} stream {row['stream']}{route}, items {row['dir']}"
        yield _fit(f"{_time(row['seconds']):>8}  {row['cause']:<9} {where}")
        after = f"after {escaped(row['after_type'] or '?')} {row['after_dir']} at {row['after_offset']}"
        then = f"until {escaped(row['resumed_by'])}" if row["resumed_by"] else "to the end"
        yield _fit(f"          {_clock(row['start'])} {after}, {then}")


def _violations(summary: Summary) -> Iterator[str]:
    all_of_them = sum(count for (_, kind), count in summary.rules.items() if kind not in NOT_WHOLE)
    yield from _wrong(_rows(summary, "violations"), "Broken rules, the first ones", all_of_them)


def _wrong(rows: list[dict[str, Any]], title: str, all_of_them: int) -> Iterator[str]:
    if not rows:
        return
    yield _title(title, len(rows), all_of_them)
    for row in rows:
        where = _where(row) if row["conn"] is not None else escaped(row["file"] or "")
        yield _fit(f"{escaped(row['rule'] or ''):<9} {_clock(row['ts'])} {where}")
        yield _fit(f"          {escaped(row['reason'] or '')}")
        if row["expected"]:
            yield _fit(f"          right: {escaped(row['expected'])}")


def _where(row: dict[str, Any]) -> str:
    """Return the place of a frame that broke a rule, or the connection if it is none."""
    direction = f" {row['dir']}" if row["dir"] else ""
    stream = f" stream {row['stream']}" if row["stream"] is not None and row["stream"] >= 0 else ""
    place = f" at {row['offset']}" if row["offset"] is not None else ""
    if row["kind"] == "undecoded" and row["packet"] is not None:
        place = f" from packet {row['packet']:,} on" + (f" of {escaped(row['file'])}" if row["file"] else "")
    return f"{row['conn']}{direction}{stream}{place}"


def _streams(summary: Summary, detailed: bool) -> Iterator[str]:
    rows = _rows(summary, "streams")
    if not rows:
        return
    from afflux.capture.wording import coded

    yield _title("Streams, the longest stall first", len(rows), summary.tallies["streams"])
    yield "conn         stream      kind items in  out  credit  out  ended      longest/all"
    for row in rows:
        credit = ["-" if row[key] is None else _short(row[key]) for key in ("granted_in", "granted_out")]
        longest = f"{_time(row['longest_stall_s'])}/{row['stalls']}" if row["stalls"] else "-"
        stream = f"{row['requester']}{row['stream']} "
        yield _fit(
            f"{row['conn']:<12} {stream}{row['kind']:>{_STREAM - len(stream)}}{_short(row['items_in']):>9}"
            f"{_short(row['items_out']):>5}{credit[0]:>8}{credit[1]:>5}  {row['ended']:<11}{longest}"
        )
        route, history = escaped(row["route"] or ""), escaped(row["history"])
        if row["code"] is not None:
            history += f"  {coded(row['protocol'], row['code'])}"
        if not route or (not detailed and len(route) + len(history) > WIDTH - 6):
            yield from ([_fit(f"    {route}")] if route else [])
            yield f"    {history}"
        else:
            yield f"    {route}  {history}"


def _connections(summary: Summary) -> Iterator[str]:
    rows = _rows(summary, "connections")
    if not rows:
        return
    from afflux.capture.wording import by_side

    decoded = summary.tallies["connections"] - sum(summary.others.values())
    yield _title("Connections, the most frames first", len(rows), decoded)
    for row in rows:
        yield _fit(f"{row['conn']} {row['client']} > {row['server']} {row['content']}")
        lost = f", {_size(row['lost_bytes'])} lost" if row["lost_bytes"] else ""
        again = f", {_size(row['repeated_bytes'])} sent again" if row["repeated_bytes"] else ""
        closing = row["closing"] + by_side(row)
        when = f"{_clock(row['opened'])}{_span(row['opened'], row['closed'])}, {closing}"
        octets = f"> {_size(row['client_bytes'])}, < {_size(row['server_bytes'])}{lost}{again}"
        yield _fit(f"    {when}; {octets}; {_count(row['streams'], 'stream')}")


def _rows(summary: Summary, name: str) -> list[dict[str, Any]]:
    table = summary.tables.get(name)
    return table.to_pylist() if table is not None else []


def _title(text: str, shown: int, all: int) -> str:
    return f"{text} ({shown} of {all:,}; --top shows more)" if shown < all else text


def _fit(text: str) -> str:
    """Wrap a line; what is beyond ``_MOST_LINES`` is left out."""
    indent = " " * (len(text) - len(text.lstrip()) + 4)
    lines = wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES - 1 :] = [lines[_MOST_LINES - 1][: WIDTH - 1] + "…"]
    return "\n".join(lines)


def _count(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def _span(first: datetime | None, last: datetime | None) -> str:
    return f" in {_time((last - first).total_seconds())}" if first is not None and last is not None else ""


def _clock(time: datetime | None) -> str:
    return time.strftime("%H:%M:%S.%f")[:-3] if time is not None else "-"


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:,.0f} s"


def _short(count: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**4)):
        if count >= size:
            return f"{count / (1_000 if unit == 'k' else size):.0f}{unit}"
    return str(count)


def _size(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
