"""Apply extension entries: on stream frames, which may fail their stream, and on EXT (3.1 to 3.3)."""

from __future__ import annotations

from typing import Any

from afflux.core.bucket import Bucket
from afflux.core.errors import Invalid, Violation
from afflux.core.events import Event, Extended, Items, Opened
from afflux.core.frame import Malformed
from afflux.core.payload import Payload
from afflux.protocols.family import arrivals, leases, liveness
from afflux.protocols.family.connection import Connection
from afflux.protocols.family.states import StreamInput
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket_draft import payloads, resumption
from afflux.protocols.rsocket_draft.entries import BROKER, KEEPALIVE, LEASE, RESUME, Entry, Point, chain_size
from afflux.protocols.rsocket_draft.frames import (
    ErrorFrame,
    ExtChain,
    Keepalive,
    Lease,
    PayloadFrame,
    RequestChannel,
    RequestStream,
)
from afflux.protocols.rsocket_draft.negotiation import Negotiation, check_single, lifetime_of, part_of
from afflux.protocols.rsocket_draft.payload import MOST_PRELUDE, PLAIN, ExtendedPayload, Own
from afflux.protocols.rsocket_draft.strategies import FramesGranted

__all__ = [
    "on_entries",
    "on_legacy_keepalive",
    "on_reject",
    "on_request",
    "on_stream_frame",
    "refuse_frame",
    "understood",
]


# -- stream frames --------------------------------------------------------------------------------------------


def on_request(connection: Connection, frame: Any) -> None:
    """Apply a request with its entries."""
    _count(connection)
    if _plain(connection, frame):
        arrivals.on_request(connection.stream_table, frame)
    else:
        _apply(connection, frame, arrivals.on_request)


def on_reject(connection: Connection, frame: Any) -> None:
    """Reject a request, because the connection is closing."""
    _count(connection)
    arrivals.on_request(connection.stream_table, frame, "the connection is closing")


def on_stream_frame(connection: Connection, frame: Any) -> None:
    """Apply any other stream frame with its entries."""
    _count(connection)
    on_frame = connection.member.on_stream[type(frame)]
    if type(frame) is ErrorFrame or _plain(connection, frame):
        on_frame(connection.stream_table, frame)
    else:
        _apply(connection, frame, on_frame)


def _count(connection: Connection) -> None:
    held = connection.stream_table.leases
    if held is not None and isinstance(held.issued, FramesGranted):
        held.issued.spend(connection.current.now)


def _plain(connection: Connection, frame: Any) -> bool:
    """Whether a frame has neither entries nor MIME types, and continues no payload that has."""
    overrides = type(frame) is PayloadFrame and (frame.data_mime is not None or frame.metadata_mime is not None)
    return not (frame.extensions or overrides or frame.stream in part_of(connection).extras)


def _apply(connection: Connection, frame: Any, on_frame: Any) -> None:
    """Apply a frame whose payload may become an ``ExtendedPayload``; a fragmented one is told from its first fragment
    (R-8)."""
    part, streams, id = part_of(connection), connection.stream_table, frame.stream
    try:
        entries = understood(part, frame)
    except Violation as violation:
        refuse_frame(connection, frame.NAME, id, getattr(frame, "follows", False), violation)
        return
    own = (entries, getattr(frame, "data_mime", None), getattr(frame, "metadata_mime", None))
    begun = id in streams.reassembly.partials
    own = part.extras.pop(id, PLAIN) if begun else own
    before, objects = len(streams.current.events), streams.objects
    on_frame(streams, frame)
    if type(frame) in _RESUMABLE:
        _agree(connection, frame)
    if id in streams.reassembly.partials:
        if own != PLAIN:
            part.extras = {
                stream: part.extras[stream] for stream in part.extras if stream in streams.reassembly.partials
            }
            part.extras[id] = own
    elif own != PLAIN:
        events = streams.current.events
        if streams.objects > objects:
            part.deliver(streams, chain_size(own[0]))
        events[before:] = [_extended(event, id, own) for event in events[before:]]


_RESUMABLE = (RequestStream, RequestChannel)
"Requests whose streams can survive the transport (R-36)."


def _agree(connection: Connection, frame: Any) -> None:
    """Agree that a stream survives the transport, if its requester wants it and the request was accepted (R-37)."""
    retained, streams, id = resumption.records_of(connection), connection.stream_table, frame.stream
    wanted = any(entry.number == RESUME and entry.marked for entry in frame.extensions)
    accepted = id in streams.live or id in streams.reassembly.partials
    if wanted and accepted and retained is not None and id not in retained.records:
        retained.agree(id)


def _extended(event: Event, id: int, own: Own) -> Event:
    """The event with an ``ExtendedPayload``, if it is the one of this payload."""
    if isinstance(event, Opened) and event.stream == id:
        return Opened(id, event.verb, _with(event.payload, own), event.credit, event.complete)
    if isinstance(event, Items) and event.stream == id:
        return Items(id, [_with(payload, own) for payload in event.payloads], event.complete)
    return event


def _with(payload: Payload, own: Own) -> ExtendedPayload:
    return ExtendedPayload(payload.data, payload.metadata, entries=own[0], data_mime=own[1], metadata_mime=own[2])


def understood(part: Negotiation, frame: Any) -> tuple[Entry, ...]:
    """Return the entries for the application; resumption is applied here.

    Raises:
        Violation: an entry has to be understood and is not (R-18), or stands where it may not (R-46).
    """
    check_single(frame.extensions, Code.CONNECTION_ERROR)
    kept: list[Entry] = []
    for entry in frame.extensions:
        number = entry.number
        if number == RESUME and RESUME in part.used:
            if entry.payload:
                raise Malformed("resume on a stream frame has no payload", rule="R-16", code=Code.CONNECTION_ERROR)
        elif number == BROKER and BROKER in part.used:
            if not payloads.broker_fits(entry, Point.STREAM):
                raise Violation(
                    "of a broker's frames, only ADDRESS is legal on a stream frame", rule="R-46", code=Code.INVALID
                )
            kept.append(entry)
        elif not (isinstance(number, int) and number <= BROKER) and part.understands(entry):
            kept.append(entry)
        elif not entry.ignorable:  # any other is skipped
            known = isinstance(number, int) and number <= BROKER
            reason = "was not negotiated in the setup" if known else "is not understood"
            raise Violation(f"the extension {entry.name!r} {reason}", rule="R-18", code=Code.INVALID)
    if chain_size(kept) > MOST_PRELUDE:
        raise Violation(f"more than {MOST_PRELUDE} bytes of extension entries", rule="D-17", code=Code.INVALID)
    return tuple(kept)


def refuse_frame(connection: Connection, name: str, id: int, follows: bool, violation: Violation) -> None:
    """Drop a stream frame, and end its stream with ERROR[INVALID] (R-18, R-46).

    Raises:
        Violation: it concerns the whole connection.
    """
    if violation.code != Code.INVALID:
        raise violation
    streams = connection.stream_table
    stream = streams.live.get(id)
    if stream is not None:
        error = Invalid(violation.reason, code=Code.INVALID, stream=id, rule=violation.rule)
        streams.give_up(stream)
        streams.step(stream, StreamInput.ERROR, error)
        streams.send_error(id, Code.INVALID, violation.reason)
        streams.current.count_cancel()
    elif name.startswith("REQUEST_") and name != "REQUEST_N" and id & 1 == streams.peer_parity and id > streams.newest:
        streams.newest = id
        if follows:
            streams.late.cut_off(id)
        streams.late.given_up(id, streams.limits.fragments if follows else streams.limits.cancel_race_frames)
        if name != "REQUEST_FNF":
            streams.send_error(id, Code.INVALID, violation.reason)
        streams.current.count_cancel()
    else:
        arrivals.unknown(streams, id, name, follows)


# -- EXT and KEEPALIVE ----------------------------------------------------------------------------------------


def on_entries(connection: Connection, frame: ExtChain) -> None:
    """Apply the entries of an EXT.

    Raises:
        Violation: an entry has to be understood and is not, or is malformed: the connection ends.
    """
    part = part_of(connection)
    check_single(frame.extensions, Code.CONNECTION_ERROR)
    for entry in frame.extensions:
        match entry.number:
            case 0 if KEEPALIVE in part.used:
                _on_ping(connection, entry)
            case 1 if RESUME in part.used:
                resumption.acknowledge(connection, entry)
            case 2 if LEASE in part.used:
                ttl_ms, permits = payloads.permits_of(entry)
                leases.on_lease(connection, Lease(ttl_ms=ttl_ms, requests=permits))
            case 3 if BROKER in part.used:
                if not payloads.broker_fits(entry, Point.EXT):
                    text = "of a broker's frames, only BROKER_INFO, ROUTE_JOIN and ROUTE_REMOVE are legal on EXT"
                    raise Violation(text, rule="R-46", code=Code.CONNECTION_ERROR)
                _deliver(connection, entry)
            case number if number not in (KEEPALIVE, RESUME, LEASE, BROKER) and part.understands(entry):
                _deliver(connection, entry)
            case _ if not entry.ignorable:
                text = f"EXT: the extension {entry.name!r} is not understood"
                raise Violation(text, rule="R-18", code=Code.CONNECTION_ERROR)
            case _:
                connection.current.charge(1, 0, "R-17", f"an unknown extension {entry.name!r}")


def _deliver(connection: Connection, entry: Entry) -> None:
    connection.stream_table.delivered += len(entry.payload)
    connection.current.events.append(Extended(0, entry.name, entry.payload))


def _on_ping(connection: Connection, entry: Entry) -> None:
    """Apply a keepalive, and answer it if it requests an answer (R-28)."""
    part = part_of(connection)
    if connection.client and not part.confirmed:
        part.confirmed = True  # D-18: the server uses the extension
        connection.liveness.lifetime = lifetime_of(connection)
    liveness.echo(connection, Keepalive(stream=0, respond=entry.marked, data=entry.payload))


def on_legacy_keepalive(connection: Connection, frame: Keepalive) -> None:
    """Answer RSocket's KEEPALIVE, unless the extension replaces it (R-29, D-10)."""
    if KEEPALIVE in part_of(connection).used:
        connection.ignore(frame)
        return
    limits, live = connection.limits, connection.liveness
    if len(frame.data) > limits.connection_metadata_bytes:
        raise Violation("metadata-too-large", rule="connection_metadata_bytes")
    if not frame.respond:
        return
    if live.keepalives is None:
        live.keepalives = Bucket(limits.keepalive_rate[1], limits.keepalive_rate[0])
    if not live.keepalives.take(1, connection.current.now):
        raise Violation("keepalive-flood", rule="keepalive_rate")
    live.echoes += 1
    connection.outbound.control(Keepalive(stream=0, data=frame.data).encode(prefixed=True))
