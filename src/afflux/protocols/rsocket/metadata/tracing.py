"""Read and write tracing metadata: Zipkin's entry (2.5, R-58), and W3C trace context as an entry of its own.

The entry ``message/x.afflux.trace-context.v0`` contains the two headers of HTTP as ASCII text::

    length of traceparent (8 bits) | traceparent | tracestate, to the end of the entry

As W3C requires, an invalid traceparent is treated as missing, and an invalid tracestate does not affect the
traceparent. https://www.w3.org/TR/trace-context/
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Self

from afflux.core.errors import LocalProtocolError
from afflux.protocols.rsocket.metadata.mime import TRACING_MIME, invalid

__all__ = ["TRACE_CONTEXT_MIME", "Sampling", "TraceContext", "Zipkin"]

TRACE_CONTEXT_MIME = "message/x.afflux.trace-context.v0"
"The MIME type of the W3C entry. Another layout gets another type."

Sampling = Literal["debug", "sampled", "not-sampled"]
"The caller's decision: debug (always trace), trace, or do not trace."

# Flags of Zipkin's entry.
_IDS: Final = 0x80
_LONG: Final = 0x08
_PARENT: Final = 0x04
_SAMPLING: Final[dict[Sampling, int]] = {"debug": 0x40, "sampled": 0x20, "not-sampled": 0x10}
"In order of their weight: D overrides S, S overrides N (R-58)."

_HEX = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Zipkin:
    """A Zipkin (B3) span. Ids are lower-case hexadecimal text, as Zipkin writes them.

    Raises:
        LocalProtocolError: an id of another form, a trace id without a span id or the reverse, a parent without both.
    """

    MIME: ClassVar[str] = TRACING_MIME
    trace_id: str | None = None
    "16 or 32 digits; None if there is only ``sampling``."
    span_id: str | None = None
    "16 digits."
    parent_id: str | None = None
    "16 digits, or None at the root of the trace."
    sampling: Sampling | None = None
    "None if the decision is left to the receiver."

    def __post_init__(self) -> None:
        if (self.trace_id is None) != (self.span_id is None):
            raise LocalProtocolError("a trace id and a span id come together", rule="R-58")
        if self.parent_id is not None and self.span_id is None:
            raise LocalProtocolError("a parent id comes with a trace id and a span id", rule="R-58")
        _check_id("trace", self.trace_id, 16, 32)
        _check_id("span", self.span_id, 16)
        _check_id("parent", self.parent_id, 16)
        if self.sampling is not None and self.sampling not in _SAMPLING:
            raise LocalProtocolError(f"sampling is one of {', '.join(_SAMPLING)} or None", rule="R-58")

    def encode(self) -> bytes:
        """The entry's bytes."""
        flags = _SAMPLING[self.sampling] if self.sampling is not None else 0
        if self.trace_id is None or self.span_id is None:
            return bytes((flags,))
        flags |= _IDS
        if len(self.trace_id) == 32:
            flags |= _LONG
        if self.parent_id is not None:
            flags |= _PARENT
        return bytes((flags,)) + bytes.fromhex(self.trace_id + self.span_id + (self.parent_id or ""))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The value of an entry: unassigned flags, and bytes after the last id, are ignored.

        Raises:
            Violation: it is empty, or cut off within an id.
        """
        if not data:
            raise invalid("a tracing entry is empty", "R-58")
        flags = data[0]
        sampling = next((name for name, flag in _SAMPLING.items() if flags & flag), None)
        if not flags & _IDS:
            return cls(sampling=sampling)
        span = 17 if flags & _LONG else 9
        parent = span + 8
        end = parent + 8 if flags & _PARENT else parent
        if len(data) < end:
            raise invalid(f"a tracing entry of {len(data)} bytes, {end} by its flags", "R-58")
        return cls(
            trace_id=data[1:span].hex(),
            span_id=data[span:parent].hex(),
            parent_id=data[parent:end].hex() or None,
            sampling=sampling,
        )


def _check_id(what: str, id: str | None, *sizes: int) -> None:
    if id is not None and not (len(id) in sizes and _HEX.fullmatch(id)):
        digits = " or ".join(map(str, sizes))
        raise LocalProtocolError(
            f"a {what} id has {digits} lower-case hexadecimal digits, not {id[:40]!r}", rule="R-58"
        )


# W3C trace context.

_PARENT_00 = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_PARENT_LATER = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-[\x21-\x7e]*)?")
"A later version may append fields (W3C 3.2.4)."
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")

_STATE_CHARS = 512
_STATE_MEMBERS = 32
_SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The position of a request in a distributed trace, as W3C defines it.

    Raises:
        LocalProtocolError: the traceparent or the tracestate breaks a rule of W3C.
    """

    MIME: ClassVar[str] = TRACE_CONTEXT_MIME
    traceparent: str
    """``00-<trace id>-<span id>-<flags>`` in lower-case hexadecimal; the value of a later version is passed on
    unchanged."""
    tracestate: str = ""
    "Data of tracing systems: at most 512 characters, and 32 members ``key=value`` with commas between."

    def __post_init__(self) -> None:
        if fault := _fault_of_parent(self.traceparent) or _fault_of_state(self.tracestate):
            raise LocalProtocolError(fault, rule="W3C trace context")

    @property
    def trace_id(self) -> str:
        """The id of the whole trace: 32 digits."""
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """The span of the request at the caller: 16 digits. W3C names it parent-id."""
        return self.traceparent[36:52]

    @property
    def sampled(self) -> bool:
        """Whether the caller may have recorded the trace."""
        return bool(int(self.traceparent[53:55], 16) & _SAMPLED)

    def child(self, span_id: str, *, sampled: bool | None = None) -> Self:
        """The context of a request made while this one is served: same trace, its own span, in version 00.

        Args:
            span_id: 16 lower-case hexadecimal digits, not all zero, such as ``secrets.token_hex(8)``.
            sampled: whether it is recorded; as here if None.
        """
        flag = self.sampled if sampled is None else sampled
        return type(self)(f"00-{self.trace_id}-{span_id}-{int(flag):02x}", self.tracestate)

    def encode(self) -> bytes:
        """The entry's bytes."""
        return bytes((len(self.traceparent),)) + (self.traceparent + self.tracestate).encode("ascii")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The value of an entry; a tracestate that breaks a rule is dropped.

        Raises:
            Violation: the traceparent is missing or invalid.
        """
        end = 1 + data[0] if data else 1
        if len(data) < end:
            raise invalid("a trace context is cut off", "W3C trace context")
        parent, state = str(data[1:end], "latin-1"), str(data[end:], "latin-1")
        if fault := _fault_of_parent(parent):
            raise invalid(fault, "W3C trace context")
        return cls(parent, "" if _fault_of_state(state) else state)


def _fault_of_parent(text: str) -> str | None:
    later = not text.startswith("00-")
    found = (_PARENT_LATER if later else _PARENT_00).fullmatch(text)
    if found is None or len(text) > 0xFF:
        return f"a traceparent is 00-<32 digits>-<16 digits>-<2 digits> in lower-case hexadecimal, not {text[:60]!r}"
    if text.startswith("ff"):
        return "a traceparent has no version ff"
    if not int(found[1], 16) or not int(found[2], 16):
        return "an id of a traceparent is all zeros"
    return None


def _fault_of_state(text: str) -> str | None:
    if len(text) > _STATE_CHARS:
        return f"a tracestate of {len(text)} characters: at most {_STATE_CHARS} fit"
    members = text.split(",")
    if len(members) > _STATE_MEMBERS:
        return f"a tracestate of {len(members)} members: at most {_STATE_MEMBERS} fit"
    keys = set()
    for member in filter(None, (member.strip(" \t") for member in members)):
        if _MEMBER.fullmatch(member) is None:
            return f"a member of a tracestate is key=value, not {member[:60]!r}"
        key = member.partition("=")[0]
        if key in keys:
            return f"a tracestate has {key[:60]!r} twice"
        keys.add(key)
    return None
