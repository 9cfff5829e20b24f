"""Convert frames for peers that differ from the text of 2015 (section 6 of the specification)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from afflux.core.dialect import Switches, Words
from afflux.core.frame import changed
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

__all__ = ["Dialect"]

_PLAIN = (RequestResponse, RequestFnf, RequestStream, RequestSub)
_EARLY_LEASE, _EARLY_STRICT = 0x20, 0x10


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(Switches):
    """The differences of a peer from the text of 2015. Both ends need the same dialect."""

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
    "Every request may be fragmented, not only those of channels (I-6)."
    sub_complete: Literal["error", "pass"] = "error"
    "How a subscription ends that the application completes: ERROR[APPLICATION_ERROR], or a completion (I-10)."
    channel_half_close: bool = False
    "Each direction of a channel ends on its own (I-11)."

    @property
    def later_codes(self) -> bool:
        """Whether the error codes are those of later 0.1 texts."""
        return self.error_codes != "2015"

    def decode(self, buffer: bytes, start: int, end: int) -> ReactiveSocketFrame:
        """Decode a frame as this peer encodes it. Raises like ``frames.decode``."""
        frame = decode(buffer, start, end)
        if isinstance(frame, _PLAIN):
            if frame.follows and not self.fragment_requests:
                return changed(frame, follows=False)
        elif isinstance(frame, RequestChannel):
            return self._channel(frame)
        elif isinstance(frame, ErrorFrame):
            return changed(frame, code=of_wire(frame.code, self.later_codes), data=text_of(frame))
        elif self.java_compat and isinstance(frame, Setup):
            flags = buffer[start + 3]
            lease, strict = flags & _EARLY_LEASE != 0, flags & _EARLY_STRICT != 0
            return changed(frame, lease=frame.lease or lease, strict=frame.strict or strict)
        return frame

    def _channel(self, frame: RequestChannel) -> RequestChannel:
        if not frame.complete:
            return frame
        if self.java_compat and frame.initial_n is None and _stray(frame):
            return changed(frame, follows=False, data=b"")
        return changed(frame, follows=False) if frame.follows else frame

    def encode_setup(self, setup: Setup) -> bytes:
        """Encode SETUP with its length; for Java with the early flags as well."""
        data = bytearray(setup.encode(prefixed=True))
        if self.java_compat:
            data[7] |= _EARLY_LEASE * setup.lease | _EARLY_STRICT * setup.strict
        return bytes(data)

    def complete_channel(self, stream: int) -> bytes:
        """Encode the end of a channel's outbound half, its length included; for Java with an N of 0."""
        first = 0 if self.java_compat else None
        return RequestChannel(stream=stream, initial_n=first, complete=True).encode(prefixed=True)


def _stray(frame: RequestChannel) -> bool:
    return frame.metadata is None and len(frame.data) == 4
