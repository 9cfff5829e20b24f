"""Describe payloads as JSON values: a payload that contains JSON is that value, any other is an object.

UTF-8 becomes text; other bytes are hexadecimal, under a name that ends in ``_hex``. Declared types come first: data of
a JSON type is JSON, data of another type is not. Data of an unknown type is JSON if it is an object or an array; a bare
``42`` or ``true`` is as likely to be text.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from afflux.core.errors import Invalid
from afflux.core.payload import Payload

__all__ = ["Unwrapper", "is_json", "record", "value_of"]

OCTETS = "application/octet-stream"


def record(payload: Payload) -> dict[str, Any]:
    """Return the payload as a JSON object: ``data`` and ``metadata``, or ``data_hex`` and ``metadata_hex``."""
    made = _named("data", payload.data)
    if payload.metadata is not None:
        made |= _named("metadata", payload.metadata)
    return made


def _named(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": value.hex()}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def is_json(mime: str) -> bool:
    """Whether a MIME type names JSON: ``application/json``, ``text/json``, or a type that ends in ``+json``."""
    base = mime.partition(";")[0].strip().lower()
    return base in ("application/json", "text/json") or base.endswith("+json")


class Unwrapper:
    """Describe the payloads of one answer.

    Args:
        data_mime: the MIME type of the connection's data; None if it is unknown.
        metadata_mime: that of its metadata; composite if None.
    """

    def __init__(self, data_mime: str | None = None, metadata_mime: str | None = None) -> None:
        self._data_mime = data_mime
        self._metadata_mime = metadata_mime

    def line(self, payload: Payload) -> str:
        """Return the payload as JSON in one line. The text of a JSON payload is unchanged, apart from line breaks."""
        value, metadata = self._json(payload)
        if value is None:
            return _compact(record(payload))
        text = " ".join(value.split("\n")).replace("\r", " ").strip()
        if metadata is None:
            return text
        return f'{{"data":{text},{_compact(_named("metadata", metadata))[1:]}'

    def document(self, payload: Payload) -> str:
        """Return the payload as indented JSON."""
        value, metadata = self._json(payload)
        if value is None:
            return json.dumps(record(payload), ensure_ascii=False, indent=2)
        found = json.loads(value)
        if metadata is not None:
            found = {"data": found} | _named("metadata", metadata)
        return json.dumps(found, ensure_ascii=False, indent=2)

    def _json(self, payload: Payload) -> tuple[str | None, bytes | None]:
        """Return the text of a JSON payload, and its metadata unless that only names the type; None for others."""
        mime, only_type = _type_of(payload.metadata, self._metadata_mime) if payload.metadata else (None, False)
        mime = mime or self._data_mime
        declared = mime is not None and is_json(mime)
        if mime is not None and mime != OCTETS and not declared:
            return None, None
        if not declared and payload.data.lstrip()[:1] not in (b"{", b"["):
            return None, None
        text = _valid(payload.data)
        return text, None if only_type else payload.metadata


def value_of(data: bytes) -> Any:
    """Return the value of JSON data.

    Raises:
        ValueError: the data is not JSON, or has numbers that JSON cannot represent.
    """
    try:
        value = json.loads(data.decode(), parse_constant=_refuse)
        json.dumps(value, allow_nan=False)
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None
    return value


def _valid(data: bytes) -> str | None:
    try:
        value_of(data)
    except ValueError:
        return None
    return data.decode()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


@lru_cache(maxsize=64)
def _type_of(metadata: bytes, metadata_mime: str | None) -> tuple[str | None, bool]:
    """Return the data type that metadata names, and whether it names nothing else."""
    from afflux.calls import entries

    try:
        found = entries(metadata, metadata_mime)
        mime = found.mime_type
        return mime, mime is not None and len(list(found)) == 1
    except Invalid:
        return None, False
