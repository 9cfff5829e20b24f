"""Choose where a server stores its journals: files of a directory, or streams of a NATS cluster."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from afflux.core.limits import Limits
from afflux.journal.address import StreamAddress, is_stream_address
from afflux.journal.database import OnDamage
from afflux.journal.store import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from afflux.journal.jetstream import JetStreamBackend
    from afflux.journal.link import Link

__all__ = ["Directory", "Place", "Streams", "place_of"]


class Place(Protocol):
    """Journals by name. The methods block; any thread may call them."""

    def prepare(self) -> None:
        """Fail now if the place cannot be used.

        Raises:
            OSError: the directory cannot be created.
            JournalError: the servers cannot be used.
        """

    def names(self) -> set[str]:
        """Return the names of the journals."""
        ...

    def open(self, name: str, *, limits: Limits, key: bytes, on_damage: OnDamage = "refuse") -> Journal:
        """Open a journal; create it if it is missing. Raises as :class:`Journal` does."""
        ...

    def close(self) -> None:
        """Release what the journals have shared, when all are closed."""


def place_of(where: str | Path) -> Place:
    """Return the place of a directory, or of an address ``nats://host/STREAM``.

    Raises:
        AddressError: the address is invalid.
    """
    return Streams(StreamAddress.parse(where)) if is_stream_address(where) else Directory(Path(where))


class Directory:
    """The files ``NAME.journal`` of a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """Create the directory."""
        self.path.mkdir(parents=True, exist_ok=True)

    def names(self) -> set[str]:
        """Return the names of the files."""
        return {path.stem for path in self.path.glob("*.journal")} if self.path.exists() else set()

    def open(self, name: str, *, limits: Limits, key: bytes, on_damage: OnDamage = "refuse") -> Journal:
        """Open a file."""
        return Journal(self.path / f"{name}.journal", limits=limits, key=key, on_damage=on_damage)

    def close(self) -> None:
        """No-op."""


class Streams:
    """The stream of an address, whose name is ``0``, and the streams ``STREAM-NAME``, over one connection."""

    def __init__(self, address: StreamAddress) -> None:
        self.address = address
        self._link: Link | None = None
        self._lock = threading.Lock()

    @property
    def link(self) -> Link:
        """The connection."""
        from afflux.journal.link import Link

        with self._lock:
            if self._link is None:
                self._link = Link(self.address)
            return self._link

    def prepare(self) -> None:
        """Connect, and ask for JetStream."""
        link = self.link
        link.run(link.patiently(lambda: link.api("INFO")))

    def names(self) -> set[str]:
        """Return the names of the streams."""
        prefix, suffix = f"{self.address.stream}-", "-reader"
        link = self.link
        found = link.run(link.patiently(lambda: _names(link)))
        own = {name.removeprefix(prefix) for name in found if name.startswith(prefix) and not name.endswith(suffix)}
        return own | ({"0"} if self.address.stream in found else set())

    def followed(self) -> Iterator[JetStreamBackend]:
        """Yield each stream, opened to look at it."""
        from afflux.journal.jetstream import JetStreamBackend

        for name in sorted(self.names()):
            address = self.address.sibling("" if name == "0" else name)
            yield JetStreamBackend(address, key=None, link=self.link, follow=True)

    def open(self, name: str, *, limits: Limits, key: bytes, on_damage: OnDamage = "refuse") -> Journal:
        """Open a stream. ``on_damage`` is for files: a damaged stream is always refused."""
        from afflux.journal.jetstream import JetStreamBackend

        address = self.address.sibling("" if name == "0" else name)
        backend = JetStreamBackend(address, key=key, link=self.link, journal_bytes=limits.journal_bytes)
        return Journal(backend, limits=limits)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            link = self._link
        if link is not None:
            link.close()  # waits for the thread of the link


async def _names(link: Link) -> set[str]:
    found: set[str] = set()
    total = 1
    while len(found) < total:
        answer = await link.api("STREAM.NAMES", {"offset": len(found)})
        total, page = int(answer.get("total", 0)), answer.get("streams") or []
        found.update(page)
        if not page:
            break
    return found
