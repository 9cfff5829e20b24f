"""Convert a frame to a record, a log line and an Arrow schema, from its declaration.

The command line, Spark and the tests use the same records.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from afflux.core.errors import MissingExtra, Violation
from afflux.core.fields import Kind
from afflux.core.frame import Frame

if TYPE_CHECKING:
    import pyarrow

    from afflux.core.meanings import Meanings

__all__ = [
    "RECORD_KEYS",
    "PayloadForm",
    "arrow_schema",
    "broken",
    "escaped",
    "line",
    "payload_text",
    "record",
    "record_of",
]

PayloadForm = Literal["none", "hex", "text", "bytes"]
"How metadata and data are shown: not at all, in hexadecimal, as UTF-8 with U+FFFD for invalid bytes, or as they are."

RECORD_KEYS = (
    "ts",
    "conn",
    "dir",
    "protocol",
    "stream",
    "type",
    "flags",
    "n",
    "metadata_len",
    "data_len",
    "code",
    "offset",
    "length",
    "error",
    "fields",
)
"The keys of every record, in order; ``metadata`` and ``data`` follow when they are requested."
_EMPTY: dict[str, Any] = dict.fromkeys(RECORD_KEYS)
_COLUMNS = frozenset(("stream", "n", "code"))
"The fields that have a key of their own; a field of another name is under ``fields``, even if it is called error."
_WHERE = frozenset(("ts", "conn", "dir", "offset", "length"))


def record(frame: Frame, *, flags: int | None = None, payload: PayloadForm = "none", **where: Any) -> dict[str, Any]:
    """Return the frame record. ``where`` may contain ``ts``, ``conn``, ``dir``, ``offset`` and ``length``.

    ``flags`` are the bits received, of which the declared ones are shown; None stands for the bits that the frame
    sends. The default of ``length`` is the frame's size without a prefix. ``metadata_len`` is None without metadata.
    Only the length of a secret is shown, except with ``payload="hex"``.
    """
    bits = frame.flags() if flags is None else flags
    if "length" not in where:
        where["length"] = frame.encoded_size
    row = _row(where, protocol=frame.PROTOCOL, type=frame.NAME)
    row["flags"] = [flag.letter for flag, _ in frame.FLAGS if flag.bit & bits]
    fields: dict[str, Any] = row["fields"]
    shown: dict[str, str | bytes | None] = {}
    for field in frame.FIELDS:
        value = getattr(frame, field.name)
        column = field.kind.column
        if column in ("metadata", "data"):
            row[f"{column}_len"] = None if value is None else len(value)
            if payload != "none":
                shown[column] = None if value is None else payload_text(value, payload)
        elif (column or field.name) in _COLUMNS:
            row[column or field.name] = value
        else:
            fields[field.name] = _field(value, field.kind, payload)
    if payload != "none":
        row |= {"metadata": None, "data": None} | shown
    return row


def record_of(
    source: bytes | Frame,
    decode: Callable[[bytes], Frame],
    glimpse: Callable[[bytes], tuple[str | None, int | None]],
    *,
    protocol: str,
    payload: PayloadForm = "none",
    **where: Any,
) -> dict[str, Any]:
    """Return the frame record of a frame or of its bytes without a length. Bytes that are not a frame do not raise:
    their record has ``error``.

    Args:
        source: the frame, or its bytes.
        decode: reads a frame.
        glimpse: returns the name and the flags of a frame from its first bytes; None if they cannot be read.
        protocol: the protocol's name.
        payload: how metadata and data are shown.
        where: see ``record``.
    """
    if isinstance(source, Frame):
        return record(source, payload=payload, **where)
    where = {"length": len(source)} | where
    name, flags = glimpse(source)
    try:
        decoded = decode(source)
    except Violation as violation:
        return broken(violation, protocol=protocol, type=name, payload=payload, **where)
    return record(decoded, flags=flags, payload=payload, **where)


def broken(
    violation: Violation, *, protocol: str, type: str | None, payload: PayloadForm = "none", **where: Any
) -> dict[str, Any]:
    """Return the record of bytes that are not a frame, with the reason under ``error``."""
    row = _row(where, length=None, protocol=protocol, type=type)
    row["stream"] = violation.stream
    row["error"] = {"rule": violation.rule, "reason": violation.reason}
    if payload != "none":
        row |= {"metadata": None, "data": None}
    return row


def _row(where: dict[str, Any], **known: Any) -> dict[str, Any]:
    if unknown := where.keys() - _WHERE:
        raise TypeError(f"a frame record has no {', '.join(sorted(unknown))}")
    row = _EMPTY.copy()
    row["flags"], row["fields"] = [], {}
    row.update(known)
    for key, value in where.items():
        if value is not None:
            row[key] = value
    return row


def payload_text(value: bytes, payload: PayloadForm) -> str | bytes:
    """Return metadata or data as they are shown in one form, not ``none``."""
    if payload == "bytes":
        return value
    return value.decode("utf-8", "replace") if payload == "text" else value.hex()


def _field(value: Any, kind: Kind, payload: PayloadForm) -> Any:
    if value is None or not isinstance(value, bytes):
        return value
    return f"({len(value)} bytes)" if kind.secret and payload != "hex" else value.hex()


def line(row: dict[str, Any], meanings: Meanings | None = None) -> str:
    """Format a record as one line of text, with control characters escaped. ``meanings`` names its error code."""
    words = [
        row["ts"] or "",
        row["conn"] or "",
        row["dir"] or "",
        f"{row['protocol']}",
        f"stream={row['stream']}",
        row["type"] or "?",
    ]
    if row["flags"]:
        words.append(f"[{''.join(row['flags'])}]")
    keys = ("n", "code", "metadata_len", "data_len", "metadata", "data")
    for key, value in [*((key, row.get(key)) for key in keys), *row["fields"].items()]:
        if value is not None:
            words.append(f"{key}={_word(key, value)}")
            if key == "code" and meanings is not None:
                words.append(meanings.codes.get(value, ""))
    if row["error"]:
        words.append(f"malformed: {row['error']['reason']} ({row['error']['rule']})")
    return escaped(" ".join(word for word in words if word))


def _word(key: str, value: Any) -> str:
    if key == "code":
        return f"0x{value:03X}"
    if isinstance(value, str) and not (value.isprintable() and value and not set(value) & set(' "')):
        return json.dumps(value, ensure_ascii=False)
    return f"{value}"


def escaped(text: str) -> str:
    """Replace control characters, line ends, direction marks and lone surrogates by backslash escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def arrow_schema(frame: type[Frame]) -> pyarrow.Schema:
    """Return the Arrow schema of a frame's fields, with flags. Raises MissingExtra if pyarrow is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra("an Arrow schema", "spark") from None
    return pyarrow.schema(
        pyarrow.field(field.name, pyarrow.type_for_alias(field.kind.arrow), nullable=field.kind.optional)
        for field in frame.LAYOUT
        if field.kind.in_value
    )
