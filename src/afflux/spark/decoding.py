"""Choose the decoder of ``format``: what becomes of the data of the items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from afflux.core.errors import Invalid
from afflux.spark.ipc import ArrowRows
from afflux.spark.rows import CBOR, JSON, MSGPACK, Modes, Rows
from afflux.spark.times import Zone, system_zone, zone_of

if TYPE_CHECKING:
    import pyarrow as pa

    from afflux.spark.options import Options

__all__ = ["Decoder", "decoder_of", "session_zone"]

Decoder = Rows | ArrowRows
"Yields record batches of the user's schema."

_FORMATS = {"json": JSON, "msgpack": MSGPACK, "cbor": CBOR}


def decoder_of(options: Options, schema: pa.Schema) -> Decoder:
    """Return the decoder of the option ``format``, which is not raw.

    Raises:
        Invalid: a column cannot be decoded, a package is missing, or the session's time zone is unknown.
    """
    zone = session_zone(options)
    text = options.format == "json"
    beside = dict(options.metadata_columns)
    modes = Modes(schema, options.stream_name, options.mode, options.corrupt_record, text=text, beside=beside)
    if options.format == "arrow":
        return ArrowRows(modes, zone)
    _check_installed("cbor2" if options.format == "cbor" else "msgspec", options.format)
    return Rows(modes, _FORMATS[options.format], zone)


def session_zone(options: Options) -> Zone:
    """Return the zone of timestamps without one: the option ``timeZone``, else the session's, else the system's.

    Tasks have the session's settings as local properties; the processes that plan a query do not.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    name = options.time_zone or (context and context.getLocalProperty("spark.sql.session.timeZone")) or system_zone()
    zone = zone_of(name)
    if zone is None:
        raise Invalid(f"spark.sql.session.timeZone {name!r} is not a time zone of this machine", rule="timeZone")
    return zone


def _check_installed(package: str, form: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        extra = "codecs" if form == "cbor" else "spark"
        text = f'format={form} needs the package {package}: pip install "afflux[{extra}]" where Spark\'s workers run'
        raise Invalid(text, rule="format")
