"""Declare the tables that captures become: the name, the type and the meaning of every column.

The tables are joined by ``conn`` and ``stream``. ``>`` is the direction from the client, the side that opened the
connection, and ``<`` for what the server sends. Does not need pyarrow until a schema is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from afflux.core.dissector import OVER_LIMIT
from afflux.core.errors import MissingExtra

if TYPE_CHECKING:
    import pyarrow

__all__ = ["NOT_WHOLE", "TABLES", "Column", "schema"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    type: str
    "A type of Spark SQL, in lower case."
    doc: str
    "Its meaning, for the documentation."


_CONN: Final = Column("conn", "string", "The connection: a letter and 11 characters that do not depend on the run.")
_STREAM: Final = Column("stream", "bigint", "The stream id; -1 for the connection itself.")
_DIR: Final = Column("dir", "string", "`>` sent by the client, `<` sent by the server.")
_ITEMS_DIR: Final = Column("dir", "string", "The direction of the items: `>` from the client, `<` from the server.")
_PACKET: Final = Column(
    "packet", "bigint", "The number of the packet in its file, counted from 1; null if none is known."
)
_FILE: Final = Column("file", "string", "The capture file.")
_POSITION: Final = "The position in the decompressed file, in bytes: where the data of the packet begins"
_KIND: Final = Column(
    "kind",
    "string",
    "`request`, `fire`, `stream`, `channel`, `push`, `session` or `subscription`; `unknown` if the capture does not "
    "have its first frame.",
)
_ROUTE: Final = Column(
    "route",
    "string",
    "The route of the request, from its routing metadata or the protocol's own name; null for none, and beyond "
    "`capture_streams` different ones.",
)

FRAMES: Final = (
    _CONN,
    Column("ts", "timestamp", "The time of the packet that completed the frame; null if the capture has none."),
    _DIR,
    Column("protocol", "string", "The protocol; null for bytes that could not be decoded."),
    Column("stream", "bigint", "The stream id; null for none."),
    Column("type", "string", "The type of the frame, a number if it is unknown; null if the bytes do not show it."),
    Column("flags", "array<string>", "The letters of the declared flags that are set."),
    Column("n", "bigint", "The number of items granted; null for none."),
    Column("metadata_len", "bigint", "Bytes of metadata; null for none."),
    Column("data_len", "bigint", "Bytes of data; null for none."),
    Column("code", "bigint", "The error code; null for none."),
    Column("offset", "bigint", "The position of the frame in the bytes of its direction."),
    Column(
        "length",
        "bigint",
        "Bytes of the frame, without a length prefix, or the number of bytes that could not be decoded; null if it is "
        "unknown.",
    ),
    Column(
        "error",
        "struct<rule:string,reason:string>",
        "Why the frame is wrong; null if it is not. The rule `lost` stands for bytes that the capture does not have, "
        "`cut` for a frame in which the connection or the capture ends, `limit` for a frame that is passed over "
        "because it is above a limit of afflux. `undecoded` and `encrypted` stand for all "
        "bytes of one direction of a connection that could not be decoded: its beginning is missing, it fits several "
        "protocols, or it is encrypted.",
    ),
    Column("fields", "string", "The other declared fields as a JSON object, without secrets."),
    _FILE,
    Column("file_offset", "bigint", f"{_POSITION}; null if the packet came in fragments, or none is known."),
    Column(
        "packet",
        "bigint",
        "The number of the packet in its file, counted from 1; of bytes that could not be decoded the first one with "
        "them; null if none is known.",
    ),
)

NOT_WHOLE: Final = ("lost", "cut", OVER_LIMIT)
"The kinds of violations, and the rules of errors, of frames that are not read whole: nobody broke a rule."

PAYLOADS: Final = (
    Column(
        "metadata",
        "binary",
        "The metadata; null for none, and for what is beyond `capture_bytes` in one batch of packets.",
    ),
    Column("data", "binary", "The data; null as `metadata`."),
)
"The columns of ``frames`` with payloads, after the others."

CONNECTIONS: Final = (
    _CONN,
    Column("file", "string", "The capture file with its first packet."),
    Column("protocol", "string", "The protocol; null if it is none of ours."),
    Column(
        "content", "string", "What the connection has, in words: `no data` if both sides opened it and sent nothing."
    ),
    Column("client", "string", "The side that opened it, `address:port`; the lower address if that is unknown."),
    Column("server", "string", "The other side."),
    Column("opened", "timestamp", "The time of its first packet."),
    Column("closed", "timestamp", "The time of its last packet."),
    Column("closing", "string", "`fin`, `rst`, `open` (the capture ends first) or `dropped` (too many connections)."),
    Column("closed_by", "string", "The side that sent the first FIN or RST: `>` client, `<` server; null for none."),
    Column(
        "announced_by",
        "string",
        "The side that first announced the end, with ERROR on stream 0 (RSocket, ReactiveSocket), Shutdown or Error "
        "(Jmux), or goodbye (reactive-streams-io): `>` client, `<` server; null for none.",
    ),
    Column("one_way", "boolean", "The capture has bytes of only one direction."),
    Column("client_bytes", "bigint", "Bytes of TCP data from the client, each counted once."),
    Column("server_bytes", "bigint", "Bytes of TCP data from the server, each counted once."),
    Column("client_packets", "bigint", "TCP segments from the client."),
    Column("server_packets", "bigint", "TCP segments from the server."),
    Column("lost_bytes", "bigint", "Bytes that the capture does not have."),
    Column("repeated_bytes", "bigint", "Bytes that were sent again."),
    Column("conflicting_bytes", "bigint", "Bytes that differ from an earlier copy."),
    Column("frames", "bigint", "Frames."),
    Column("streams", "bigint", "Streams."),
    Column("violations", "bigint", "Rows of the table `violations` of the kind `state`."),
    Column("setup", "string", "The fields of the first frame as JSON, without secrets; null for none."),
)

STREAMS: Final = (
    _CONN,
    _STREAM,
    Column("protocol", "string", "The protocol."),
    _KIND,
    Column("requester", "string", "The side that opened the stream: `>` client, `<` server."),
    _ROUTE,
    Column(
        "history",
        "string",
        "One letter a frame, upper case for the requester's; it ends with `…` if there were more frames.",
    ),
    Column("first", "timestamp", "The time of its first frame."),
    Column("last", "timestamp", "The time of its last frame."),
    Column("items_in", "bigint", "Items sent to the requester."),
    Column("items_out", "bigint", "Items sent by the requester; a request is one only in a channel or with a session."),
    Column("bytes_in", "bigint", "Bytes of data and metadata in the frames with those items, towards the requester."),
    Column("bytes_out", "bigint", "Bytes of data and metadata that the requester sent, its request included."),
    Column("granted_in", "bigint", "Credit that the requester granted; null if the protocol has none for this kind."),
    Column("granted_out", "bigint", "Credit that the requester received; null if the protocol has none for this kind."),
    Column(
        "ended",
        "string",
        "`complete`, `error`, `cancel`, `connection` (it ended first), `open` (at the end of the capture, or when "
        "there were more live streams than `capture_streams`) or `unknown` (its end may be among missing frames).",
    ),
    Column("code", "bigint", "The error code; null for none."),
    Column("stalls", "bigint", "Rows of the table `stalls`."),
    Column("stalled_s", "double", "Seconds of all its stalls."),
    Column("longest_stall_s", "double", "Seconds of the longest one; null for none."),
)

CREDIT: Final = (
    _CONN,
    _STREAM,
    _ITEMS_DIR,
    Column("ts", "timestamp", "The time of the frame."),
    Column("event", "string", "`grant`, `empty` (an item used the last of it) or `end` (the direction has ended)."),
    Column("n", "bigint", "Items granted by this event; 0 for the others."),
    Column("granted", "bigint", "Items granted so far."),
    Column("used", "bigint", "Items sent so far."),
    Column("balance", "bigint", "`granted` less `used`; negative if the sender exceeds its credit."),
    _PACKET,
)

STALLS: Final = (
    _CONN,
    _STREAM,
    _ITEMS_DIR,
    Column("start", "timestamp", "The time of the last frame or grant before it."),
    Column(
        "stop", "timestamp", "The time of the frame that ended it, or of the end of its connection or of the capture."
    ),
    Column("seconds", "double", "Its duration in seconds."),
    Column(
        "cause",
        "string",
        "`lease` (a request waited for a lease), `peer` (the receiver granted no credit), `transport` (credit, but the "
        "receiver's window or the network was full), `local` (credit and room, and the sender sent items of other "
        "streams), `producer` (credit and room, and nothing was sent) or `unknown` (missing frames may decide).",
    ),
    Column("after_type", "string", "The type of the frame after which it began."),
    Column("after_dir", "string", "The direction of that frame."),
    Column("after_offset", "bigint", "The position of that frame in the bytes of its direction."),
    Column(
        "resumed_by",
        "string",
        "The type of the frame that ended it; null if its connection or the capture ended first.",
    ),
    _ROUTE,
)

LATENCIES: Final = (
    _CONN,
    _STREAM,
    _KIND,
    _ROUTE,
    Column("requested", "timestamp", "The time of the request."),
    Column("first_s", "double", "Seconds until the first answer: an item, the completion or an error; null for none."),
    Column("total_s", "double", "Seconds until the end; null if it has not ended."),
    Column("ended", "string", "As in `streams`."),
    Column("items", "bigint", "Items sent to the requester."),
)

VIOLATIONS: Final = (
    _CONN,
    Column("ts", "timestamp", "The time of the frame; null if the capture has none."),
    _DIR,
    Column("stream", "bigint", "The stream id; -1 if it is unknown or the connection itself."),
    Column("type", "string", "The type of the frame; null if it is unknown."),
    Column("offset", "bigint", "The position of the frame in the bytes of its direction."),
    Column(
        "rule",
        "string",
        "The rule of the specification that was broken, or a word, such as `lost` or `truncated`.",
    ),
    Column("reason", "string", "What was wrong."),
    Column("expected", "string", "What would have been right; null if that is unknown."),
    Column(
        "kind",
        "string",
        "`malformed` (not a frame), `state` (a frame that was not allowed there), `lost` (bytes are missing), "
        "`cut` (the connection or the capture ends within the frame), `limit` (a frame above a limit of afflux, such "
        "as `frame_bytes`, which is passed over), `damaged` (the file), `undecoded` (a connection "
        "that is encrypted, whose beginning is missing, or that fits several protocols; with the rule `skipped`, "
        "packets of a file whose TCP segment could not be found) or `order` (the packets of a "
        "connection are not in the order of time).",
    ),
    _FILE,
    Column(
        "file_offset",
        "bigint",
        f"{_POSITION}, or the damage; null if the packet came in fragments, or none is known.",
    ),
    Column(
        "packet",
        "bigint",
        "The number of the packet in its file, counted from 1; of `undecoded` the first one with data, or the first "
        "that was skipped; null if none is known.",
    ),
)

TABLES: Final[dict[str, tuple[Column, ...]]] = {
    "frames": FRAMES,
    "connections": CONNECTIONS,
    "streams": STREAMS,
    "credit": CREDIT,
    "stalls": STALLS,
    "latencies": LATENCIES,
    "violations": VIOLATIONS,
}
"The columns of each table."


@cache
def schema(table: str, *, payload: bool = False) -> pyarrow.Schema:
    """Return the Arrow schema of a table, of ``frames`` with payloads on request.

    Raises:
        KeyError: there is no table of that name.
        MissingExtra: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtra("reading or writing capture tables", "capture") from None
    types = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "array<string>": pa.list_(pa.string()),
        "struct<rule:string,reason:string>": pa.struct([("rule", pa.string()), ("reason", pa.string())]),
    }
    return pa.schema(
        [
            (column.name, types[column.type])
            for column in (*TABLES[table], *(PAYLOADS * (payload and table == "frames")))
        ]
    )
