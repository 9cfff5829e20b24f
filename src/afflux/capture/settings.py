"""Hold how the connections of a capture are decoded, and what they share: the budget, and what a batch brings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from afflux.capture.secrets import Secrets
from afflux.capture.sides import Side
from afflux.capture.talk import Talk
from afflux.core.dissect import PayloadForm
from afflux.core.dissector import Record
from afflux.core.entry import ProtocolEntry
from afflux.core.limits import Limits
from afflux.core.recognition import LOOK, Recognition, recognize

if TYPE_CHECKING:
    from afflux.capture.conversation import Conversation

__all__ = ["EXAMINED", "HEADS", "OTHERS", "UNDECODED", "Content", "Event", "Found", "Settings"]

HEADS: Final = frozenset(head[:size] for head in (b"\x16\x03\x01", b"GET ") for size in range(1, len(head) + 1))
"What may be the beginning of a side that is no frame: of TLS, or of the upgrade to WebSocket."
OTHERS: Final = frozenset(head[0] for head in HEADS)
"How they begin."
EXAMINED: Final = LOOK + 8
"Bytes that recognition looks at: those of a first frame, and its length."
_MOST_KINDS: Final = 64
"Kinds of connections that are counted apart: names in TLS come from outside."
_MOST_OPENED: Final = 1_024
"Conversations that are kept for whoever names them."
_MOST_NAMED: Final = 64
"Conversations that cannot be decoded and are kept until the caller takes them."
_BEGINNINGS: Final = 256
"Beginnings of connections whose recognition is remembered: the clients of a service begin alike."


class Content(StrEnum):
    """The content of a connection."""

    FRAMES = "frames"
    WEBSOCKET = "frames in WebSocket"
    ENCRYPTED = "encrypted"
    OTHER = "not ours"
    AMBIGUOUS = "ambiguous"
    MID_STREAM = "mid-stream, not decoded"
    EMPTY = "no data"


UNDECODED: Final = {
    Content.ENCRYPTED: ("encrypted", "decrypt it with --keylog FILE, the file that SSLKEYLOGFILE names"),
    Content.MID_STREAM: ("undecoded", "start the capture before the connection opens, and without a snap length"),
    Content.AMBIGUOUS: ("undecoded", "name the protocol with -d PORT=NAME"),
}
"The rule of connections that cannot be decoded, and what would have been right."


@dataclass(slots=True)
class Settings:
    """How connections are decoded, and the budget that all of them share."""

    entries: Sequence[ProtocolEntry]
    "The protocols that are recognized."
    ports: Mapping[int, ProtocolEntry]
    "The protocol of a server's port: used without recognition."
    payload: PayloadForm
    "How metadata and data are shown."
    limits: Limits
    "See ``first_frame_bytes``, ``frame_bytes`` and ``capture_bytes``."
    secrets: Secrets | None = None
    "The secrets that decrypt TLS; None or empty: nothing is decrypted."
    found: list[Found] = field(default_factory=list)
    "The frames of the current batch."
    buffered: int = 0
    "Bytes of incomplete frames, of all connections."
    tally: Counter[str] = field(default_factory=Counter)
    "How many connections have each content, in words."
    kept: int = 0
    "Bytes of payloads that the records of the current batch have."
    batch: int = 0
    "Batches whose frames were taken."
    later: list[Event] | None = None
    "The events that the caller handles at the end of the batch, in order; None if they are handled at once."
    opened: list[Conversation] | None = None
    "Takes the conversations with frames that are recognized, up to 1,024; None: they are not kept."
    undecoded: list[Conversation] | None = None
    "Takes the conversations that cannot be decoded, up to 64; None: they are not kept."
    recognized: dict[tuple[bytes, bool], Recognition] = field(default_factory=dict)
    "What beginnings of connections were recognized as."

    def recognize(self, data: bytes, client: bool) -> Recognition:
        """Return what one side of a connection begins with; see ``recognition.recognize``."""
        key = (data[:EXAMINED], client)
        found = self.recognized.get(key)
        if found is None:
            if len(self.recognized) >= _BEGINNINGS:
                self.recognized.clear()
            found = self.recognized[key] = recognize(self.entries, key[0], client=client)
        return found

    def taken(self) -> list[Found]:
        """Return the frames of the current batch; the next one begins."""
        found, self.found = self.found, []
        self.batch += 1
        self.kept = 0
        return found

    def keep(self, made: Record) -> None:
        """Leave the payload out of a record if those of the batch have more than ``capture_bytes``: a few bytes of a
        compressed message may become many."""
        size = len(made["metadata"] or b"") + len(made["data"] or b"")
        if self.kept + size > self.limits.capture_bytes:
            made["metadata"] = made["data"] = None
        else:
            self.kept += size

    def count(self, conversation: Conversation) -> None:
        """Count a conversation whose content is known now."""
        if conversation.protocol is not None and self.opened is not None and len(self.opened) < _MOST_OPENED:
            self.opened.append(conversation)
        if conversation.content in UNDECODED and self.undecoded is not None and len(self.undecoded) < _MOST_NAMED:
            self.undecoded.append(conversation)
        self.counted(conversation.text, conversation.content)

    def counted(self, text: str, content: Content, number: int = 1) -> None:
        """Count connections with a content; ``text`` is the content in words."""
        known = text in self.tally or len(self.tally) < _MOST_KINDS
        self.tally[text if known else content.value] += number


Found = tuple[int, Talk, Record]
"The packet that completed a frame, the conversation, and the frame's record."


class Event(NamedTuple):
    """What a direction with frames brings."""

    conversation: Conversation
    rising: bool
    side: Side
    data: bytes | int | str | None
    "The next bytes, the number of bytes that are missing, why the rest cannot be decrypted, or None for the end."
    start: int
    "The position of the bytes, for ``ends``; of missing bytes ``Counts.kept``."
    ends: Sequence[int]
    "See ``flows.Consumer``; one 0 for bytes of one packet."
    packets: Sequence[int]
    "See ``flows.Consumer``."
