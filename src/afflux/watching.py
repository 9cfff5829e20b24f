"""Log the life and the frames of connections: the loggers ``afflux.connection`` (INFO) and ``afflux.frames`` (DEBUG).

A driver asks ``watch_of`` once for each connection. While neither logger is enabled, the answer is None. Otherwise the
driver tells the watch of all bytes and events.

A frame is one line, as ``afflux decode`` prints it. Payloads are cut. Secrets are masked: tokens, the payload of a
SETUP, and of other metadata all but the route and the types and lengths of its entries.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final

from afflux.calls import CHANNEL_NAME, metadata_mime_of
from afflux.core.dissect import escaped, line
from afflux.core.errors import Error, Invalid
from afflux.core.events import Draining, Established, Event, Leased, Resumed, Suspended

if TYPE_CHECKING:
    from afflux.core.dissector import Dissector, Record
    from afflux.core.engine import Engine
    from afflux.core.entry import ProtocolEntry
    from afflux.core.meanings import Meanings

__all__ = ["CONNECTIONS", "HANDLERS", "SERVERS", "Watch", "end_of", "frame_line", "quoted", "watch_of"]

CONNECTIONS: Final = logging.getLogger("afflux.connection")
"INFO: a connection begins, is set up, suspended, resumed, tried again, closed."
HANDLERS: Final = logging.getLogger("afflux.handlers")
"ERROR: the application's code failed, or blocks the event loop."
SERVERS: Final = logging.getLogger("afflux.server")
"WARNING: connections were refused."
_FRAMES: Final = logging.getLogger("afflux.frames")
"DEBUG: each frame."

_LONGEST: Final = 64
"Bytes of data, and characters of a text of the peer, that a line shows."
_MOST_ENTRIES: Final = 16
"Entries of metadata that a line shows."
_MIME: Final = re.compile(r"[\w.+-]{1,63}/[\w.+-]{1,64}", re.ASCII)
_SECRETIVE: Final = ("SETUP", "RESUME")
"Frames whose payloads and texts are masked begin with one of these."
_numbers = iter(range(1, 2**63))


def watch_of(entry: ProtocolEntry, uri: str, *, client: bool) -> Watch | None:
    """Return the watch of a new connection; None if nothing would be logged.

    Args:
        entry: its protocol.
        uri: the address that was connected to, or that is listened on.
        client: whether this side opens the connection.
    """
    if CONNECTIONS.isEnabledFor(logging.INFO) or _FRAMES.isEnabledFor(logging.DEBUG):
        return Watch(entry, uri, client)
    return None


class Watch:
    """Logs one connection. ``name`` is on all its lines: c1, c2 and so on within a process."""

    __slots__ = ("_begun", "_client", "_engine", "_entry", "_over", "_received", "_sent", "_sides", "name", "uri")

    def __init__(self, entry: ProtocolEntry, uri: str, client: bool) -> None:
        self._entry = entry
        self._client = client
        self._engine: Engine | None = None
        self._sides: tuple[Dissector, Dissector] | None = None
        "Of what is received and what is sent; None while frames are not logged."
        self._begun: float | None = None
        self._received = self._sent = 0
        self._over = False
        self.uri = uri
        self.name = f"c{next(_numbers)}"

    def begin(self, engine: Engine) -> None:
        """The connection has an engine."""
        self._engine = engine

    def connecting(self) -> None:
        """A transport is about to be opened."""
        self._log(f"connecting to {self.uri}")

    def connected(self, now: float, near: object = None, far: object = None) -> None:
        """The connection has a transport: its first one, or the next one of a session. ``near`` and ``far`` are the
        names of its sockets, as ``getsockname`` and ``getpeername`` return them; None if they are not known."""
        if self._client:
            text = "connected" + (f" from {end_of(near)} to {end_of(far)}" if far else "")
        else:
            text = f"accepted {end_of(far)} on {self.uri}"
        self._log(f"{text}, {self._entry.name}" if self._begun is None else f"{text} again")
        self._begun = now if self._begun is None else self._begun
        if self._entry.dissector is not None and _FRAMES.isEnabledFor(logging.DEBUG):
            make = self._entry.dissector
            self._sides = make(not self._client, "bytes"), make(self._client, "bytes")

    def trying(self, seconds: float) -> None:
        """Another transport is opened in a while."""
        self._log(f"resuming in {max(0.0, seconds):.3g} s")

    def resumed(self) -> None:
        """The session continues on another transport."""
        self._log("resumed")

    def ended(self, error: Error | None, now: float) -> None:
        """The connection is over. The first call counts."""
        if self._over:
            return
        self._over = True
        if self._begun is None:
            self._log("not connected")
            return
        moved = f"{self._sent:,} B sent, {self._received:,} B received"
        reason = "" if error is None else f": {quoted(str(error) or type(error).__name__, 4 * _LONGEST)}"
        self._log(f"closed after {now - self._begun:.3f} s; {moved}{reason}")

    # -- what passes ---------------------------------------------------------------------------------------------

    def received(self, data: bytes | memoryview) -> None:
        """Bytes have arrived, and the engine has not seen them yet."""
        self._received += len(data)
        if self._sides is not None:
            self._log_frames(self._sides[0], bytes(data))

    def sent(self, data: bytes) -> None:
        """Bytes are written."""
        self._sent += len(data)
        if self._sides is not None:
            self._log_frames(self._sides[1], data)

    def seen(self, events: list[Event]) -> None:
        """Log those events that concern the connection."""
        for event in events:
            match event:
                case Established(setup=setup):
                    self._log(f"set up{_terms(setup)}")
                case Suspended():
                    self._log("suspended: the session waits for another transport")
                case Resumed():
                    self.resumed()
                case Leased():
                    self._log("the peer has granted a lease")
                case Draining():
                    self._log("the peer accepts no new requests")

    # -- inside -------------------------------------------------------------------------------------------------

    def _log(self, text: str) -> None:
        CONNECTIONS.info("%s %s", self.name, text)

    def _log_frames(self, side: Dissector, data: bytes) -> None:
        mime = None if self._engine is None else metadata_mime_of(self._engine)
        for record in side.feed(data):
            _FRAMES.debug("%s", frame_line(record | {"conn": self.name}, mime, self._entry.meanings))


def frame_line(record: Record, metadata_mime: str | None = None, meanings: Meanings | None = None) -> str:
    """Return the line of a frame record that has its payload as bytes: cut, masked, and on one line.

    Args:
        record: the record; it is not changed.
        metadata_mime: the connection's metadata type; composite if None.
        meanings: names its error code.
    """
    secretive = (record["type"] or "").startswith(_SECRETIVE)
    made = record | {"metadata": None, "data": None}
    if not secretive:
        if record.get("data"):
            made["data"] = _data(record["data"])
        if record.get("metadata"):
            made["metadata"] = _metadata(record["metadata"], metadata_mime)
    made["fields"] = {name: _field(name, value, secretive) for name, value in record["fields"].items()}
    return line(made, meanings)


def _field(name: str, value: Any, secretive: bool) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    if secretive and not (name.endswith("_mime") or text.endswith(" bytes)")):
        return "(masked)"
    return _cut(text, _LONGEST)


def _data(data: bytes) -> str:
    """Return data as text if it is text, otherwise in hexadecimal."""
    start = data[:_LONGEST]
    text = start.decode(errors="ignore" if len(data) > _LONGEST else "replace")
    if "\ufffd" in text or not all(char.isprintable() or char in "\t\n\r" for char in text):
        text = start.hex()
    return text if len(data) <= _LONGEST else f"{text}…"


def _metadata(metadata: bytes, mime: str | None) -> str:
    """Return the route, and the types and lengths of the other entries; only the length of what cannot be read."""
    from afflux.protocols.rsocket.metadata import COMPOSITE_MIME, ROUTING_MIME, Entries

    if mime == CHANNEL_NAME:
        return _cut(metadata.decode(errors="replace"), _LONGEST)
    found = Entries(metadata, metadata_mime=mime or COMPOSITE_MIME)
    words = []
    try:
        route, entries = found.route, list(found)
    except Invalid:
        return f"({len(metadata)} bytes)"
    for name, value in entries[:_MOST_ENTRIES]:
        shown = f"route {route}" if name == ROUTING_MIME else name if _MIME.fullmatch(name) else "entry"
        words.append(_cut(shown, _LONGEST) + ("" if name == ROUTING_MIME else f" ({len(value)} bytes)"))
    return ", ".join(words + ["…"] * (len(entries) > _MOST_ENTRIES))


def _terms(setup: Any) -> str:
    """Return the terms of a SETUP for a line; credentials are not among them."""
    if setup is None:
        return ""
    words = [f"metadata {setup.metadata_mime}", f"data {setup.data_mime}"] if hasattr(setup, "data_mime") else []
    for name, unit in (("keepalive_ms", "keepalive"), ("lifetime_ms", "lifetime")):
        if value := getattr(setup, name, 0):
            words.append(f"{unit} {value / 1000:g} s")
    words += ["lease"] * bool(getattr(setup, "lease", False))
    words += ["resumable"] * (getattr(setup, "token", None) is not None)
    return f": {quoted(', '.join(words), 4 * _LONGEST)}" if words else ""


def end_of(name: object) -> str:
    """Return the address of a socket for a line: host:port, or a path; "a local socket" if it has none."""
    if isinstance(name, tuple | list) and len(name) >= 2:
        return f"[{name[0]}]:{name[1]}" if ":" in str(name[0]) else f"{name[0]}:{name[1]}"
    return escaped(name) if isinstance(name, str) and name else "a local socket"


def quoted(text: str, longest: int = _LONGEST) -> str:
    """Return a peer's text for a line: at most ``longest`` characters, control characters escaped."""
    return escaped(_cut(text, longest))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
