"""List the known failures with their reason and the side at fault. Every other case must pass.
Rule numbers are RSocket's.

A failure is "theirs" (with the rule of docs/specs/rsocket.md that they violate), "ours" (a bug to be fixed),
or a "hole" in the specification. ``bytes`` contains evidence: frames in hexadecimal, without their length prefix.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

__all__ = ["ABSENT", "FINDINGS", "KNOWN", "Absent", "Known", "KnownFinding", "absent", "finding", "known"]

Fault = Literal["theirs", "ours", "hole"]


@dataclass(frozen=True, slots=True)
class Absent:
    """A feature that a peer does not have. ``*`` matches any text."""

    peer: str
    role: str
    case: str
    why: str
    transport: str = "*"


@dataclass(frozen=True, slots=True)
class Known:
    """Cases that fail, and why."""

    peer: str
    role: str
    cases: tuple[str, ...]
    fault: Fault
    rule: str
    why: str
    transport: str = "*"
    bytes: str = ""
    sometimes: bool = False
    "The failure depends on timing, so passing is not a surprise."


@dataclass(frozen=True, slots=True)
class KnownFinding:
    """A rule violation in the recordings of a peer, whether or not the cases pass."""

    peer: str
    role: str
    rule: str
    text: str
    "Prefix of the finding's text."
    why: str
    bytes: str = ""
    fault: Fault = "theirs"
    sometimes: bool = False
    "It depends on thread timing, so a run without it is not a surprise."


_PY, _JS0, _JS1, _JAVA = "rsocket-py", "rsocket-js-0", "rsocket-js-1", "rsocket-java"

_NO_FRAGMENTS = "it does not fragment: see whole.*"

_RESUMED = ("idle", "request", "requests", "stream", "lost-*", "channel", "twice", "cuts", "fragments-*", "mixed")
"The cases with resumption."

ABSENT: tuple[Absent, ...] = (
    Absent(_JS0, "client", "fragments.up-*", _NO_FRAGMENTS),
    Absent(_JS0, "client", "fragments.metadata-up", _NO_FRAGMENTS),
    Absent(_JS0, "client", "fragments.channel-up", _NO_FRAGMENTS),
    Absent(_JS0, "client", "fragments.fire", _NO_FRAGMENTS),
    Absent(_JS0, "client", "resume.fragments-up", _NO_FRAGMENTS),
    Absent(_JS0, "server", "fragments.down-*", _NO_FRAGMENTS),
    Absent(_JS0, "server", "fragments.metadata-down", _NO_FRAGMENTS),
    Absent(_JS0, "server", "fragments.stream", _NO_FRAGMENTS),
    *(
        Absent(_JS0, "server", f"error.{name}", "it always sends APPLICATION_ERROR, whatever its handler raises")
        for name in ("code-*", "rejected", "canceled", "invalid")
    ),
    Absent(_JS0, "server", "setup.mime", "its server does not expose the MIME types to the application"),
    *(Absent(_PY, "server", f"resume.{name}", "it has no resumption") for name in (*_RESUMED, "unknown")),
    Absent(_PY, "client", "resume.*", "it has no resumption"),
    *(Absent(_JS0, "server", f"resume.{name}", "its server has no resumption") for name in _RESUMED),
    Absent(_JS0, "client", "lease.renewed", "without a lease its requests fail immediately instead of waiting"),
    *(
        Absent(_JS1, "server", f"lease.{name}", "it never grants a lease: see lease.granted")
        for name in ("honoured", "enforced", "renewed", "expires", "back", "kinds", "largest")
    ),
    Absent(_JS1, "client", "lease.back", "it never grants a lease"),
    Absent(_JS1, "*", "push.metadata", "not implemented: sending throws, and received frames are dropped"),
    *(
        Absent(_JS1, "server", case, "it fragments requests, never answers: see whole.*")
        for case in ("fragments.down-*", "fragments.metadata-down", "fragments.stream", "resume.fragments-down")
    ),
)

KNOWN: tuple[Known, ...] = (
    Known(
        _PY,
        "client",
        ("request.no-metadata",),
        "theirs",
        "2.2: M",
        'Missing metadata is read as empty metadata: the attribute is initialized to b"".',
        bytes="00000001286064617461",
    ),
    Known(
        _PY,
        "server",
        ("request.empty-metadata", "sizes.*-empty"),
        "theirs",
        "2.2: M",
        "Empty metadata is never sent: M is set when there are bytes, not when there is metadata.",
        bytes="00000001110000000064617461 00000001286064617461",
    ),
    Known(
        _PY,
        "client",
        ("error.code-*",),
        "theirs",
        "2.4: 0x301 to 0xFFFFFFFE",
        "An ERROR with a code that its enumeration lacks is dropped as unreadable; the caller waits forever.",
        bytes="000000012c00000003016f7574206f662073746f636b",
    ),
    Known(
        _PY,
        "*",
        ("setup.mime",),
        "theirs",
        "2.3: MIME length 8",
        "The length of a MIME type is a signed byte: 128 and above can be neither written (nothing is sent) nor read.",
        bytes="000000002c0000000003277574662d382720636f6465632063616e2774206465636f6465",
    ),
    Known(
        _PY,
        "client",
        ("setup.times",),
        "theirs",
        "R-18",
        "The fraction of a second is added twice: 1.5 s is announced as 2000 ms but sent every 1500.",
        bytes="00000000040000010000000007d00000119418"
        "6170706c69636174696f6e2f6f637465742d73747265616d18"
        "6170706c69636174696f6e2f6f637465742d73747265616d",
    ),
    Known(
        _PY,
        "server",
        ("setup.rejected-serves",),
        "theirs",
        "R-14",
        "After REJECTED_SETUP the connection stays open, and the refused client is served.",
        bytes="000000002c00000000036e6f20656e747279",
    ),
    Known(
        _PY,
        "client",
        ("keepalive.dead-server",),
        "theirs",
        "3.1: Max Lifetime",
        "A silent server is detected, but nothing follows: pending requests wait forever.",
    ),
    Known(
        _PY,
        "server",
        ("keepalive.dead-client",),
        "theirs",
        "R-22 (MAY)",
        "A server has no timeout for clients: handlers of a lost client run forever.",
    ),
    Known(
        _PY,
        "client",
        ("fragments.channel", "fragments.channel-up", "load.mixed"),
        "theirs",
        "R-33",
        "Fragments of several items of one stream are interleaved, so they cannot be distinguished.",
        bytes="0000000128a000000000 0000000128a000000000 00000001282000000000 00000001282000000000",
    ),
    Known(
        _PY,
        "server",
        ("fragments.stream",),
        "theirs",
        "R-33",
        "The same: interleaved fragments of several items of one stream.",
    ),
    Known(
        _PY,
        "server",
        ("fragments.channel",),
        "theirs",
        "R-33",
        "The same, if more than one answer is waiting.",
        sometimes=True,
    ),
    Known(
        _JS0,
        "server",
        (
            "request.echo",
            "request.empty-data",
            "request.bytes",
            "stream.metadata",
            "stream.request",
            "channel.metadata",
            "whole.metadata-down",
            "sizes.*-some",
            "sizes.*-large",
        ),
        "theirs",
        "2.2: M",
        "Metadata of an answer or item is never sent: its responder does not set M, and without M its encoder omits "
        "metadata.",
        bytes="0000000111000000016d64617461 00000001286064617461",
    ),
    Known(_JS0, "client", ("back.request",), "theirs", "2.2: M", "The same for answers of the client."),
    Known(
        _JS0,
        "*",
        ("request.empty-metadata", "sizes.*-empty"),
        "theirs",
        "2.2: M",
        "Empty metadata is read as missing.",
        bytes="00000001296000000064617461",
    ),
    Known(
        _JS1,
        "*",
        ("request.empty-metadata", "sizes.*-empty"),
        "theirs",
        "2.2: M",
        "Empty metadata is read as missing.",
        bytes="00000001296000000064617461",
    ),
    Known(
        _JS0,
        "client",
        ("error.code-largest",),
        "theirs",
        "D-3",
        "The code is read as a signed number: a code above 0x7FFFFFFF ends the connection.",
        bytes="000000012c00fffffffe74686520656e64",
    ),
    Known(
        _JS1,
        "client",
        ("error.code-largest",),
        "theirs",
        "D-3",
        "The code is read as a signed number: 0xFFFFFFFE becomes -2.",
        bytes="000000012c00fffffffe74686520656e64",
    ),
    Known(
        _JS1,
        "server",
        ("error.code-*", "error.rejected", "error.canceled", "error.invalid"),
        "theirs",
        "2.4",
        "A handler's RSocketError with a code is sent as APPLICATION_ERROR: compiled to ES5, its class is not "
        "recognised by instanceof.",
        bytes="000000012c00000002016c61746572",
    ),
)

_SIZES: tuple[Known, ...] = (
    Known(
        _JS1,
        "client",
        ("sizes.64-some", "sizes.64-large", "sizes.1500-large", "sizes.16k-large"),
        "theirs",
        "R-33",
        "A fragmented request with metadata and empty data never ends: every fragment has the flag that more follow.",
        bytes="00000001118000000161 0000000129a000000162",
    ),
)

_WEBSOCKET: tuple[Known, ...] = (
    Known(
        _PY,
        "*",
        ("close.*",),
        "theirs",
        "3.1: transport lost",
        "Its transport for the library websockets neither closes the WebSocket nor detects that it is closed: requests "
        "in flight wait forever.",
        transport="ws",
    ),
    Known(
        _JS1,
        "server",
        ("close.cut",),
        "theirs",
        "3.2: transport lost",
        "A broken WebSocket throws in its close handler (e.reason of undefined): no other handler is notified.",
        transport="ws",
    ),
)

_SESSIONS: tuple[Known, ...] = (
    Known(
        _PY,
        "server",
        ("lease.enforced",),
        "theirs",
        "R-42",
        "A responder does not enforce its lease: a request beyond it is answered.",
        bytes="00000000080000004e2000000001 00000003100078 00000003286078",
    ),
    Known(
        _PY,
        "server",
        ("resume.refused",),
        "theirs",
        "R-15",
        "A client that requests resumption receives UNSUPPORTED_SETUP, not REJECTED_SETUP.",
        bytes="000000002c0000000002526573756d65206e6f7420737570706f72746564",
    ),
    Known(
        _JS0,
        "client",
        ("lease.refused",),
        "theirs",
        "R-14",
        "With leases, its own clean-up throws when the server refuses (this._onStatsEvent is not a function): the "
        "application is not notified of the refusal.",
        bytes="000000002c0000000002",
    ),
    Known(
        _JS0,
        "server",
        ("lease.enforced",),
        "theirs",
        "R-42",
        "A request beyond the lease is refused with APPLICATION_ERROR, not with REJECTED.",
        bytes="000000032c00000002014d697373696e67206c6561736573",
    ),
    Known(
        _JS0,
        "server",
        ("lease.refused",),
        "hole",
        "R-14",
        "A server without leases answers INVALID_SETUP. The text requires one of the codes 1 to 3 without naming one "
        "(3.2 selects UNSUPPORTED_SETUP); a client must accept any.",
        bytes="000000002c0000000001",
    ),
    Known(
        _JS1,
        "server",
        ("lease.refused",),
        "hole",
        "R-14",
        "The same with REJECTED_SETUP.",
        bytes="000000002c0000000003",
    ),
    Known(
        _JS0,
        "server",
        ("resume.refused",),
        "theirs",
        "R-15",
        "The flag R of a SETUP is ignored: the client assumes a session that does not exist.",
    ),
    Known(
        _JS1,
        "client",
        tuple(f"resume.{name}" for name in _RESUMED),
        "theirs",
        "R-52",
        "RESUME is sent with version 0.1: major and minor are swapped.",
        bytes="0000000034000000000100047468652000000000000000020000000000000010",
    ),
    Known(
        _JS1,
        "server",
        ("lease.granted",),
        "theirs",
        "R-13",
        "A server with leases accepts the flag L and never sends a LEASE, so its client may never send a request.",
    ),
)

_OF_JAVA: tuple[Known, ...] = (
    Known(
        _JAVA,
        "server",
        ("setup.mime",),
        "theirs",
        "2.3: MIME length 8",
        "The length of a MIME type is read as a signed byte: from 128 on the SETUP cannot be read, and the client "
        "receives nothing.",
    ),
    Known(
        _JAVA,
        "server",
        ("lease.refused",),
        "hole",
        "R-14",
        "A server without leases answers INVALID_SETUP, like rsocket-js-0.",
        bytes="000000002c0000000001",
    ),
    Known(
        _JAVA,
        "server",
        ("resume.refused",),
        "theirs",
        "R-15",
        "A client that requests resumption receives UNSUPPORTED_SETUP, not REJECTED_SETUP.",
        bytes="000000002c0000000002",
    ),
)

KNOWN += _SIZES + _WEBSOCKET + _SESSIONS + _OF_JAVA

FINDINGS: tuple[KnownFinding, ...] = (
    KnownFinding(
        _JS0,
        "client",
        "2.3",
        "METADATA_PUSH without the flag M",
        "M must be 1 in METADATA_PUSH.",
        bytes="00000000300061626f7574",
    ),
    KnownFinding(
        _JS0,
        "client",
        "R-8",
        "ids out of order",
        "A channel takes its id when it is created but is opened with its first item, after later ids.",
        bytes="00000003100078 000000011c000000000578",
    ),
    KnownFinding(
        _JAVA,
        "client",
        "R-8",
        "ids out of order",
        "Concurrent threads take their ids in one order and send their frames in another.",
        bytes="00000003100078 000000011c000000000578",
        sometimes=True,
    ),
)


def absent(peer: str, role: str, transport: str, case: str) -> Absent | None:
    """Return why a case does not apply, if so."""
    for entry in ABSENT:
        if _fits(entry, peer, role, transport) and fnmatchcase(case, entry.case):
            return entry
    return None


def known(peer: str, role: str, transport: str, case: str) -> Known | None:
    """Return the known reason why a case fails."""
    for entry in KNOWN:
        if _fits(entry, peer, role, transport) and any(fnmatchcase(case, one) for one in entry.cases):
            return entry
    return None


def finding(peer: str, role: str, rule: str, text: str) -> KnownFinding | None:
    """Return the entry of a finding in a recording."""
    for entry in FINDINGS:
        mine = fnmatchcase(peer, entry.peer) and fnmatchcase(role, entry.role)
        if mine and rule == entry.rule and text.startswith(entry.text):
            return entry
    return None


def _fits(entry: Absent | Known, peer: str, role: str, transport: str) -> bool:
    pairs = ((peer, entry.peer), (role, entry.role), (transport, entry.transport))
    return all(fnmatchcase(actual, pattern) for actual, pattern in pairs)
