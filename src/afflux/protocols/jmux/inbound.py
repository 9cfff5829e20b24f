"""Parse received bytes into messages. connection.py and the modules of the two roles apply them.

A connection header is judged at its first wrong byte (R-3, D-1), a message by its four header bytes, before its data
has arrived (R-9, R-10, R-11), so refused data is never awaited. Parsing never waits for an application (R-40).
"""

from __future__ import annotations

from collections.abc import Callable

from afflux.core.alike import MANY, alike
from afflux.core.buffer import ReceiveBuffer
from afflux.core.errors import Violation
from afflux.protocols.jmux import frames
from afflux.protocols.jmux.client import ClientMessages
from afflux.protocols.jmux.errors import violation
from afflux.protocols.jmux.server import ServerMessages
from afflux.protocols.jmux.shared import Shared
from afflux.protocols.jmux.states import ConnectionInput, ConnectionState, SessionInput, inputs_from

__all__ = ["Inbound"]

_LARGEST = 4 + 0xFFFF
_HEADER, _BAD_HEADER = ConnectionInput.HEADER, ConnectionInput.BAD_HEADER
_PINGS = (ConnectionInput.PING, ConnectionInput.PING_ACK)
_WITHOUT_VALUE = (SessionInput.CLOSE, SessionInput.ACKNOWLEDGMENT)
_WITHOUT_DATA = (*_WITHOUT_VALUE, SessionInput.INCREMENT)
_DATA = SessionInput.DATA
_BEFORE = (ConnectionState.START, ConnectionState.WAIT_HEADER, ConnectionState.LEAVING)
_OVER = (ConnectionState.CLOSED, ConnectionState.HALF_CLOSED)
"The connection, or the peer's half, has ended: what still arrives is dropped."

Treat = Callable[[ConnectionInput, int, bytes], None]


def _nothing(input: ConnectionInput, value: int, data: bytes) -> None:
    """Replace the callback after the end."""


class Inbound:
    """Buffer and parse received bytes.

    ``treat(input, value, data)`` is the connection's: it gets the header and messages about no session.
    """

    __slots__ = ("_from_client", "_inputs", "_last_id", "_messages", "_shared", "_treat", "buffer", "incomplete_since")

    def __init__(
        self,
        shared: Shared,
        messages: ClientMessages | ServerMessages,
        treat: Treat,
        largest_id: int,
        lenient_partial: bool,
    ) -> None:
        from_client = isinstance(messages, ServerMessages)
        self._shared = shared
        self.buffer = ReceiveBuffer(2 * _LARGEST)
        "Bytes that are not yet a whole message."
        self._from_client = from_client
        self._inputs = inputs_from(from_client, lenient_partial)
        self._messages = messages
        self._treat = treat
        self._last_id = largest_id
        self.incomplete_since: float | None = None
        "When the unfinished message at the end began to arrive."

    def close(self) -> None:
        """Drop all further input."""
        self._treat = _nothing  # its owner has this object: it must be freed without the garbage collector
        self.incomplete_since = None
        self.buffer.clear()

    def hold(self, now: float) -> None:
        """Restart the timeout of an unfinished message: this side did not read until ``now``."""
        if self.incomplete_since is not None:
            self.incomplete_since = now

    def receive(self, data: bytes | memoryview, now: float) -> None:
        """Buffer received bytes and apply every message that is complete.

        Raises:
            Violation: the peer broke a rule; earlier messages have been applied.
        """
        block = self.buffer.feed(data)
        if block is None:
            return
        position, need = self._parse(block)
        if self._shared.state in _OVER:
            return
        if position == len(block):
            self.incomplete_since = None
            return
        self.buffer.keep(block, position, need)
        if position or self.incomplete_since is None:
            self.incomplete_since = now

    def _parse(self, block: bytes) -> tuple[int, int]:
        """Apply whole messages. Return where they end, and how many bytes the next one has."""
        position = 0
        shared = self._shared
        if shared.state in _BEFORE:
            position = self._header(block)
            if not position:
                return 0, len(block) + 1
        end, unpack, inputs = len(block), frames.UNPACK, self._inputs
        messages = self._messages
        while end - position >= 4 and shared.state not in _OVER:
            first, id, value = unpack(block, position)
            input = inputs[first]
            if isinstance(input, SessionInput):
                self._check_session(input, id, value)
                step = messages.judge(input, id, first, value)
                stop = position + 4 if input in _WITHOUT_DATA else position + 4 + value
                if stop > end:
                    return position, stop - position
                data = block[position + 4 : stop]
                if input is _DATA and end - stop >= MANY * (4 + value) and (more := messages.alike(step, id, value)):
                    count = alike(block, position, end, 4 + value, more, 4)
                    if count:  # consecutive fragments of one session: one step
                        stop = position + count * (4 + value)
                        data = b"".join([block[at + 4 : at + 4 + value] for at in range(position, stop, 4 + value)])
                messages.act(step, id, first, value, data)
            elif isinstance(input, tuple):
                raise violation(input[1], input[0])
            else:
                if id:
                    raise violation(f"{input.name}: byte 1 is 0x{id:02X}, not 0", "R-10")
                stop = position + 4 if input in _PINGS else position + 4 + value
                if stop > end:
                    return position, stop - position
                self._treat(input, value, block[position + 4 : stop])
            position = stop
        return position, 4

    def _header(self, block: bytes) -> int:
        """Judge the received part of the connection header. Return its length, or 0 while it is incomplete."""
        if wrong := frames.wrong_header(block[: frames.HEADER_BYTES], self._from_client):
            self._treat(_BAD_HEADER, 0, wrong.encode())  # it raises
        elif len(block) >= frames.HEADER_BYTES:
            self._treat(_HEADER, int.from_bytes(block[5:7], "big") * frames.STEPS_256, block[: frames.HEADER_BYTES])
            return frames.HEADER_BYTES
        return 0

    def _check_session(self, input: SessionInput, id: int, value: int) -> None:
        if id > self._last_id:
            raise violation(f"session {id}: the last is {self._last_id}", "R-11")
        if value and input in _WITHOUT_VALUE:
            raise violation(f"{input.name} of session {id}: bytes 2 and 3 are 0x{value:04X}, not 0", "R-10")

    def late(self, now: float, seconds: float) -> Violation | None:
        """Return the violation of a message that has been incomplete for too long (FR-05)."""
        since = self.incomplete_since
        if since is None or now < since + seconds:
            return None
        return violation("frame-timeout", "frame_s")
