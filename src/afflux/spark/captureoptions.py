"""The options of ``format("afflux-capture")``, and their checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from afflux.capture.places import local
from afflux.capture.reassembly import Overlap
from afflux.capture.schemas import TABLES
from afflux.capture.tables import STALL
from afflux.capture.units import Decoding
from afflux.core.errors import Error
from afflux.filters import Filter, FilterError
from afflux.protocols.registry import AUTO, named
from afflux.spark.declaring import OptionError, boolean, one_of, option, parse_text, parsed_values, whole_number

__all__ = ["CaptureOptions"]

_MOST = 100_000
_MOST_SECONDS = 86_400


def _paths(name: str, value: str) -> tuple[str, ...]:
    """Return the paths: what ``load`` gets, one text or a list as JSON."""
    found = json.loads(value) if name == "paths" else [value]
    return tuple(local(str(one)) for one in found)


def _names(name: str, value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _protocol(name: str, value: str) -> str | None:
    if value == AUTO:
        return None
    try:
        return named(value).name
    except Error as error:
        raise OptionError(f"option {name}: {error.message}") from None


def _ports(name: str, value: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for part in _names(name, value):
        port, sign, protocol = part.partition("=")
        if not (sign and port.isascii() and port.isdigit() and int(port) <= 0xFFFF):
            raise OptionError(f"option {name} must be PORT=NAME, such as 7000=rsocket, not {part!r}")
        found[int(port)] = _protocol(name, protocol) or AUTO
    return found


def _filter(name: str, value: str) -> Filter:
    try:
        return Filter.of(value, table=True)
    except FilterError as error:
        raise OptionError(f"option {name}:{error.message}") from None


def _seconds(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _MOST_SECONDS:
        raise OptionError(f"option {name} must be seconds above 0 and up to {_MOST_SECONDS}, not {value!r}")
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """The options of one read. Pickled into every task."""

    path: tuple[str, ...] = option(
        _paths, "What `load` gets: a file, a pattern such as `captures/*.pcapng`, or a directory.", ()
    )
    paths: tuple[str, ...] = option(_paths, "Several paths as a JSON list: what `load` gets as a list.", ())
    table: str = option(one_of(*TABLES), f"The table: {', '.join(f'`{name}`' for name in TABLES)}.", "frames")
    columns: tuple[str, ...] = option(
        _names, "The columns that are read, such as `conn, ts, type`; all by default.", ()
    )
    payload: bool = option(boolean, "`true` adds the columns `metadata` and `data` to `frames`.", False)
    protocol: str | None = option(_protocol, "The only protocol that is recognized; `auto`: all.", None)
    ports: dict[int, str] | None = option(  # noqa: RUF009 -- a field, and its default is immutable
        _ports, "The protocol of a server's port, as with `decode -d`: `7000=rsocket, 8000=jmux`.", None
    )
    where: Filter | None = option(  # noqa: RUF009 -- a field, and its default is immutable
        _filter, "Frames that are read, such as `type == REQUEST_N and n < 4`.", None
    )
    stall_seconds: float = option(_seconds, "Seconds without an item that are a stall.", STALL)
    keylog: str | None = option(
        parse_text,
        "A file with the secrets that decrypt TLS, as `decode --keylog` reads it. All tasks must see it.",
        None,
    )
    overlap: Overlap = option(  # noqa: RUF009 -- a field, and its default is immutable
        one_of("first", "last"),
        "The copy of bytes that counts if those that wait for earlier ones are repeated with another content.",
        "first",
    )
    index_dir: str | None = option(
        parse_text,
        "A directory for the indexes, which are otherwise next to the captures. All tasks must see it.",
        None,
    )
    partitions: int | None = option(
        whole_number(1, _MOST), "The number of tasks, about; by default each has 64 MiB of segments.", None
    )
    push_filters: bool = option(
        boolean,
        "`true` applies filters of the query while frames are decoded; "
        "requires `spark.sql.python.filterPushdown.enabled`.",
        False,
    )
    settle_seconds: float = option(
        _seconds, "Only `readStream`: seconds after its last change when a file counts as complete.", 30.0
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> CaptureOptions:
        """Return the options of a query.

        Raises:
            OptionError: one is unknown, missing or invalid.
        """
        made = cls(**parsed_values(cls, given))
        if not made.all_paths:
            raise OptionError("there is no path: pass files, a pattern or a directory to load()")
        known = made.decoding.schema(made.table).names
        for column in made.columns:
            if column not in known:
                raise OptionError(f"option columns: {made.table} has no column {column!r}; it has {', '.join(known)}")
        if made.where is not None and made.table != "frames":
            raise OptionError("option where selects frames: use it with table=frames, and SQL for the other tables")
        if made.where is not None and "route" in made.where.columns:
            raise OptionError("option where: frames has no column route; select streams by route in the table streams")
        if made.keylog is not None and not Path(made.keylog).is_file():
            there = Path(made.keylog).exists()
            problem = "is not a regular file, and each task reads it" if there else "not found"
            raise OptionError(f"option keylog: {'' if there else 'file '}{made.keylog!r} {problem}")
        return made

    @property
    def all_paths(self) -> tuple[str, ...]:
        """All paths that are read."""
        return self.path + self.paths

    @property
    def decoding(self) -> Decoding:
        """How the captures are decoded."""
        return Decoding(
            tables=(self.table,), payload=self.payload, protocol=self.protocol, ports=self.ports or {},
            where=self.where, stall_s=self.stall_seconds, keylog=self.keylog, overlap=self.overlap,
        )  # fmt: skip

    @property
    def index_place(self) -> Path | None:
        """The directory for indexes."""
        return None if self.index_dir is None else Path(local(self.index_dir))
