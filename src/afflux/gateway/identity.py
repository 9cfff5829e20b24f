"""Identify the stream of a relay's journal, and say in which way another one differs.

The key of a journal is what its relay was asked for, as JSON: the verb, the route, the data of the request, and how
items are distributed to shards. The address, and metadata, which may have credentials, are not in
it: they may change, and the address is in the mark (ledger.py). A long value is replaced by its hash.
Earlier versions had the hash of everything, from which no difference can be read.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from afflux.journal.errors import AnotherStream

__all__ = ["Identity"]

_LONGEST: Final = 100
"Bytes of a value that is stored as it is. The description of a JetStream stream has 4 KiB for the hexadecimal key."
_WORDS: Final = {
    "verb": "verb",
    "route": "route",
    "data": "data of the request",
    "key": "key",
    "shards": "number of shards",
    "shard": "number of the shard",
}
_FORMER_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a relay was asked for, as far as it decides which items one of its journals has."""

    verb: str | None
    route: str | None
    data: bytes
    key: str | None
    "The JSON pointer by which items are distributed; None if each stream is a shard."
    shards: int
    shard: int

    @property
    def stored(self) -> bytes:
        """The key of the journal."""
        return json.dumps({"afflux": 1, **self._values()}, separators=(",", ":")).encode()

    @property
    def former(self) -> bytes:
        """The key that earlier versions gave the same journal."""
        parts = [self.verb, self.route, self.data.hex(), self.key, self.shards, self.shard]
        return hashlib.sha256(json.dumps(parts).encode()).digest()

    def refused(self, error: AnotherStream) -> AnotherStream:
        """Return the error with the differences: what was and what is."""
        return type(error)(error.path, f"{error.reason} ({self._differences(error.stored)})", error.stored)

    def _values(self) -> dict[str, Any]:
        texts = {"route": self.route, "key": self.key}
        return asdict(self) | {name: _value(text) for name, text in texts.items()} | {"data": _value(self.data)}

    def _differences(self, stored: bytes) -> str:
        try:
            was = dict(json.loads(stored)) if len(stored) != _FORMER_BYTES else {}
        except (ValueError, TypeError, RecursionError):
            was = {}
        values = self._values()
        if not was.keys() >= values.keys():
            return "it was made by another program or an earlier afflux, which did not store the route and the data"
        found = [
            f"the {word} was {_shown(was[name])}, and is {_shown(values[name])} now"
            for name, word in _WORDS.items()
            if was[name] != values[name]
        ]
        return "; ".join(found) or "only a newer afflux can read the difference"


def _value(value: str | bytes | None) -> Any:
    """Return what JSON has for a value: two values never have the same."""
    if value is None or (isinstance(value, str) and len(value) <= _LONGEST):
        return value
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    if len(data) > _LONGEST:
        return {"sha256": hashlib.sha256(data).hexdigest()}
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a value with the " + ", ".join(f"{name} {text}" for name, text in value.items())
    return "not given" if value is None else repr(value)
