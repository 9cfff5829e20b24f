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

    ``frame`` is its class and ``word`` its first word; ``verb`` is what it is where it arrives; ``credited`` requests
    have a first credit. ``later`` is how the fragments behind the first begin, None for as the first. A request that is
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
    """What a stream's requester, or its responder, does: its table, and how items look on the wire.

    ``takes`` is the word of a plain item that comes, ``item`` and ``extra`` begin an item that goes.
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
    """The functions of a member. Each member derives its own from this class, which has what most of them share."""

    __slots__ = ()

    LEAST_EXTENSION: ClassVar[int] = 0
    "The lowest type of an extension."

    @abstractmethod
    def decode(self, block: bytes, start: int, end: int) -> Any:
        """Read a frame, as this peer means it. Raises as ``frames.decode`` does."""

    @abstractmethod
    def classify(self, connection: Connection, frame: Any) -> ConnectionInput:
        """What a frame is to the connection whose class alone does not decide it."""

    @abstractmethod
    def malformed(self, connection: Connection, block: bytes, start: int, violation: Violation) -> None:
        """A frame cannot be read: charge it, or raise."""

    def encode_setup(self, setup: Any) -> bytes:
        """The first frame of a client, its length included."""
        encoded: bytes = setup.encode(prefixed=True)
        return encoded

    @abstractmethod
    def error(self, stream: int, code: int, text: bytes) -> bytes:
        """An ERROR frame, its length included."""

    @abstractmethod
    def completion(self, stream: Stream) -> bytes:
        """The frame by which this side completes its half of a stream, its length included."""

    @abstractmethod
    def keepalive(self, respond: bool, position: int, data: bytes) -> bytes:
        """A KEEPALIVE frame, its length included."""

    @abstractmethod
    def proposal(self, setup: Any, limits: Limits) -> Any:
        """What a client proposes; the default when ``setup`` is None.

        Raises:
            LocalProtocolError: no server accepts it.
        """

    @abstractmethod
    def refusal(self, connection: Connection, setup: Any) -> Violation | None:
        """Why a server cannot accept a SETUP, or None."""

    @abstractmethod
    def lifetime(self, setup: Any, limits: Limits, client: bool) -> float:
        """Seconds of silence after which the peer is given up."""

    @abstractmethod
    def extension(self, type: int, body: bytes, stream: int, ignore: bool) -> Any:
        """A frame of an extension.

        Raises:
            LocalProtocolError: the type or the stream is out of range.
        """

    def continues(self, streams: Streams, frame: Any) -> bool:
        """Whether a request frame continues a request that came in part; it is applied then."""
        return False


class Member:
    """One member of the family.

    Args:
        layout: the bytes of its frames.
        frames: the module of its frames.
        codes: the module of its error codes.
        rules: the numbers of its rules.
        tables: the connection tables of client and server.
        roles: what a stream's requester does, and its responder.
        client_parity: 1 when the ids of a client's streams are odd, 0 when they are even.
        openings: the requests, by the verb that the application uses.
        inputs: what each frame is to the connection.
        on_zero: the same of the frames that belong on stream 0.
        on_stream: the function for each frame of a stream that is not a request.
        actions: the function for each action of the connection tables.
        first_codes: the code that refuses a first frame that is too large, by its type; any other gets INVALID_SETUP.
        closing_code: the code of the ERROR that announces the end of a connection; None: nothing announces it.
        bare_ends: an item without content that completes its stream cannot be told from the completion alone.
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
        "The requests, by the class of their frame."
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
