"""Declare, parse and check the options of writing with ``format("afflux")``, as options.py does for reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from afflux.core.limits import Limits
from afflux.spark.declaring import (
    OptionError,
    one_of,
    option,
    parse_address,
    parse_route,
    parse_text,
    values_of,
    whole_number,
)

__all__ = ["AT_LEAST_ONCE", "EXACTLY_ONCE", "IN_SQL", "SPARKS_OWN", "SinkOptions"]

EXACTLY_ONCE = "exactly-once"
"Delivery to a receiver that stages."
AT_LEAST_ONCE = "at-least-once"
"Delivery to any peer."
_MAX_MILLISECONDS = 24 * 3_600_000
_MAX_REQUESTS = 4_096
_LEAST_ITEM = 0x1_0000
_MOST_ITEM = 1 << 30
IN_SQL = (
    "INSERT INTO and CREATE TABLE ... AS SELECT cannot write to afflux, because Spark passes them no options; use "
    'df.write.format("afflux").option("uri", "tcp://127.0.0.1:7000").mode("append").save() with df = spark.sql(...)'
)
"What works instead of SQL, which cannot write."
SPARKS_OWN = ("checkpointlocation", "path", "provider", "queryname")
"Options that Spark adds, or reads itself."


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of one write. Pickled into every task."""

    uri: str = option(parse_address, "The server's address. Required.")
    route: str | None = option(parse_route, "The route of the channel or the requests; by default none.", None)
    delivery: str = option(
        one_of(EXACTLY_ONCE, AT_LEAST_ONCE),
        "`exactly-once` stages rows at a receiver of afflux; `at-least-once` sends them to any peer, each with a key.",
        EXACTLY_ONCE,
    )
    verb: str = option(
        one_of("channel", "request"),
        "With `at-least-once`: `channel` sends a channel for each partition, `request` a request for each row.",
        "channel",
    )
    format: str = option(
        one_of("raw", "json", "columns"),
        "`raw` sends the columns `data` and, if there is one, `metadata`; `json` sends all columns of a row as one "
        "JSON object. `columns` stores all columns with their types, with `exactly-once` only.",
        "raw",
    )
    order_by: str | None = option(
        parse_text,
        "With `verb=request`: the column of a key. Requests with equal keys are sent one after another, in the order "
        "of the rows. The rows of a key must be in one partition: `df.repartition(n, key)`.",
        None,
    )
    max_requests: int = option(
        whole_number(1, _MAX_REQUESTS), "With `verb=request`: the most requests of a task in flight.", 64
    )
    max_item_bytes: int = option(
        whole_number(_LEAST_ITEM, _MOST_ITEM),
        "The most bytes of an item that the peer accepts, metadata included: `payload_bytes` of a server of afflux. A "
        "row that needs more is refused.",
        Limits.server().payload_bytes,
    )
    write_id: str | None = option(
        parse_text,
        "For a batch write with `exactly-once`: a name that identifies its content. A second write with the same name "
        "changes nothing. By default each write is another one.",
        None,
    )
    connect_timeout_ms: int = option(
        whole_number(0, _MAX_MILLISECONDS), "Milliseconds for which a task tries to connect.", 30_000
    )
    write_timeout_ms: int = option(
        whole_number(1, _MAX_MILLISECONDS),
        "Milliseconds in which the peer must take rows or answer. A task whose peer does neither fails.",
        30_000,
    )
    commit_timeout_ms: int = option(
        whole_number(1, _MAX_MILLISECONDS),
        "Milliseconds for which the driver tries to commit a batch, with new connections if necessary.",
        60_000,
    )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SinkOptions:
        """Parse the options in ``given``, whose names may have any case.

        Raises:
            OptionError: an option is unknown (the text suggests the nearest name), missing, or has an invalid value, or
                two options contradict each other.
        """
        own = {name: text for name, text in given.items() if name.lower() not in SPARKS_OWN}
        options = cls(**values_of(cls, own, IN_SQL))
        options._check()
        return options

    def _check(self) -> None:
        staged = self.delivery == EXACTLY_ONCE
        if staged and self.verb == "request":
            raise OptionError("verb=request requires delivery=at-least-once: rows are staged in a channel")
        if not staged and self.format == "columns":
            raise OptionError("format=columns requires delivery=exactly-once; use format=json for other peers")
        if not staged and self.write_id is not None:
            raise OptionError("writeId requires delivery=exactly-once: other peers have only the keys of rows")
        if self.order_by is not None and self.verb != "request":
            raise OptionError("orderBy requires verb=request: a channel always has the order of the partition's rows")

    @property
    def target(self) -> str:
        """The peer's name in errors."""
        return f"{self.uri} route {self.route!r}" if self.route is not None else self.uri
