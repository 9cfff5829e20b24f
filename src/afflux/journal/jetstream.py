"""Store the blocks of a journal in a NATS JetStream stream, each as one message.

Every append names the last sequence that it expects, so the server refuses it when another writer has appended. An
append whose answer was lost is repeated with the same message id; what is stored is read from the stream's leader, and
never guessed. Each message also contains what the writer must find again: head, size and note (messages.py).

JetStream acknowledges a message before it syncs it to disk: replicas protect it from the crash of a server, and the
server's ``sync_interval`` bounds what a loss of power may cost.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from afflux.journal.address import StreamAddress
from afflux.journal.blocks import Block, needs_check
from afflux.journal.contract import BlockInfo, Heads, Reader
from afflux.journal.errors import JournalDamaged, JournalMissing, JournalNoSpace, JournalTaken
from afflux.journal.link import Link, Lost, Refused
from afflux.journal.messages import MOST_NOTE_BYTES, Entry
from afflux.journal.stream import Ends, Stream

__all__ = ["JetStreamBackend"]

_ROOM_BYTES = 0x400
"Bytes of ``max_payload`` that are left for headers, the note apart."
_NOTE_PART = 8
"A note has at most this part of ``max_payload``."
_WRONG_LAST = 10071
_FULL_BYTES = 0x10000
_FULL_ITEMS = 4
"A journal is called full if it has less room than these bytes, or than these items of the last size."
_STUCK = 3
"Attempts after which a message gets another id, because the server takes it for stored and does not have it."


class JetStreamBackend:
    """A journal's stream; created if it is missing. See :class:`afflux.journal.contract.Backend`.

    Args:
        address: the stream, or its text.
        key: identifies the stream; stored in a new journal, compared with that of an existing one, unless it is None.
        epoch: the epoch of a new journal; chosen at random if None.
        link: the connection to use, which the caller closes; None for one of its own.
        follow: do not create it; ``refresh`` also finds what another process has appended, and this object appends
            nothing.
        journal_bytes: the limit of the journal, recorded for readers; 0 if there is none.

    Raises:
        AddressError: the address is invalid.
        MissingExtra: nats-py is not installed.
        JournalAway: the servers do not answer.
        JournalDamaged: messages are missing, or one was written by another program.
        JournalError: the name is taken by a stream that is not a journal, or not this one; or there is no JetStream.
    """

    heads: Heads
    "The state as of the last change or ``refresh``."

    def __init__(
        self,
        address: StreamAddress | str,
        *,
        key: bytes | None = b"",
        epoch: int | None = None,
        link: Link | None = None,
        follow: bool = False,
        journal_bytes: int = 0,
    ) -> None:
        self.address = address if isinstance(address, StreamAddress) else StreamAddress.parse(address)
        self.name = self.address.stream
        self.path = Path(self.name)
        self._own = link is None
        self._follow = follow
        self._limit = journal_bytes
        self._link = link or Link(self.address)
        self._stream = Stream(self._link, self.name, follow=follow)
        self._writer = 1 + secrets.randbelow((1 << 63) - 1)
        self._number = 0
        self._last: Entry | None = None
        self._sequence = 0
        try:
            if not self._link.run(self._stream.open(key=key, epoch=epoch, create=not follow)):
                raise JournalMissing(self.path, f"there is no stream {self.address}")
            self._adopt(self._link.run(self._stream.ends()))
        except BaseException:
            self.close()
            raise

    @property
    def most_bytes(self) -> int:
        """The most bytes of the body of a block."""
        return max(0, self._link.max_payload - _ROOM_BYTES - self._most_note_bytes * 4 // 3)

    @property
    def _most_note_bytes(self) -> int:
        return min(MOST_NOTE_BYTES, self._link.max_payload // _NOTE_PART)

    @property
    def is_full(self) -> bool:
        """Whether the journal has little room, by the limit of its writer and the sizes of its last items."""
        last = self._last
        if last is None or not last.limit or last.sealed:
            return False
        return last.limit - self.heads.size < max(_FULL_BYTES, _FULL_ITEMS * last.body_bytes // max(1, last.count))

    def close(self) -> None:
        """Close the connection, if it is the backend's own."""
        if self._own:
            self._link.close()

    def remove(self) -> None:
        """Delete the streams, and close."""
        self._link.run(self._stream.remove())
        self.close()

    # Writing: the caller holds a lock.

    def append(self, blocks: Sequence[Block]) -> None:
        """Store blocks, in order: after an error, ``heads`` tells how many."""
        head = self.heads.head
        if blocks and blocks[0].first != head:
            raise ValueError(f"a block at {blocks[0].first} cannot be appended at the head {head}")
        total = self._last.total if self._last else 0
        entries: list[Entry] = []
        for block in blocks:
            total += block.charge
            entries.append(self._entry(block, total))
        self._store(entries)

    def remember(self, note: bytes) -> None:
        """Store the note in a marker, and in each message that follows."""
        if len(note) > (most := self._most_note_bytes):
            raise self._stream.error(f"a note of {len(note)} bytes is too large: at most {most}")
        self._store([self._entry(note=note)])

    def seal(self) -> None:
        """Store a marker that no message follows."""
        if not self.heads.sealed:
            self._store([self._entry(sealed=True)])

    def trim(self, offset: int) -> None:
        """Delete the messages before that of ``offset``; a marker remains after all blocks."""
        if offset <= self.heads.first:
            return
        if self._follow and offset >= self.heads.head:
            self._trim_to(self._last)
        elif offset >= self.heads.head:
            try:
                self._store([self._entry()])
            except JournalNoSpace:
                self._trim_to(self._last)
                self._store([self._entry()])
            self._link.run(self._stream.purge(self._sequence))
            self.heads = replace(self.heads, first=self.heads.head, size=0)
        else:
            found = self._link.run(self._stream.locate(offset))
            if found is None:
                raise self._stream.missing(offset)
            self._trim_to(found)

    def _trim_to(self, entry: Entry | None) -> None:
        """Delete the messages before ``entry``."""
        if entry is not None and self._last is not None:
            self._link.run(self._stream.purge(entry.sequence))
            size = self._last.total - entry.total + entry.charge
            self.heads = replace(self.heads, first=entry.first, size=size)

    def register(self, reader: Reader | None) -> None:
        """Store the reader."""
        self._link.run(self._stream.register(reader))
        self.heads = replace(self.heads, reader=reader)

    def refresh(self) -> None:
        """Learn what other processes have trimmed, and the reader."""
        self._link.run(self._link.patiently(self._stream.look_at_reader))
        ends = self._link.run(self._stream.ends())
        if self._follow:
            self._adopt(ends)
            return
        first, size = self.heads.head, 0
        if self._last is not None and ends.first is not None and ends.first.sequence <= self._sequence:
            first, size = ends.lowest, replace(ends, last=self._last).size
        self.heads = replace(self.heads, first=first, size=size, reader=self._stream.reader)

    def _adopt(self, ends: Ends) -> None:
        """Take the state of the stream, to which this object has not appended yet."""
        last = self._last = ends.last
        self._sequence = ends.last_sequence
        if last is None and self._sequence:
            raise self._stream.missing(0)
        self.heads = Heads(
            epoch=self._stream.epoch,
            key=self._stream.key,
            sealed=last is not None and last.sealed,
            first=ends.lowest,
            head=ends.head,
            size=ends.size,
            time_us=0 if last is None else last.time_us,
            reader=self._stream.reader,
            note=b"" if last is None else last.note,
        )

    def _entry(
        self, block: Block | None = None, total: int | None = None, *, note: bytes | None = None, sealed: bool = False
    ) -> Entry:
        """Return the message of a block; a marker without one."""
        heads, last = self.heads, self._last
        self._number += 1
        marker = Entry(
            epoch=heads.epoch, first=heads.head, count=0, time_us=heads.time_us, crc=0,
            total=last.total if last and total is None else total or 0, sealed=sealed or heads.sealed,
            limit=self._limit, writer=self._writer, number=self._number,
            note=heads.note if note is None else note, body_bytes=0,
        )  # fmt: skip
        if block is None:
            return marker
        return replace(
            marker, first=block.first, count=block.stored, time_us=block.time_us, crc=block.crc, body=block.body,
            metadata_bytes=block.metadata_bytes, body_bytes=len(block.body),
        )  # fmt: skip

    def _store(self, entries: list[Entry]) -> None:
        before = self._sequence
        try:
            self._link.run(self._store_all(entries))
        finally:
            self._stored(entries, self._sequence - before)

    def _stored(self, entries: list[Entry], count: int) -> None:
        """Record that the first ``count`` messages are stored."""
        if not count:
            return
        last = self._last = replace(entries[count - 1], sequence=self._sequence, body=b"")
        charge = sum(entry.charge for entry in entries[:count])
        self.heads = replace(
            self.heads, head=last.end, size=self.heads.size + charge, time_us=last.time_us, sealed=last.sealed,
            note=last.note,
        )  # fmt: skip
        self._stream.places.known(last.end, self._sequence + 1)

    # On the link's loop.

    async def _store_all(self, entries: list[Entry]) -> None:
        """Publish messages, and again what is not stored after a failure."""
        start, stuck = self._sequence, 0

        async def attempt() -> None:
            nonlocal stuck
            stored = self._sequence - start
            try:
                await self._publish(entries[stored:], "" if stuck < _STUCK else f".{stuck}")
            except (Lost, Refused, JournalNoSpace) as error:
                stuck = 0 if await self._settle(entries[stored:]) else stuck + 1
                if self._sequence - start == len(entries):
                    return
                if isinstance(error, JournalNoSpace):
                    raise
                if isinstance(error, Refused) and error.code != _WRONG_LAST:
                    raise self._stream.error(f"JetStream refuses a message: {error}") from None
                raise Lost(f"a message was not stored: {error}") from error

        await self._link.patiently(attempt)

    async def _publish(self, entries: list[Entry], suffix: str) -> None:
        """Publish messages, each after the answer to the one before: ``_sequence`` advances with each answer.

        A message that was sent ahead would expect a sequence that another writer's message may get meanwhile.

        Raises:
            Lost: an answer is missing or contradictory.
            Refused: the server has refused one.
        """
        for entry in entries:
            headers = entry.headers() | {
                "Nats-Msg-Id": entry.id + suffix,
                "Nats-Expected-Last-Sequence": str(self._sequence),
                "Nats-Expected-Stream": self.name,
            }
            sequence, _ = await self._link.publish(f"{self.name}.blocks", entry.body, headers)
            if sequence != self._sequence + 1:
                raise Lost(f"JetStream has answered with sequence {sequence} instead of {self._sequence + 1}")
            self._sequence = sequence

    async def _settle(self, entries: list[Entry]) -> bool:
        """Read from the leader how many of the messages are stored; return whether there is progress.

        Raises:
            Lost: the leader does not answer, or has less than it had.
            JournalTaken: another writer has appended.
            JournalError: the stream was removed.
        """
        last = await self._stream.last()
        sequence = 0 if last is None else last.sequence
        if last is not None and sequence > self._sequence:
            if last.writer != self._writer or last.number not in {entry.number for entry in entries}:
                text = f"another writer has appended message {sequence}; one writer at a time may use a journal"
                raise JournalTaken(self.path, text)
            self._sequence = sequence
            return True
        if self._last is not None and sequence < self._last.sequence:
            raise Lost(f"the stream ends at message {sequence}, but had {self._last.sequence}")
        return False

    # Reading: from any thread.

    def read_blocks(self, start: int, stop: int, unchecked: int = 0) -> Generator[Block, None, None]:
        """Yield blocks. More are requested ahead while the generator is used."""
        with closing(self._stream.read(start, stop)) as entries:
            for entry in entries:
                block = entry.block()
                if needs_check(block, start, stop, unchecked) and not block.is_intact():
                    text = f"the checksum of the block at offset {block.first} is wrong (message {entry.sequence})"
                    raise JournalDamaged(self.path, text)
                yield block

    def index(self) -> Generator[BlockInfo, None, None]:
        """Yield the blocks without their items."""
        heads = self.heads
        if heads.first < heads.head:
            with closing(self._stream.read(heads.first, heads.head)) as entries:
                for entry in entries:
                    yield entry.info
