"""The options of reading with ``format("afflux")``, and their checks. declaring.py has what all options share."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

from afflux.core.errors import LocalProtocolError
from afflux.core.limits import Limits
from afflux.journal.address import StreamAddress, is_stream_address
from afflux.protocols.rsocket.cursor import Acknowledge
from afflux.spark.arrow import TIMES
from afflux.spark.declaring import (
    OptionError,
    boolean,
    camel,
    one_of,
    option,
    parse_address,
    parse_any_text,
    parse_listen,
    parse_remote,
    parse_route,
    parse_text,
    unknown_option,
    values_of,
    whole_number,
)
from afflux.spark.times import zone_of

__all__ = ["EARLIEST", "LATEST", "MAX_SHARD", "METADATA_COLUMNS", "Options", "Stream"]

EARLIEST: Literal["earliest"] = "earliest"
"Start with the first stored item."
LATEST: Literal["latest"] = "latest"
"Start with the next item to be written."
METADATA_COLUMNS = ("stream", "partition", "offset", "timestamp", "metadata", *TIMES)
"What the option ``metadataColumns`` may name."
MAX_SHARD = 0xFFFF
"The largest shard number, 16 bits on the wire."
_MAX_COUNT = (1 << 63) - 1
_MAX_TIME_DIGITS = 15
_MAX_MILLISECONDS = 60_000
_MAX_RECONNECT_MS = 7 * 24 * 3_600_000

_MEMBERS = {"uri": "uri", "route": "route", "requestData": "request_data"}
"The members of a stream in the option ``streams``, and the fields of the same names."
_SHARD = re.compile(r"0|[1-9][0-9]{0,4}")
_NAME = re.compile(r"(?=.*[A-Za-z_])[A-Za-z0-9_.-]{1,64}")

StartingOffsets = Literal["earliest", "latest"] | dict[int, int]
"Start of a new query: one of the two words, or an offset for each shard to read."


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One of several streams of a query."""

    name: str
    "Identifies it in the checkpoint."
    own: tuple[tuple[str, str], ...]
    "The fields of Options that it sets, with their values."


def _source(name: str, value: str) -> str:
    """Return an address as ``parse_remote`` does, or that of a JetStream stream."""
    if not is_stream_address(value):
        return parse_remote(name, value)
    StreamAddress.parse(value)
    return value


def _reader_name(name: str, value: str) -> str:
    try:
        Acknowledge(epoch=1, owner=1, name=value)
    except LocalProtocolError as error:
        raise OptionError(f"option {name}: {error.message}") from None
    return value


def _partitions(name: str, value: str) -> int:
    return whole_number(1, Limits.server().partitions)(name, value)


def _zone(name: str, value: str) -> str:
    if zone_of(value) is None:
        raise OptionError(f"option {name} must be a time zone of this machine, not {value!r}")
    return value


def _offsets(name: str, value: str) -> StartingOffsets | dict[str, StartingOffsets]:
    """Return a word, offsets by shard, or either by the name of a stream."""
    if value.lower() in (EARLIEST, LATEST):
        return cast(StartingOffsets, value.lower())
    explained = f'option {name} must be earliest, latest or JSON such as {{"0": 1000}}'
    try:
        named = json.loads(value, object_pairs_hook=_no_repeats)
    except ValueError:
        raise OptionError(f"{explained}, not {value!r}") from None
    if not isinstance(named, dict) or not named:
        raise OptionError(f"{explained}, not {value!r}")
    if not all(map(_NAME.fullmatch, named)):
        return _by_shard(named, explained)
    for stream, own in named.items():
        if own not in (EARLIEST, LATEST) and not (isinstance(own, dict) and own):
            raise OptionError(f"{explained}; of stream {stream!r} it has {own!r}")
    return {stream: _by_shard(own, explained) if isinstance(own, dict) else own for stream, own in named.items()}


def _by_shard(named: dict[str, Any], explained: str) -> dict[int, int]:
    offsets: dict[int, int] = {}
    for shard, offset in named.items():
        if _SHARD.fullmatch(shard) is None or int(shard) > MAX_SHARD:
            raise OptionError(f"{explained}: {shard!r} is not a shard, a number up to {MAX_SHARD}")
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= _MAX_COUNT:
            raise OptionError(f"{explained}: {offset!r} is not an offset, a whole number of 0 or more")
        offsets[int(shard)] = offset
    return offsets


def _columns(name: str, value: str) -> tuple[tuple[str, str], ...]:
    """Return pairs of a column and what it contains."""
    found: dict[str, str] = {}
    for part in value.split(","):
        kind, as_, column = re.sub(r"\s+(?i:as)\s+", "\0", part.strip(), count=1).partition("\0")
        kind = kind.lower()
        if kind not in METADATA_COLUMNS:
            raise OptionError(
                f"option {name}: {kind!r} is not one of {', '.join(METADATA_COLUMNS)}; write offset AS _offset"
            )
        column = column.strip() if as_ else kind
        if not column or column in found:
            raise OptionError(f"option {name}: the column {column!r} is named twice, or empty")
        found[column] = kind
    return tuple(found.items())


def _time(name: str, value: str) -> int:
    """Return microseconds since 1970 (UTC)."""
    explained = f"option {name} must be milliseconds since 1970 or a time with its zone, 2026-11-23T17:00:00Z"
    if value.isascii() and value.isdigit():
        if len(value) > _MAX_TIME_DIGITS:
            raise OptionError(f"{explained}, not {value!r}")
        return int(value) * 1000
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise OptionError(f"{explained}, not {value!r}")
    seconds, micros = divmod(time - datetime(1970, 1, 1, tzinfo=UTC), timedelta(seconds=1))
    return seconds * 1_000_000 + micros.microseconds


def _streams(name: str, value: str) -> tuple[Stream, ...]:
    explained = f'option {name} must be JSON such as {{"eu": "tcp://eu:7000", "us": {{"uri": "tcp://us:7000"}}}}'
    try:
        named = json.loads(value, object_pairs_hook=_no_repeats)
    except ValueError as error:
        raise OptionError(f"{explained}, not {value!r} ({error})") from None
    most = Limits.server().partitions
    if not isinstance(named, dict) or not 1 <= len(named) <= most:
        raise OptionError(f"{explained}, with 1 to {most} streams")
    return tuple(_stream(name, stream, own) for stream, own in sorted(named.items()))


def _stream(name: str, stream: str, own: Any) -> Stream:
    if not _NAME.fullmatch(stream):
        text = f"option {name}: the name {stream!r} must have 1 to 64 of A-Z a-z 0-9 _ . - and not only digits"
        raise OptionError(text)
    given = {"uri": own} if isinstance(own, str) else own
    if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
        raise OptionError(f"option {name}: stream {stream!r} must be an address or an object of texts, not {own!r}")
    for member in given.keys() - _MEMBERS.keys():
        known = {each.lower(): each for each in _MEMBERS}
        raise OptionError(f"option {name}: stream {stream!r}: {unknown_option(member, known)}")
    if "uri" in given:
        _source(f"{name}: stream {stream!r}: uri", given["uri"])
    if "route" in given:
        parse_route(f"{name}: stream {stream!r}: route", given["route"])
    return Stream(name=stream, own=tuple((_MEMBERS[member], text) for member, text in sorted(given.items())))


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is repeated")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one query. Pickled into every task."""

    uri: str = option(
        _source,
        "The server's address, or that of a JetStream stream, `nats://host/STREAM`. Required, unless each of `streams` "
        "has one.",
    )
    route: str | None = option(parse_route, "The route of the stream; by default none.", None)
    request_data: str = option(parse_any_text, "The data of the request, sent as UTF-8.", "")
    streams: tuple[Stream, ...] = option(
        _streams,
        "Several streams in one query, as JSON: a name for each, and its address or an object with `uri`, `route` and "
        "`requestData`. What a stream does not set has the value of the option of that name.",
        (),
    )
    partitions: int = option(
        _partitions,
        "The minimum number of ranges into which a batch is split, up to the limit `partitions`. "
        "By default a batch is split by size alone, into ranges of 256 MiB.",
        1,
    )
    max_rows_per_batch: int | None = option(whole_number(1, _MAX_COUNT), "The maximum number of rows of a batch.", None)
    max_bytes_per_batch: int | None = option(
        whole_number(1, _MAX_COUNT),
        "The approximate number of bytes of data in a batch, which has at least one row. "
        "Sizes are estimated from samples of the batch.",
        None,
    )
    starting_offsets: StartingOffsets | dict[str, StartingOffsets] = option(  # noqa: RUF009 -- a field, and its default is immutable
        _offsets,
        'Start of a new query or a batch read: `earliest` or an offset for each shard: `{"0": 1000}`; of a query also '
        "`latest`. With `streams` one of them for each name. A query with a checkpoint continues from its checkpoint.",
        EARLIEST,
    )
    starting_timestamp: int | None = option(
        _time,
        "Start of a new query or a batch read, instead of `startingOffsets`: the first item of each shard that was "
        "stored at or after this time. Milliseconds since 1970, or a time with its zone: `2026-11-23T17:00:00Z`.",
        None,
    )
    fail_on_data_loss: bool = option(
        boolean, "`false` continues after missing items, and logs each gap as a warning.", True
    )
    include_metadata: bool = option(boolean, "`true` fills the column `metadata`.", False)
    format: str = option(
        one_of("raw", "json", "msgpack", "cbor", "arrow"),
        "`raw` returns the default columns. `json`, `msgpack`, `cbor` and `arrow` decode `data` into your schema: an "
        "object of each item, or the rows of an Arrow IPC stream.",
        "raw",
    )
    metadata_columns: tuple[tuple[str, str], ...] = option(
        _columns,
        "Columns of your schema that describe the item, unless the format is raw: `offset, timestamp AS stored_at`. "
        "They are `stream`, `partition`, `offset`, `timestamp` and `metadata`, with the types of the default columns, "
        "and `receive_us` and `held_us`, the times of tasks.",
        (),
    )
    mode: str = option(
        one_of("permissive", "failfast", "dropmalformed"),
        "Malformed items, unless the format is raw: `permissive` sets fields that do not fit to null, `failfast` fails "
        "the query with stream and offset, `dropmalformed` drops the row.",
        "permissive",
    )
    corrupt_record: str = option(
        parse_text,
        "The column that gets malformed items, if the schema has it: STRING for `json`, else BINARY.",
        "_corrupt_record",
        spelled="columnNameOfCorruptRecord",
    )
    time_zone: str | None = option(
        _zone,
        "The zone of timestamps without one, such as `Europe/Paris` or `+01:00`; by default "
        "`spark.sql.session.timeZone`, else the system's.",
        None,
    )
    auth_file: str | None = option(
        parse_text,
        "A file with credentials for the server: `bearer TOKEN` or `simple USER PASSWORD`, and readable by its owner "
        "only. It must exist on each machine with tasks; with `journalDir`, on the driver's.",
        None,
    )
    acknowledge_as: str | None = option(
        _reader_name,
        "The name under which this query acknowledges what it has finished, so that the server may trim it: one query "
        "of a stream. By default reading trims nothing.",
        None,
    )
    journal_dir: str | None = option(
        parse_text,
        "A directory of the driver, for a stream whose server has no cursor: a relay in the reader's process stores "
        "the stream there, and tasks read it from the relay. It belongs to one query.",
        None,
    )
    journal_bytes: int | None = option(
        whole_number(1, _MAX_COUNT), "With `journalDir`: the most bytes of the journal; then the server waits.", None
    )
    journal_listen: str | None = option(
        parse_listen,
        "With `journalDir`: the relay's address, where all tasks can reach it, such as `tcp://driver-host:0`. By "
        "default a socket in the directory, for tasks on the same machine.",
        None,
    )
    verb: str | None = option(
        one_of("stream", "channel", "subscribe"),
        "With `journalDir`: how the stream is requested. `channel` sends `requestData` and stores what it returns, "
        "`subscribe` is a REQUEST_SUB of ReactiveSocket or a publisher of reactive-streams-io. By default what the "
        "protocol has.",
        None,
    )
    framing: str | None = option(
        one_of("lines", "u8", "u16", "u24", "u32"),
        "With `journalDir`: how the bytes of a session of Jmux become items: `lines`, or the size of a length before "
        "each, such as `u16`.",
        None,
    )
    session: str | None = option(
        parse_text,
        "With `journalDir`: a file of the driver with session types. `route` is the channel, whose session receives "
        "the items in a loop, and each line of `requestData` is a step of this side.",
        None,
    )
    replays: bool = option(
        boolean,
        "With `journalDir`: `true` if the stream always begins with its first item, so that a restarted query "
        "continues after the stored ones.",
        False,
    )
    poll_timeout_ms: int = option(whole_number(0, _MAX_MILLISECONDS), "Milliseconds to wait for new items.", 500)
    reconnect_timeout_ms: int = option(
        whole_number(0, _MAX_RECONNECT_MS),
        "Milliseconds for which the reader and each task try again when the server is away; 0: they fail immediately.",
        300_000,
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Parse the options in ``given``, whose names may have any case.

        Raises:
            OptionError: an option is unknown (the text suggests the nearest name), missing, or has an invalid value.
        """
        options = cls(**values_of(cls, given))
        if options.starting_timestamp is not None and "startingoffsets" in map(str.lower, given):
            raise OptionError("startingTimestamp and startingOffsets exclude each other")
        if options.metadata_columns and options.format == "raw":
            raise OptionError("metadataColumns requires another format; format=raw has these columns by default")
        if options.format == "arrow" and any(kind in TIMES for _, kind in options.metadata_columns):
            raise OptionError(
                f"{' and '.join(TIMES)} are not possible with format=arrow, whose items have several rows"
            )
        options._check_streams()
        options._check_journal()
        return options

    @property
    def address(self) -> str:
        """The address without credentials."""
        return str(StreamAddress.parse(self.uri)) if is_stream_address(self.uri) else self.uri

    @property
    def stream_name(self) -> str:
        """The name of the stream in errors and logs."""
        address = f"{self.address} route {self.route!r}" if self.route is not None else self.address
        return f"stream {self.streams[0].name} ({address})" if len(self.streams) == 1 else address

    def each(self) -> dict[str, Options]:
        """Return the options of each stream by its name, which is empty for the one stream of a query."""
        if not self.streams:
            return {"": self}
        return {stream.name: self.of(stream.name) for stream in self.streams}

    def of(self, name: str) -> Options:
        """Return the options of the stream of that name."""
        for stream in self.streams:
            if stream.name == name:
                own: dict[str, Any] = dict(stream.own)
                if isinstance(self.starting_offsets, dict):
                    own["starting_offsets"] = cast(dict[str, Any], self.starting_offsets).get(name, EARLIEST)
                return replace(self, **own, streams=(stream,))
        return self

    @property
    def starts(self) -> StartingOffsets:
        """Where a new query starts: ``starting_offsets`` of the options of one stream (:meth:`of`)."""
        return cast(StartingOffsets, self.starting_offsets)

    def _check_journal(self) -> None:
        if self.journal_dir is None:
            for name in ("journal_bytes", "journal_listen", "verb", "framing", "session", "replays"):
                if getattr(self, name):
                    raise OptionError(f"option {camel(name)} requires journalDir")
            for own in self.each().values():
                if not is_stream_address(own.uri):
                    parse_address("uri", own.uri)
        if self.auth_file is not None and any(is_stream_address(own.uri) for own in self.each().values()):
            raise OptionError("option authFile is not for JetStream streams: their address has the option creds")

    def _check_streams(self) -> None:
        starts = self.starting_offsets
        if not self.streams:
            if isinstance(starts, dict) and not all(isinstance(shard, int) for shard in starts):
                raise OptionError(f"option startingOffsets names the streams {sorted(starts)}, but streams is not set")
            return
        if isinstance(starts, dict) and not set(starts) <= {stream.name for stream in self.streams}:
            unknown = next(name for name in starts if name not in {stream.name for stream in self.streams})
            raise OptionError(f"option startingOffsets: there is no stream {unknown!r} in the option streams")
        seen: dict[tuple[str, str | None, str], str] = {}
        for name, own in self.each().items():
            if not own.uri:
                raise OptionError(f"option streams: stream {name!r} has no uri, and the option uri is not set either")
            if (other := seen.setdefault((own.uri, own.route, own.request_data), name)) != name:
                raise OptionError(f"option streams: {other!r} and {name!r} are the same stream")
