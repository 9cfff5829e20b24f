"""Describe one member of the family: everything in which its protocol differs from the others.

A member is a value: its layout, tables, frames, codes, rule numbers, and the functions for its quirks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from afflux.core.errors import Violation
from afflux.core.events import Verb
from afflux.core.limits import Limits
from afflux.core.machine import Table
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


class Opening:
    """How a request of one verb begins on the wire.

    ``frame`` is its class and ``word`` its first flag word; ``verb`` is its verb at the receiver; ``credited`` requests
    carry a first credit. ``later`` is how the fragments after the first begin, None for as the first. A request that is
    not ``cut`` leaves whole, whatever its size. An ``endless`` stream does not complete.
    """

    __slots__ = ("credited", "cut", "endless", "frame", "later", "verb", "word")

    def __init__(
        self,
        frame: Any,
        verb: Verb,
        word: int,
        *,
        credited: bool = False,
        later: tuple[int, bytes] | None = None,
        cut: bool = True,
        endless: bool = False,
    ) -> None:
        self.frame = frame
        self.verb: Verb = verb
        self.word = word
        self.credited = credited
        self.later = later
        self.cut = cut
        self.endless = endless


class Role:
    """The behaviour of a stream's requester, or of its responder: its table, and how items look on the wire.

    ``takes`` is the word of a plain inbound item; ``item`` and ``extra`` begin an outbound item.
    """

    __slots__ = ("extra", "item", "requester", "steps", "table", "takes")

    def __init__(
        self,
        table: Table[StreamState, StreamInput, StreamAction],
        *,
        requester: bool,
        takes: int,
        item: int,
        extra: bytes = b"",
    ) -> None:
        self.table = table
        self.steps = table.steps
        self.requester = requester
        self.takes = takes
        self.item = item
        self.extra = extra


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
        """Return why a server cannot accept a SETUP, or None."""

    @abstractmethod
    def lifetime(self, setup: Any, limits: Limits, client: bool) -> float:
        """Seconds of silence after which this side ends the connection."""

    @abstractmethod
    def extension(self, type: int, body: bytes, stream: int, ignore: bool) -> Any:
        """Build an extension frame.

        Raises:
            LocalProtocolError: the type or the stream is out of range.
        """

    def continues(self, streams: Streams, frame: Any) -> bool:
        """Apply a request frame that continues an incomplete request, and return True; else return False."""
        return False


class Member:
    """The description of one member of the family.

    Args:
        layout: the bytes of its frames.
        frames: the module of its frames.
        codes: the module of its error codes.
        rules: the numbers of its rules.
        tables: the connection tables of client and server.
        roles: what a stream's requester does, and its responder.
        client_parity: 1 when the ids of a client's streams are odd, 0 when they are even.
        openings: the requests, by the application's verb.
        inputs: the connection input of each frame.
        on_zero: the connection input of each frame that belongs on stream 0.
        on_stream: the function for each frame of a stream that is not a request.
        actions: the function for each action of the connection tables.
        first_codes: the code that refuses a first frame that is too large, by its type; INVALID_SETUP for any other.
        closing_code: the code of the ERROR that announces the end of a connection; None if the protocol has none.
        bare_ends: on the wire, a completing item without content is identical to the completion alone.
        quirks: its functions.
    """

    __slots__ = (
        "actions",
        "bare_ends",
        "client",
        "client_parity",
        "closing_code",
        "codes",
        "first_codes",
        "frames",
        "inputs",
        "layout",
        "on_stream",
        "on_zero",
        "openings",
        "quirks",
        "requester",
        "responder",
        "rules",
        "server",
        "verbs",
        "words",
    )

    def __init__(
        self,
        layout: Layout,
        frames: Any,
        codes: Any,
        rules: Rules,
        *,
        tables: tuple[_Table, _Table],
        roles: tuple[Role, Role],
        client_parity: int,
        openings: Mapping[str, Opening],
        inputs: Mapping[type, ConnectionInput],
        on_zero: Mapping[type, ConnectionInput],
        on_stream: Mapping[type, Callable[[Streams, Any], None]],
        actions: Mapping[ConnectionAction, Callable[[Connection, Any], None]],
        first_codes: Mapping[int, int],
        quirks: Quirks,
        closing_code: int | None = None,
        bare_ends: bool = False,
    ) -> None:
        self.layout = layout
        self.frames = frames
        self.codes = codes
        self.rules = rules
        self.client, self.server = tables
        self.requester, self.responder = roles
        self.client_parity = client_parity
        self.openings = openings
        self.verbs = {opening.frame: opening for opening in openings.values()}
        "The requests, by frame class."
        self.inputs = inputs
        self.on_zero = on_zero
        self.on_stream = on_stream
        self.actions = actions
        self.first_codes = first_codes
        self.quirks = quirks
        self.closing_code = closing_code
        self.bare_ends = bare_ends
        items = tuple({role.takes for role in roles})
        self.words = (items, layout.answers, (layout.request, layout.request | layout.metadata))
        "The words of the frames that may take a short path: items, answers, requests without and with metadata."


_Table = Table[ConnectionState, ConnectionInput, ConnectionAction]
