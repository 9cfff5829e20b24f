"""Analyze captures: yield the tables of schemas.py as Arrow record batches, with bounded memory.

``analyze`` is for files; ``Analysis`` takes packets from anywhere, batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from os import PathLike
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from weakref import proxy

import numpy as np

from afflux.capture import frame_kernels as kernel
from afflux.capture import rows
from afflux.capture.arrays import column
from afflux.capture.batches import FrameBatches
from afflux.capture.briefs import BriefRows, in_order
from afflux.capture.chronology import in_order_of_time
from afflux.capture.closing import ClosingRows, by_client, micros
from afflux.capture.connections import Key, Opening
from afflux.capture.conversation import Conversation
from afflux.capture.flows import Connection
from afflux.capture.frames import Frames
from afflux.capture.kernels import SHARED
from afflux.capture.ledger import Closing, Ending, Findings, Ledger, Wrong
from afflux.capture.ledger_columns import DOUBTED
from afflux.capture.order import REMEDY, Late, Order
from afflux.capture.packets import NO_TIME, Ints, Packets
from afflux.capture.pausing import uncollected
from afflux.capture.reading import Capture
from afflux.capture.reassembly import Overlap
from afflux.capture.schemas import NOT_WHOLE, TABLES, schema
from afflux.capture.secrets import Secrets
from afflux.capture.segments import Segments, segments
from afflux.capture.settings import UNDECODED, Settings
from afflux.capture.skipping import Place, Skipped, lost
from afflux.capture.talk import rising
from afflux.capture.undecoded import Undecoded, Watched
from afflux.capture.whole import Brief
from afflux.capture.window import Seen, Windows
from afflux.capture.wording import explained, instead, or_else, readable
from afflux.core.entry import ProtocolEntry
from afflux.core.limits import Limits
from afflux.protocols.registry import recognizable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CHUNK", "STALL", "Analysis", "analyze"]

CHUNK: Final = 0x40_0000
"Bytes of a file in a batch."
_TOGETHER: Final = 1_024
"Connections without data whose rows are made together."
STALL: Final = 0.1
"Seconds without an item that are a stall, by default."

Tables = dict[str, "pa.RecordBatch"]
"Rows of some tables, by name; tables without new rows are missing."


class Analysis:
    """The tables of one capture, which may have several files.

    Args:
        limits: the bounds of a capture; ``Limits.server()`` by default.
        entries: the protocols that are recognized; all by default.
        ports: the protocol of a server's port, used where the first bytes decide nothing.
        tables: the tables that are wanted; all of ``TABLES`` but ``frames`` by default.
        payload: the table ``frames`` has metadata and data.
        stall_s: seconds without an item that are a stall.
        dictionaries: columns of ``frames`` with few different words are dictionary arrays.
        secrets: decrypt TLS; None for those in the captures.
        overlap: which copy of repeated bytes counts; see ``Flows``.

    Raises:
        ValueError: there is no table of such a name, or ``stall_s`` is not above 0.
        Unsupported: a protocol in ``ports`` has no dissector.
        MissingExtra: pyarrow is not installed.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        entries: Sequence[ProtocolEntry] | None = None,
        *,
        ports: Mapping[int, ProtocolEntry] | None = None,
        tables: Iterable[str] | None = None,
        payload: bool = False,
        stall_s: float = STALL,
        dictionaries: bool = False,
        secrets: Secrets | None = None,
        overlap: Overlap = "first",
    ) -> None:
        self.tables = frozenset(TABLES.keys() - {"frames"} if tables is None else tables)
        if unknown := self.tables - TABLES.keys():
            raise ValueError(f"there is no table {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
        if not stall_s > 0:
            raise ValueError(f"a stall takes more than 0 seconds, not {stall_s}")
        for table in self.tables:
            schema(table)
        self._payload, self._dictionaries = payload, dictionaries
        self.limits = Limits.server() if limits is None else limits
        self._ended: list[Watched | Brief] = []
        me: Any = proxy(self)  # the batches know this object only weakly, so that all are freed without the collector
        self.batches = FrameBatches(
            recognizable() if entries is None else entries,
            self.limits,
            ports=ports,
            payload=True,
            secrets=secrets,
            overlap=overlap,
            make=lambda connection, settings: me._watched(connection, settings),
            passed=self._ended.append,
        )
        self.ledger = Ledger(self.limits, round(stall_s * 1e9))
        self._windows = Windows(self.limits)
        self._order = Order(self.limits)
        self._closing = ClosingRows()
        self._undecoded = Undecoded()
        self.file = ""
        "The name of the current file, for the tables."
        self.last = NO_TIME
        "The time of the last packet, in nanoseconds."

    def _watched(self, connection: Connection, settings: Settings) -> Watched:
        flows = self.batches.flows
        made = Watched(connection, settings, self._ended, self._file_of(flows.opened), flows.opened)
        made.place = flows.place_of(flows.opened)
        self._undecoded.watch(made)
        return made

    def take(self, packets: Packets, found: Segments | None = None) -> Tables:
        """Return the rows that a batch of packets brings. ``found`` are its segments, if they are known. The garbage
        collector waits meanwhile (pausing.py)."""
        batches = self.batches
        with uncollected():
            found = segments(packets, batches.network) if found is None else found
            batches.flows.file = self.file
            frames = batches.take(packets, found)
            if len(packets):
                self.last = int(packets.time[-1])
            return self._followed(frames)

    def _followed(self, frames: Frames) -> Tables:
        """Return the rows that the frames of a batch of packets bring."""
        flows = self.batches.flows
        packets, found = flows.packets, flows.segments
        self._undecoded.seek(flows, self._file_of)
        held = None if found is None else self._windows.take(packets, found, flows.flow, flows.keys)
        numbers = packets.number + np.arange(len(packets)) if packets.numbers is None else packets.numbers
        late = self._order.take(flows)
        if self._order.late and held is not None and found is not None and len(found):
            doubted = np.array([key in self._order.late for key in flows.keys], np.bool_)
            held[found.index[doubted[flows.flow]], 2] |= DOUBTED
        made = self._tables(frames, numbers, held, final=False)
        if late:
            disordered = self._rows("violations", [self._disordered(one) for one in late])
            made |= {name: _joined([*([made[name]] if name in made else []), one]) for name, one in disordered.items()}
        return made

    def _disordered(self, late: Late) -> dict[str, Any]:
        """Return the row of a connection whose packets are not in the order of time."""
        return _violation(late.conn, late.time, kind="order", rule="order", reason=late.reason, expected=REMEDY,
                          **_at(self._file_of(late.place), self.batches.flows.place_of(late.place)))  # fmt: skip

    def _file_of(self, packet: int) -> str:
        """Return the file of a packet of the batch; the current one for none."""
        earlier = self.batches.flows.files
        return earlier[packet] if 0 <= packet < len(earlier) else self.file

    def end(self) -> Tables:
        """End all connections; return the rows that this brings."""
        rest = self.batches.rest()
        parts = [] if rest is None else [self._followed(rest)]
        empty = self._empty() if "connections" in self.tables else []
        numbers = np.empty(0, np.int64)
        parts += [self._tables(self.batches.end(), numbers, None, final=True)]
        flows = self.batches.flows
        for start in range(0, len(empty), _TOGETHER):
            for key, opening in empty[start : start + _TOGETHER]:
                flows.retire(key, flows.open(key, opening, opening.time, -1), -1)
            parts.append(self._tables(self.batches.end(), numbers, None, final=True))
        names = dict.fromkeys(name for part in parts for name in part)
        return {name: _joined([part[name] for part in parts if name in part]) for name in names}

    def until(self, time: int, file: str) -> None:
        """The capture ends in this file, at this time in nanoseconds, although other packets came last."""
        self.last, self.file = time, file
        self.batches.until(time)

    def damaged(self, problem_offset: int, rule: str, reason: str) -> Tables:
        """Return the row for a file that could not be read to its end."""
        return self._rows("violations", [_violation(None, self.last, kind="damaged", rule=rule, reason=reason,
                                                    file=self.file, file_offset=problem_offset)])  # fmt: skip

    def passed(self) -> Tables:
        """Return the rows for the packets that were skipped since the last call; call it when a file has ended."""
        network = self.batches.network
        before, network.skipped = network.skipped, Skipped()
        return self.skipped(before, before.first)

    def skipped(self, counts: Mapping[str, int], first: Mapping[str, Place]) -> Tables:
        """Return the rows for packets that were skipped and may have been ours, by reason."""
        made = [
            _violation(None, place.time, kind="undecoded", rule="skipped", reason=reason, **_at(self.file, place))
            for reason, place in lost(counts, first)
        ]  # fmt: skip
        return self._rows("violations", made) if made else {}

    def _empty(self) -> list[tuple[Key, Opening]]:
        """Return the connections that were opened by both sides, and have no data. Those that only one side has tried
        to open have no rows: a capture may have millions."""
        found = []
        for key in self._windows.quiet():
            entry = self.batches.flows.find(key)
            if isinstance(entry, Opening) and min(entry.initial) >= 0:
                found.append((key, entry))
        return found

    # -- inside -------------------------------------------------------------------------------------------------

    def _tables(self, frames: Frames, counted: Ints, held: Ints | None, *, final: bool) -> Tables:
        """Return the rows; ``counted`` are the numbers of the packets of the batch, from 0."""
        found: dict[str, list[pa.RecordBatch]] = {}
        numbers = np.append(counted, -1)[frames.packet] + 1  # 0 for the packet -1
        if "frames" in self.tables and len(frames):
            found["frames"] = [
                frames.arrow(
                    file=self.file,
                    earlier=self.batches.flows.files,
                    numbers=numbers,
                    positions=self._positions(frames.packet),
                    payload=self._payload,
                    dictionaries=self._dictionaries,
                )
            ]
        findings = self.ledger.take(frames, None if held is None or not held.any() else _by_side(frames, held))
        self._found(found, findings, frames, numbers)
        self._malformed(found, frames, numbers)
        self._closed(found, frames, numbers, final)
        return {table: _joined(batches) for table, batches in found.items()}

    def _positions(self, packets: Ints) -> Ints:
        """Return where the data of packets of the batch begins in their files; -1 for none."""
        flows = self.batches.flows
        places = np.full(len(flows.packets) + 1, -1, np.int64)  # the last one is that of the packet -1
        if flows.segments is not None:
            places[flows.segments.index] = flows.segments.position
        return places[packets]

    def _closed(self, found: dict[str, list[Any]], frames: Frames, numbers: Ints, final: bool) -> None:
        """Add what the end of connections brings."""
        ended, self._ended[:] = list(self._ended), []
        if not ended:
            return
        made: dict[str, list[dict[str, Any]]] = {"connections": [], "violations": []}
        is_brief = [isinstance(one, Brief) for one in ended]
        briefs = BriefRows([one for one in ended if isinstance(one, Brief)], self._windows, self.last)
        known = [None if isinstance(one, Brief) else self._seen(one.connection) for one in ended]
        whole = iter(briefs.closing())
        closing = [
            next(whole) if isinstance(one, Brief) else
            Closing(one, self.last if final or seen is None else seen.last,
                    (0, 0) if seen is None else by_client(one, seen.held))
            for one, seen in zip(ended, known, strict=True)
        ]  # fmt: skip
        parts, endings = self.ledger.close(closing, whole=not final)
        lost: list[tuple[Watched, tuple[int, int]]] = []
        for one, seen, ending in zip(ended, known, endings, strict=True):
            if not isinstance(one, Brief):
                self._undecoded.ended(one)
                self._connection(made, one, ending, seen, final)
                if one.content in UNDECODED:
                    lost.append((one, _octets(one) if seen is None else seen.octets))
        if lost and "frames" in self.tables:
            options = {"payload": self._payload, "dictionaries": self._dictionaries}
            found.setdefault("frames", []).append(self._undecoded.rows(lost, **options))
        if parts:
            self._found(found, Findings.joined(parts), frames, numbers)
        for table, rows_made in made.items():
            if rows_made:
                found.setdefault(table, []).extend(self._rows(table, rows_made).values())
        if any(is_brief) and "connections" in self.tables:
            theirs = [ending for ending, brief in zip(endings, is_brief, strict=True) if brief and ending is not None]
            batch = briefs.batch(theirs, self._file_of, self._closing)
            found["connections"] = [in_order(found.get("connections", []), batch, is_brief)]

    def _seen(self, connection: Connection) -> Seen | None:
        """Return what was seen of a connection that has ended."""
        return self._windows.seen(connection.key, connection.time, self.last, forget=True)

    def _found(self, found: dict[str, list[Any]], findings: Findings, frames: Frames, numbers: Ints) -> None:
        """Convert findings to rows of the tables that are wanted."""
        ledger, wanted = self.ledger, self.tables
        if len(findings.ended) and "streams" in wanted:
            found.setdefault("streams", []).append(rows.streams(findings, ledger))
        if len(findings.ended) and "latencies" in wanted:
            found.setdefault("latencies", []).append(rows.latencies(findings, ledger))
        if len(findings.credit) and "credit" in wanted:
            found.setdefault("credit", []).append(rows.credit(findings, ledger, numbers))
        if len(findings.stalls) and "stalls" in wanted:
            found.setdefault("stalls", []).append(rows.stalls(findings, ledger))
        if findings.wrong and "violations" in wanted:
            made = [self._wrong(frames, numbers, wrong) for wrong in findings.wrong]
            found.setdefault("violations", []).extend(self._rows("violations", made).values())

    def _wrong(self, frames: Frames, numbers: Ints, wrong: Wrong) -> dict[str, Any]:
        """Return the row of a broken rule."""
        row = wrong.frame
        conversation = frames.conversations[frames.conn[row]]
        protocol = conversation.protocol
        name = frames.kinds[frames.kind[row]].name
        rule, reason, expected = explained(protocol, name, wrong, stream=int(frames.stream[row]))
        return self._place(frames, numbers, row) | {
            "type": name, "rule": rule, "reason": reason, "expected": expected, "kind": "state",
        }  # fmt: skip

    def _malformed(self, found: dict[str, list[Any]], frames: Frames, numbers: Ints) -> None:
        """Add the frames that could not be read."""
        if "violations" not in self.tables or not frames.errors:
            return
        made = []
        for row, (rule, reason) in sorted(frames.errors.items()):
            kind = rule if rule in NOT_WHOLE else "malformed"
            conversation, name = frames.conversations[frames.conn[row]], frames.kinds[frames.kind[row]].name
            right = readable(conversation.protocol, rule) if kind == "malformed" else None
            made.append(
                self._place(frames, numbers, row)
                | {
                    "type": name,
                    "rule": rule,
                    "reason": reason,
                    "expected": or_else(right, instead(conversation, name)) if kind == "malformed" else None,
                    "kind": kind,
                }
            )
        found.setdefault("violations", []).extend(self._rows("violations", made).values())

    def _place(self, frames: Frames, numbers: Ints, row: int) -> dict[str, Any]:
        """Return the columns that say where a frame is."""
        number = int(numbers[row])
        return {
            "conn": frames.conversations[frames.conn[row]].id,
            "ts": micros(int(frames.time[row])),
            "dir": ">" if frames.client[row] else "<",
            "stream": int(frames.stream[row]),
            "offset": _known(int(frames.offset[row])),
            "file": self._file_of(int(frames.packet[row])),
            "file_offset": _known(self.batches.flows.place_of(int(frames.packet[row])).offset),
            "packet": number or None,
        }

    def _connection(
        self, made: dict[str, list[dict[str, Any]]], conversation: Watched, ending: Ending | None,
        seen: Seen | None, final: bool,
    ) -> None:  # fmt: skip
        """Add the rows of a connection that has ended."""
        connection = conversation.connection
        if conversation.content in UNDECODED and "violations" in self.tables:
            rule, right = UNDECODED[conversation.content]
            wrong = _violation(connection.id, connection.time, kind="undecoded", rule=rule, expected=right,
                               reason=conversation.text)  # fmt: skip
            made["violations"].append(wrong | _at(conversation.file, conversation.place))
        if "connections" in self.tables:
            row = self._closing.row(conversation, ending, seen, final)
            row["closed"] = micros(seen.last if seen is not None else self.last)
            row["file"] = conversation.file
            made["connections"].append(row)

    def _rows(self, table: str, made: list[dict[str, Any]]) -> Tables:
        import pyarrow as pa

        if table not in self.tables:
            return {}
        known = schema(table)
        columns = [column([row.get(one.name) for row in made], one.type) for one in known]
        return {table: pa.RecordBatch.from_arrays(columns, schema=known)}


def analyze(
    files: Iterable[str | PathLike[str] | BinaryIO] | str | PathLike[str] | BinaryIO,
    *,
    tables: Iterable[str] | None = None,
    limits: Limits | None = None,
    entries: Sequence[ProtocolEntry] | None = None,
    ports: Mapping[int, ProtocolEntry] | None = None,
    payload: bool = False,
    stall_s: float = STALL,
    secrets: Secrets | None = None,
    chunk: int = CHUNK,
    overlap: Overlap = "first",
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the tables of captures: the name of a table, and some of its rows. All files are one capture; those with a
    name are read in the order of their first packets.

    Args:
        files: one or more names of files, or files open for reading bytes.
        tables: the tables that are wanted, of ``afflux.capture.schemas.TABLES``; all but ``frames`` by default.
        limits: the bounds of a capture; ``Limits.server()`` by default.
        entries: the protocols that are recognized; all by default.
        ports: the protocol of a server's port, used where the first bytes decide nothing.
        payload: the table ``frames`` has metadata and data.
        stall_s: seconds without an item that are a stall.
        secrets: decrypt TLS, together with those in the files.
        chunk: bytes of a file in a batch.
        overlap: which copy of repeated bytes counts; see ``Flows``.

    Raises:
        CaptureError: a file is not a capture.
        OSError: a file cannot be read.
        ValueError, Unsupported, MissingExtra: see ``Analysis``.
    """
    limits = Limits.server() if limits is None else limits
    secrets = Secrets(limits) if secrets is None else secrets
    analysis = Analysis(
        limits, entries, ports=ports, tables=tables, payload=payload, stall_s=stall_s, secrets=secrets, overlap=overlap
    )
    with ExitStack() as stack:
        for name, file in in_order_of_time(files, stack):
            analysis.file = name
            capture = Capture(file, limits=analysis.limits, chunk=chunk, secrets=secrets)
            for packets in capture:
                yield from analysis.take(packets).items()
            if capture.problem is not None:
                problem = capture.problem
                yield from analysis.damaged(problem.offset, problem.word, problem.text).items()
            yield from analysis.passed().items()
        yield from analysis.end().items()
        yield from analysis.passed().items()


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    if len(batches) == 1:
        return batches[0]
    joined = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined[0] if joined else batches[0]  # a table without rows has no batches


def _by_side(frames: Frames, held: Ints) -> Ints:
    """Return for each frame, in three rows, how long the server and the client of its connection had been held back,
    and what is missing of it (see ``ledger_columns.MISSED``)."""
    if not len(held):
        return np.zeros((3, len(frames)), np.int64)
    function = SHARED.compiled(kernel.sides)
    if function is not None:
        falling = ~np.array([rising(conversation) for conversation in frames.conversations], np.bool_)
        made = SHARED.room.numbers(3 * len(frames)).reshape(3, -1)
        function(held, frames.packet, frames.conn, falling, made)
        return made
    found = np.ascontiguousarray(held.T).take(frames.packet, axis=1, mode="clip")
    if len(frames) and frames.packet.min() < 0:
        found[:, frames.packet < 0] = 0
    falling = ~np.array([rising(conversation) for conversation in frames.conversations], np.bool_).take(frames.conn)
    if falling.any():
        found[:2] = np.where(falling, found[1::-1], found[:2])
        found[2] = np.where(falling, found[2] & 1 | found[2] >> 1 & 2 | found[2] << 1 & 4, found[2])
    return found


def _violation(conn: str | None, time: int, **more: Any) -> dict[str, Any]:
    return {"conn": conn, "ts": micros(time), **more}


def _at(file: str, place: Place) -> dict[str, Any]:
    """Return the columns that say where a packet is."""
    number = place.packet + 1 if place.packet >= 0 else None
    return {"file": file, "file_offset": _known(place.offset), "packet": number}


def _octets(conversation: Conversation) -> tuple[int, int]:
    """Return the bytes of both directions that were delivered."""
    halves = conversation.connection.halves
    return halves[False].counts.data, halves[True].counts.data


def _known(value: int) -> int | None:
    return None if value < 0 else value
