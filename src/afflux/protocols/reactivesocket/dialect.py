"""The ways in which peers differ from the text of 2015, and what they do to the bytes (section 6 of the supplement).

ReactiveSocket is RSocket's ancestor: what its connections and streams do is what RSocket's do, but for its tables, its
frames and some rules. So its engine is RSocket's with other parts put in, and only the parts are here. That is half the
code of an engine of its own, with one place for each limit; nothing that RSocket does for each frame is slower for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from afflux.core.dialect import Switches, Words
from afflux.protocols.reactivesocket.codes import of_wire, text_of
from afflux.protocols.reactivesocket.frames import (
    ErrorFrame,
    ReactiveSocketFrame,
    RequestChannel,
    RequestFnf,
    RequestResponse,
    RequestStream,
    RequestSub,
    Setup,
    decode,
)

__all__ = ["RULES", "Dialect"]

_PLAIN = (RequestResponse, RequestFnf, RequestStream, RequestSub)
_EARLY_LEASE, _EARLY_STRICT = 0x20, 0x10


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(Switches):
    """What to expect of a peer that is not by the text of 2015. Both ends need the same."""

    WORDS: ClassVar[Words] = {
        "java": ("java_compat", True),
        "odd-client": ("client_parity", "odd"),
        "codes-0.1": ("error_codes", "0.1"),
        "fragment-requests": ("fragment_requests", True),
        "sub-complete": ("sub_complete", "pass"),
        "half-close": ("channel_half_close", True),
    }

    java_compat: bool = False
    """The Java implementation: N in every REQUEST_CHANNEL, stray bytes in a bare completion (I-1), early flags of SETUP
    (I-3)."""
    client_parity: Literal["even", "odd"] = "even"
    "The ids of the client's streams; those of 2017 are odd (I-4)."
    error_codes: Literal["2015", "0.1"] = "2015"
    "The numbers of the error codes on the wire (I-5)."
    fragment_requests: bool = False
    "Every request may be fragmented, not only channels (I-6)."
    sub_complete: Literal["error", "pass"] = "error"
    "What becomes of a subscription that the application completes: ERROR[APPLICATION_ERROR], or a completion (I-10)."
    channel_half_close: bool = False
    "The two directions of a channel end each on its own (I-11)."

    @property
    def later_codes(self) -> bool:
        """The error codes are those of later 0.1 texts."""
        return self.error_codes != "2015"

    def decode(self, buffer: bytes, start: int, end: int) -> ReactiveSocketFrame:
        """Read a frame as this peer means it. Raises as ``frames.decode`` does."""
        frame = decode(buffer, start, end)
        if isinstance(frame, _PLAIN):
            frame.follows = frame.follows and self.fragment_requests
        elif isinstance(frame, RequestChannel):
            frame.follows = frame.follows and not frame.complete
            if self.java_compat and frame.complete and frame.initial_n is None and _stray(frame):
                frame.data = b""
        elif isinstance(frame, ErrorFrame):
            frame.code = of_wire(frame.code, self.later_codes)
            frame.data = text_of(frame)
        elif self.java_compat and isinstance(frame, Setup):
            flags = buffer[start + 3]
            frame.lease = frame.lease or flags & _EARLY_LEASE != 0
            frame.strict = frame.strict or flags & _EARLY_STRICT != 0
        return frame

    def encode_setup(self, setup: Setup) -> bytes:
        """SETUP with its length; for Java with the early flags as well."""
        data = bytearray(setup.encode(prefixed=True))
        if self.java_compat:
            data[7] |= _EARLY_LEASE * setup.lease | _EARLY_STRICT * setup.strict
        return bytes(data)

    def complete_channel(self, stream: int) -> bytes:
        """The end of a channel's outbound half, its length included; for Java with an N of 0."""
        first = 0 if self.java_compat else None
        return RequestChannel(stream=stream, initial_n=first, complete=True).encode(prefixed=True)


def _stray(frame: RequestChannel) -> bool:
    return frame.metadata is None and len(frame.data) == 4


RULES = {
    "R-5": "R-9",
    "R-11": "R-15",
    "R-13": "R-16",
    "R-14": "R-15",
    "R-20": "3.1",
    "R-22": "3.1",
    "R-23": "R-28",
    "R-24": "3.3",
    "R-27": "R-39",
    "R-31": "R-36",
    "R-32": "R-36",
    "R-34": "R-43",
    "R-41": "R-46",
    "D-5": "D-7",
    "D-12": "R-12",
    "D-13": "R-8",
}
"""What this specification calls the rules that RSocket's engine names. None of its own names that this package uses is
on the left: a rule is never renamed twice."""
