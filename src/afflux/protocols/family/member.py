"""Describe one member of the family: everything in which its protocol differs from the others.

A member is a value: its layout, tables, frames, codes, rule numbers, and the functions for its quirks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from afflux.core.errors import Violation
from afflux.core.events import Verb
from afflux.core.limits import Limits
from afflux.core.machine import Step, Table
from afflux.protocols.family.handshake import lifetime_of
from afflux.protocols.family.layout import Layout
from afflux.protocols.family.rules import Rules
from afflux.protocols.family.states import (
    ConnectionAction,
    ConnectionInput,
    ConnectionState,
    StreamAction,
    StreamInput,
    StreamState,
)

if TYPE_CHECKING:
    from afflux.protocols.family.connection import Connection
    from afflux.protocols.family.stream import Stream
    from afflux.protocols.family.streams import Streams

__all__ = ["Member", "Opening", "Quirks", "Role"]


@dataclass(frozen=True, slots=True)
class Opening:
    """How a request of one verb begins on the wire."""

    frame: Any
    "The class of its frame."
    verb: Verb
    "Its verb at the receiver."
    word: int
    "Its first flag word."
    credited: bool = False
    "It carries a first credit."
    later: tuple[int, bytes] | None = None
    "How the fragments after the first begin; None for as the first."
    cut: bool = True
    "It is split when it is large; otherwise it leaves whole, whatever its size."
    endless: bool = False
    "The stream does not complete."


@dataclass(slots=True)
class Role:
    """The behaviour of a stream's requester, or of its responder: its table, and how items look on the wire."""

    table: Table[StreamState, StreamInput, StreamAction]
    requester: bool
    takes: int
    "The word of a plain inbound item."
    item: int
    "The word of an outbound item, which ``extra`` follows."
    extra: bytes = b""
    steps: tuple[tuple[Step[StreamState, StreamAction], ...], ...] = field(init=False)
    "The cells of the table."

    def __post_init__(self) -> None:
        self.steps = self.table.steps


class Quirks(ABC):
    """The functions of a member. Each member derives its own from this class, which implements those that most
    share."""

    __slots__ = ()

    LEAST_EXTENSION: ClassVar[int] = 0
    "The lowest type of an extension."

    @abstractmethod
    def decode(self, block: bytes, start: int, end: int) -> Any:
        """Decode a frame as this peer encodes it. Raises like ``frames.decode``."""

    @abstractmethod
    def classify(self, connection: Connection, frame: Any) -> ConnectionInput:
        """Return the input of a frame whose class alone does not determine it."""

    @abstractmethod
    def malformed(self, connection: Connection, block: bytes, start: int, violation: Violation) -> None:
        """Charge a frame that cannot be decoded, or raise."""

    def encode_setup(self, setup: Any) -> bytes:
        """Encode the first frame of a client, its length included."""
        encoded: bytes = setup.encode(prefixed=True)
        return encoded

    @abstractmethod
    def error(self, stream: int, code: int, text: bytes) -> bytes:
        """Encode an ERROR frame, its length included."""

    @abstractmethod
    def completion(self, stream: Stream) -> bytes:
        """Encode the frame that completes this side's half of a stream, its length included."""

    @abstractmethod
    def keepalive(self, respond: bool, position: int, data: bytes) -> bytes:
        """Encode a KEEPALIVE frame, its length included."""

    @abstractmethod
    def proposal(self, setup: Any, limits: Limits) -> Any:
        """Return the SETUP of a client; the default when ``setup`` is None.

        Raises:
            LocalProtocolError: servers would refuse it.
        """

    @abstractmethod
    def refusal(self, connection: Connection, setup: Any) -> Violation | None:
        """Return why a server cannot accept a SETUP by the rules of this member alone, or None."""

    def lifetime(self, setup: Any, limits: Limits, client: bool) -> float:
        """Seconds of silence after which this side ends the connection."""
        return float(setup.lifetime_ms / 1000) if client else lifetime_of(setup, limits)

    @abstractmethod
    def extension(self, type: int, body: bytes, stream: int, ignore: bool) -> Any:
        """Build an extension frame.

        Raises:
            LocalProtocolError, Violation: the type or the stream is out of range.
        """

    def continues(self, streams: Streams, frame: Any) -> bool:
        """Apply a request frame that continues an incomplete request, and return True; else return False."""
        return False


@dataclass(slots=True, kw_only=True)
class Member:
    """The description of one member of the family."""

    layout: Layout
    "The bytes of its frames."
    frames: Any
    "The module of its frames."
    codes: Any
    "The module of its error codes."
    rules: Rules
    "The numbers of its rules."
    client: _Table
    "The connection table of a client."
    server: _Table
    "The connection table of a server."
    requester: Role
    responder: Role
    client_parity: int
    "1 when the ids of a client's streams are odd, 0 when they are even."
    openings: Mapping[str, Opening]
    "The requests, by the application's verb."
    inputs: Mapping[type, ConnectionInput]
    "The connection input of each frame."
    on_zero: Mapping[type, ConnectionInput]
    "The connection input of each frame that belongs on stream 0."
    on_stream: Mapping[type, Callable[[Streams, Any], None]]
    "The function for each frame of a stream that is not a request."
    actions: Mapping[ConnectionAction, Callable[[Connection, Any], None]]
    "The function for each action of the connection tables."
    first_codes: Mapping[int, int]
    "The code that refuses a first frame that is too large, by its type; INVALID_SETUP for any other."
    quirks: Quirks
    "Its functions."
    closing_code: int | None = None
    "The code of the ERROR that announces the end of a connection; None if the protocol has none."
    bare_ends: bool = False
    "On the wire, a completing item without content is identical to the completion alone."
    plain_ends: bool = True
    "A completing frame with data is an item; False where a bare completion may have stray bytes."
    verbs: dict[Any, Opening] = field(init=False)
    "The requests, by frame class."
    parsing: _Parsing = field(init=False)
    """The values that loops over frames read, as one tuple: those of the layout, the words of answers and of requests,
    the flags metadata and complete, and the word of REQUEST_N."""
    asking: _Asking = field(init=False)
    """Further values for requests: the role of their streams, the highest stream id, the words without and with
    metadata, and the function that reads a header with metadata."""

    def __post_init__(self) -> None:
        layout = self.layout
        self.verbs = {opening.frame: opening for opening in self.openings.values()}
        requests = (layout.request, layout.request | layout.metadata)
        self.parsing = (*layout.parsing, layout.answers, requests, layout.metadata, layout.complete, layout.grant)
        self.asking = (self.responder, layout.last_id, *requests, layout.marked.unpack_from)


_Table = Table[ConnectionState, ConnectionInput, ConnectionAction]
_Parsing = tuple[Callable[..., Any], int, int, int, bool, tuple[int, ...], tuple[int, int], int, int, int]
_Asking = tuple[Role, int, int, int, Callable[..., Any]]
