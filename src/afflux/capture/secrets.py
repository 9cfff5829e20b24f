"""Store the secrets of TLS connections, from key logs and from the decryption secrets blocks of pcapng files.

A key log has one secret in a line: ``LABEL CLIENT_RANDOM SECRET``, the last two in hexadecimal. The client random,
which the first bytes of a connection contain, selects its secrets. Other lines are counted. Does not decrypt.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from afflux.capture.errors import CaptureError
from afflux.core.limits import Limits

__all__ = ["LABELS", "Lines", "Secrets", "key_log"]

LABELS = (
    "CLIENT_RANDOM",
    "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    "SERVER_HANDSHAKE_TRAFFIC_SECRET",
    "CLIENT_TRAFFIC_SECRET_0",
    "SERVER_TRAFFIC_SECRET_0",
)
"The secrets that are stored: the master secret of TLS 1.2, and the traffic secrets of TLS 1.3."
_NUMBERS = {label.encode(): number for number, label in enumerate(LABELS)}
_LINE = re.compile(rb"([A-Z][A-Z0-9_]*) ([0-9a-fA-F]{64}) ((?:[0-9a-fA-F]{2}){16,64})")
_LONGEST = 512
"Bytes of a line that are read at once: a secret has at most 64 bytes."
_ENTRY = 512
"Memory of one connection without its secrets, in bytes."


class Lines(Protocol):
    """A file that is read line by line."""

    def readline(self, size: int, /) -> bytes:
        """Return the next line, or its next ``size`` bytes; none at the end."""


class Secrets:
    """The secrets of TLS connections, by client random.

    When they exceed ``capture_secret_bytes`` of memory, the oldest are dropped and counted.

    Args:
        limits: see ``capture_secret_bytes``.
    """

    def __init__(self, limits: Limits) -> None:
        self._most = limits.capture_secret_bytes
        self._found: OrderedDict[bytes, bytes] = OrderedDict()
        self._size = 0
        self.ignored = 0
        "Lines that are not of a key log."
        self.dropped = 0
        "Connections whose secrets were dropped to bound memory."

    def __len__(self) -> int:
        return len(self._found)

    def read(self, file: Lines) -> None:
        """Read a key log to its end, such as a file that SSLKEYLOGFILE names. Raises what ``file`` raises."""
        while line := file.readline(_LONGEST):
            self.line(line)

    def line(self, line: bytes) -> None:
        """Read one line of a key log."""
        line = line.strip()
        if not line or line.startswith(b"#"):
            return
        match = _LINE.fullmatch(line)
        if match is None:
            self.ignored += 1
        elif (number := _NUMBERS.get(match[1])) is not None:
            self._add(bytes.fromhex(match[2].decode()), number, bytes.fromhex(match[3].decode()))

    def find(self, random: bytes) -> dict[str, bytes]:
        """Return the secrets of the connection with this client random, by label; empty if there are none."""
        return {LABELS[number]: secret for number, secret in _unpacked(self._found.get(random, b"")).items()}

    def _add(self, random: bytes, number: int, secret: bytes) -> None:
        before = self._found.pop(random, None)
        if before is not None:
            self._size -= _ENTRY + len(before)
        known = _unpacked(before or b"")
        known[number] = secret
        packed = b"".join(bytes((number, len(secret))) + secret for number, secret in known.items())
        self._found[random] = packed
        self._size += _ENTRY + len(packed)
        while self._size > self._most:
            _, oldest = self._found.popitem(last=False)
            self._size -= _ENTRY + len(oldest)
            self.dropped += 1


def key_log(name: str, limits: Limits) -> Secrets:
    """Read a key log; it may have no secrets yet.

    Args:
        name: the file.
        limits: see ``capture_secret_bytes``.

    Raises:
        OSError: the file cannot be read.
        CaptureError: it has lines, and none of them is of a key log.
    """
    secrets = Secrets(limits)
    with Path(name).open("rb") as file:
        secrets.read(file)
    if secrets.ignored and not secrets:
        raise CaptureError(
            f"{name!r} is not a key log: its lines have a label, a client random and a secret, in hexadecimal"
        )
    return secrets


def _unpacked(packed: bytes) -> dict[int, bytes]:
    found, at = {}, 0
    while at < len(packed):
        end = at + 2 + packed[at + 1]
        found[packed[at]] = packed[at + 2 : end]
        at = end
    return found
