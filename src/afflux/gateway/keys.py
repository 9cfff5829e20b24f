"""Choose the shard of an item by a value inside of it: a JSON pointer (RFC 6901)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from zlib import crc32

__all__ = ["ShardOf", "shard_by"]

ShardOf = Callable[[bytes], int]
"Returns the shard of an item with this data."


def shard_by(pointer: str, shards: int) -> ShardOf:
    """Return the function that maps data to one of ``shards``: CRC-32 of the value, modulo ``shards``.

    The value is the text of a JSON string, or any other JSON value without spaces and with sorted keys. An item that is
    not JSON, or has no such value, belongs to shard 0.

    Raises:
        ValueError: ``pointer`` is not a JSON pointer.
    """
    if not pointer.startswith("/"):
        raise ValueError(f'invalid key {pointer!r}: expected a JSON pointer, such as "/carrier"')
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]

    def shard_of(data: bytes) -> int:
        try:
            value: Any = json.loads(data)
            for step in steps:
                value = value[int(step)] if isinstance(value, list) else value[step]
        except (ValueError, LookupError, TypeError, RecursionError):
            return 0
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
        return crc32(text.encode("utf-8", "surrogatepass")) % shards

    return shard_of
