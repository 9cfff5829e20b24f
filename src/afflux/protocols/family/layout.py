"""Describe how a member of the family lays out its frames: the length, the header, the flag words, the metadata.

The hot paths of inbound.py and outbound.py read these numbers into locals. Streams and states are elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Literal, Protocol

from afflux.core.cut import SMALL
from afflux.core.payload import Payload, PayloadLike

__all__ = ["COPY_BELOW", "Layout", "Prelude"]

COPY_BELOW = SMALL
"Joining header and data immediately is cheaper below this size; above it the copy costs more than the object."


class Prelude(Protocol):
    """Encodes payloads of a class of the protocol's own, with bytes between header and payload."""

    def encode(self, payload: Payload, request: bool) -> tuple[int, bytes]:
        """Return the flags of the first frame of any payload, and the bytes between its header and the payload."""

    def queue(self, outbound: Any, stream: int, role: Any, payloads: Sequence[PayloadLike], last: int) -> bool:
        """Queue a list of items, with the arguments of ``Outbound.run``, if some are of the class; otherwise return
        False."""

    def batch(
        self, outbound: Any, streams: Sequence[int], word: int, payloads: Sequence[Payload], opening: Any
    ) -> bool:
        """The same for one payload for each of several streams: requests, or without ``opening`` answers."""


class Layout:
    """The bytes of a frame, as far as members differ.

    Args:
        header: the length in two halves, then the stream id and the word of type and flags, in the order of ``order``.
        prefix: bytes of the length.
        inclusive: whether lengths (of a frame, of metadata) count their own bytes.
        order: which of stream id and word comes first.
        shift: how far the type is shifted left in the word; with 16, the upper 16 bits contain the type.
        reserved: a bit of the length that receivers ignore; 0 for none.
        last_id: the highest stream id.
        metadata: bytes of the metadata length.
        flags: metadata, follows and complete, as bits of the word.
        request: the type of REQUEST_RESPONSE.
        grant: the type of REQUEST_N.
        answers: the words of a whole answer to a request. This side sends the first.
        prelude: encodes payloads of a class of the protocol's own; None if it has none.
    """

    __slots__ = (
        "answers",
        "complete",
        "follows",
        "grant",
        "header",
        "id_first",
        "last_id",
        "least",
        "marked",
        "metadata",
        "metadata_counts",
        "metadata_size",
        "own",
        "parsing",
        "prefix",
        "prelude",
        "request",
        "reserved",
        "shift",
        "size",
    )

    def __init__(
        self,
        header: Struct,
        *,
        prefix: int,
        inclusive: bool,
        order: Literal["id", "word"],
        shift: int,
        metadata: int,
        flags: tuple[int, int, int],
        request: int,
        grant: int,
        answers: tuple[int, ...],
        reserved: int = 0,
        last_id: int = 0x7FFFFFFF,
        prelude: Prelude | None = None,
    ) -> None:
        self.header = header
        self.size = header.size
        "Bytes of the header, the length included."
        self.prefix = prefix
        self.own = 0 if inclusive else prefix
        "Bytes of a frame that its length excludes."
        self.least = self.size - self.own
        "The minimum value of a length."
        self.id_first = order == "id"
        self.shift = shift
        self.reserved = reserved
        self.last_id = last_id
        self.metadata_size = metadata
        self.marked = Struct(header.format + ("HH" if metadata == 4 else "BH"))
        "The header, and the metadata length in two parts, the lower of 16 bits."
        self.metadata_counts = metadata if inclusive else 0
        "Bytes that the metadata length counts in addition to the metadata."
        self.metadata, self.follows, self.complete = flags
        self.request = request << shift
        "The word of a REQUEST_RESPONSE without flags."
        self.grant = grant << shift
        "The word of a REQUEST_N without flags."
        self.answers = answers
        self.prelude = prelude
        self.parsing = (header.unpack_from, self.size, self.own, self.least, self.id_first)
        "The values that loops over frames read, as one tuple."

    @property
    def typed(self) -> int:
        """Bytes of a frame up to and including its type."""
        return self.prefix + (6 if self.id_first else 2)

    def length_of(self, block: bytes, position: int) -> int:
        """The length of the frame at ``position``, in this layout's own count."""
        length = int.from_bytes(block[position : position + self.prefix], "big")
        return length & ~self.reserved

    def type_of(self, block: bytes, position: int) -> int:
        """The type of the frame at ``position``, of which at least ``typed`` bytes have arrived."""
        at = position + self.typed - 2
        return int.from_bytes(block[at : at + 2], "big") >> self.shift % 16

    def head(self, stream: int, word: int, extra: bytes, metadata: bytes | None, size: int) -> bytes:
        """Encode a frame of ``size`` bytes up to its data."""
        length = size - self.own
        if metadata is not None:
            word |= self.metadata
        first, second = (stream, word) if self.id_first else (word, stream)
        head: bytes = self.header.pack(length >> 16, length & 0xFFFF, first, second) + extra
        if metadata is None:
            return head
        counted = len(metadata) + self.metadata_counts
        return head + counted.to_bytes(self.metadata_size, "big") + metadata

    def credit(self, stream: int, n: int) -> bytes:
        """Encode a REQUEST_N for ``n`` items, 1 to 2^31-1."""
        return self.head(stream, self.grant, n.to_bytes(4, "big"), None, self.size + 4)

    def is_grant(self, frame: bytes) -> bool:
        """Whether a whole frame is REQUEST_N."""
        return self.type_of(frame, 0) == self.grant >> self.shift
