"""Create, check and read the JetStream stream of a journal. Writing is in jetstream.py.

A journal is two streams: ``NAME``, whose messages are the blocks in order (messages.py), with subject ``NAME.blocks``;
and ``NAME-reader``, which has at most one message: the registered reader. Only the journal's writer appends to the
first, so that each append names the last sequence that it expects; any process may register a reader in the second.

The description of ``NAME`` contains the epoch and the key of the journal, so it has both or does not exist. The stream
never discards by itself (``discard=new``, no age): items that are not read cannot vanish.
"""

from __future__ import annotations

import json
import secrets
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afflux.journal.contract import Reader
from afflux.journal.errors import AnotherStream, JournalDamaged, JournalError, JournalLocked
from afflux.journal.link import Link, Lost, Message, Refused
from afflux.journal.loops import Started
from afflux.journal.messages import Entry, Malformed

__all__ = ["Ends", "Stream"]

_VERSION = 1
_NOT_FOUND = 10059
_NAME_TAKEN = 10058
_SUBJECTS_TAKEN = 10065
_WRONG_LAST = 10071
_AHEAD = 8
"The most blocks that are requested together."
_GROUPS = 2
"The most groups of blocks that are requested ahead of a reader."
_ANCHORS = 4096
"The most known places of offsets."
_RESTORE = "restore a copy of the stream, or remove it to start empty"
_FIXED: dict[str, Any] = {
    "retention": "limits", "discard": "new", "storage": "file", "allow_direct": True, "max_age": 0, "max_msgs": -1,
    "max_msgs_per_subject": -1,
}  # fmt: skip
"The configuration on which the promises of a journal rest."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The two ends of the stored messages."""

    last_sequence: int
    "The sequence of the last message ever stored."
    first: Entry | None
    "The first block; None if there is none."
    last: Entry | None
    "The last message; None before the first one."

    @property
    def head(self) -> int:
        """The offset after the last item."""
        return 0 if self.last is None else self.last.end

    @property
    def lowest(self) -> int:
        """The lowest stored offset."""
        return self.head if self.first is None else self.first.first

    @property
    def size(self) -> int:
        """The charge of all stored blocks."""
        if self.last is None or self.first is None:
            return 0
        return self.last.total - self.first.total + self.first.charge


class Places:
    """Known places of offsets: the item at an offset is in no message before a sequence. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offsets: list[int] = []
        self._sequences: list[int] = []

    def known(self, offset: int, sequence: int) -> None:
        """Remember that the item at ``offset`` is in no message before ``sequence``."""
        with self._lock:
            at = bisect_right(self._offsets, offset)
            if at and self._offsets[at - 1] == offset:
                self._sequences[at - 1] = sequence
                return
            self._offsets.insert(at, offset)
            self._sequences.insert(at, sequence)
            if len(self._offsets) > _ANCHORS:
                del self._offsets[1:-1:2], self._sequences[1:-1:2]

    def forget(self) -> None:
        """Forget all places."""
        with self._lock:
            self._offsets.clear()
            self._sequences.clear()

    def between(self, offset: int) -> tuple[int, int, tuple[int, int] | None]:
        """Return the offset and sequence of the last known place up to ``offset``, and the next one."""
        with self._lock:
            at = bisect_right(self._offsets, offset)
            before = (self._offsets[at - 1], self._sequences[at - 1]) if at else (0, 1)
            after = (self._offsets[at], self._sequences[at]) if at < len(self._offsets) else None
        return (*before, after)


class Stream:
    """The stream of one journal. Its coroutines run on the link's loop; all other methods may run in any thread.

    Args:
        link: the connection.
        name: the stream.
        follow: continue when the stream was removed and created again, with the new epoch.
    """

    def __init__(self, link: Link, name: str, *, follow: bool = False) -> None:
        self.link = link
        self.name = name
        self.path = Path(name)
        "The name of the journal in errors."
        self._follow = follow
        self.epoch = 0
        self.key = b""
        self.reader: Reader | None = None
        "The registered reader, as of the last look."
        self._reader_sequence = 0
        self.places = Places()

    # -- the streams ----------------------------------------------------------------------------------------------

    async def open(self, *, key: bytes | None, epoch: int | None, create: bool) -> bool:
        """Check the streams, and create them if they are missing. Returns whether there is a journal.

        Raises:
            JournalError: the name is taken by another stream, or the journal is one of another key.
        """
        info = await self.link.patiently(self._info)
        if info is None and not create:
            return False
        if info is None:
            info = await self.link.patiently(lambda: self._create(key or b"", epoch))
        self._check(info["config"])
        if key is not None and key != self.key:
            raise AnotherStream(self.path, "it contains another stream; choose another name", self.key)
        await self.link.patiently(self._open_reader)
        return True

    async def remove(self) -> None:
        """Delete both streams."""
        for name in (self.name, f"{self.name}-reader"):
            await self.link.patiently(lambda name=name: self._delete(name))  # type: ignore[misc] # mypy: a default

    async def _delete(self, name: str) -> None:
        try:
            await self.link.api(f"STREAM.DELETE.{name}")
        except Refused as refused:
            if refused.code != _NOT_FOUND:
                raise self.error(f"it cannot be deleted: {refused}") from None

    async def _info(self) -> dict[str, Any] | None:
        try:
            return await self.link.api(f"STREAM.INFO.{self.name}")
        except Refused as refused:
            if refused.code == _NOT_FOUND:
                return None
            raise self.error(str(refused)) from None

    async def _create(self, key: bytes, epoch: int | None) -> dict[str, Any]:
        epoch = epoch or 1 + secrets.randbelow((1 << 63) - 1)
        about = json.dumps({"afflux": _VERSION, "epoch": f"{epoch:x}", "key": key.hex()})
        config = _FIXED | {
            "name": self.name,
            "subjects": [f"{self.name}.blocks"],
            "description": about,
            "num_replicas": self.link.address.replicas or 1,
        }
        try:
            return await self.link.api(f"STREAM.CREATE.{self.name}", config)
        except Refused as refused:
            if refused.code == _NAME_TAKEN and (found := await self._info()) is not None:
                return found  # another process has created it at the same time
            if refused.code == _SUBJECTS_TAKEN:
                text = f'another stream has its subject "{self.name}.blocks"; choose another name'
                raise self.error(text) from None
            raise self.error(f"JetStream refuses to create it: {refused}") from None

    def _check(self, config: dict[str, Any]) -> None:
        try:
            about = json.loads(config.get("description", ""))
            version = about["afflux"]
            if version != _VERSION:
                raise self.error(f"its version is {version}, this afflux reads {_VERSION}; update afflux")
            epoch, key = int(about["epoch"], 16), bytes.fromhex(about["key"])
        except (ValueError, KeyError, TypeError):
            raise self.error("the stream is not a journal of afflux; choose another name") from None
        if epoch != self.epoch and self.epoch:
            if not self._follow:
                raise self.error("the stream was removed and created again")
            self.places.forget()
        self.epoch, self.key = epoch, key
        for name, wanted in (_FIXED | {"subjects": [f"{self.name}.blocks"]}).items():
            if (found := config.get(name, wanted)) != wanted:
                text = f"the stream has {name}={found}, and a journal needs {wanted}, so that nothing is lost silently"
                raise self.error(f"{text}; change it, for example by: nats stream edit {self.name}")
        wanted = self.link.address.replicas
        if wanted is not None and config.get("num_replicas", 1) < wanted:
            text = f"the stream has {config.get('num_replicas', 1)} replicas, and the address wants {wanted}"
            raise self.error(f"{text}; change it, for example by: nats stream edit {self.name} --replicas {wanted}")

    # -- the reader -----------------------------------------------------------------------------------------------

    async def _open_reader(self) -> None:
        name = f"{self.name}-reader"
        config = _FIXED | {
            "name": name,
            "subjects": [f"{self.name}.reader"],
            "description": json.dumps({"afflux": _VERSION, "epoch": f"{self.epoch:x}"}),
            "max_msgs_per_subject": 1,
            "discard": "old",
            "num_replicas": self.link.address.replicas or 1,
        }
        try:
            found = (await self.link.api(f"STREAM.INFO.{name}"))["config"]
        except Refused as refused:
            if refused.code != _NOT_FOUND:
                raise self.error(str(refused)) from None
            try:
                await self.link.api(f"STREAM.CREATE.{name}", config)
            except Refused as again:
                if again.code != _NAME_TAKEN:
                    raise self.error(f"JetStream refuses to create {name}: {again}") from None
                raise Lost(f"the stream {name} is being created") from None
            found = config
        if found.get("description") != config["description"]:
            if not str(found.get("description", "")).startswith('{"afflux"'):
                raise self.error(f"the name of its stream {name} is taken; choose another name")
            await self._delete(name)  # of a journal that was removed
            raise Lost(f"the stream {name} belonged to a former journal")
        await self.look_at_reader()

    async def look_at_reader(self) -> None:
        """Read the registered reader. Raises as ``Link.api`` does."""
        found = await self.link.stored(f"{self.name}-reader", {"last_by_subj": f"{self.name}.reader"})
        self._reader_sequence = 0 if found is None else found.sequence
        try:
            value = json.loads(found.data) if found is not None else None
            self.reader = None if value is None else Reader(str(value["name"]), int(value["owner"]))
        except (ValueError, KeyError, TypeError):
            raise JournalDamaged(
                self.path, f"the message in {self.name}-reader is not a reader; remove that stream"
            ) from None

    async def register(self, reader: Reader | None) -> None:
        """Store the reader, unless another process has changed it since the last look.

        Raises:
            JournalLocked: another process has.
        """
        value = None if reader is None else {"name": reader.name, "owner": reader.owner}

        async def attempt() -> None:
            headers = {"Nats-Expected-Last-Sequence": str(self._reader_sequence)}
            try:
                sequence, _ = await self.link.publish(f"{self.name}.reader", json.dumps(value).encode(), headers)
            except Refused as refused:
                if refused.code != _WRONG_LAST:
                    raise self.error(f"JetStream refuses the reader: {refused}") from None
                await self.look_at_reader()
                if self.reader != reader:  # not an earlier attempt whose answer was lost
                    text = "another process has changed its reader at the same time; try again"
                    raise JournalLocked(self.path, text) from None
            else:
                self._reader_sequence, self.reader = sequence, reader

        await self.link.patiently(attempt)

    # -- the ends -------------------------------------------------------------------------------------------------

    async def ends(self) -> Ends:
        """Read the ends from the stream's leader.

        Raises:
            JournalDamaged: a message was written by another program, or messages are missing.
        """
        return await self.link.patiently(self._ends)

    async def _ends(self) -> Ends:
        info = await self._info()
        if info is None:
            raise self.error("the stream was removed")
        self._check(info["config"])
        state = info["state"]
        found = await self.last()
        first = await self.after(state["first_seq"]) if found is not None else None
        while first is not None and not first.count:
            first = await self.after(first.sequence + 1)
        return Ends(last_sequence=state["last_seq"], first=first, last=found)

    async def last(self) -> Entry | None:
        """Return the last message, from the leader. Raises as ``Link.api`` does."""
        found = self._entry(await self._leader({"last_by_subj": f"{self.name}.blocks"}))
        if found is None and (info := await self._info()) is not None and info["state"]["messages"]:
            found = await self._before(info["state"]["last_seq"])  # the server's index is wrong after a deletion
        return found

    async def _before(self, sequence: int) -> Entry | None:
        """Return the last message up to ``sequence``."""
        step, found = 1, None
        while found is None and step < 2 * sequence:
            found = await self.after(sequence - step)
            step *= 2
        while found is not None and (later := await self.after(found.sequence + 1)) is not None:
            found = later
        return found

    async def after(self, sequence: int) -> Entry | None:
        """Return the first message that is left from ``sequence`` on, from the leader. Raises as ``Link.api`` does."""
        return self._entry(await self._leader(self._next(sequence)))

    async def _leader(self, body: object) -> Message | None:
        try:
            return await self.link.stored(self.name, body)
        except Refused as refused:
            raise self.error(f"JetStream cannot read it: {refused}") from None

    def _entry(self, message: Message | None, body_bytes: int | None = None) -> Entry | None:
        if message is None:
            return None
        try:
            entry = Entry.parse(message.sequence, message.headers, message.data, body_bytes)
            if entry.epoch != self.epoch:
                raise Malformed(f"its epoch is {entry.epoch:x}, that of the stream {self.epoch:x}")
        except Malformed as error:
            raise JournalDamaged(
                self.path,
                f"message {message.sequence} was not written by a journal: {error}; remove it, for example by: "
                f"nats stream rmm {self.name} {message.sequence}",
            ) from None
        if entry.count:
            self.places.known(entry.first, entry.sequence)
        self.places.known(entry.end, entry.sequence + 1)
        return entry

    async def purge(self, sequence: int) -> None:
        """Delete the messages before ``sequence``."""

        async def attempt() -> None:
            try:
                await self.link.api(f"STREAM.PURGE.{self.name}", {"seq": sequence})
            except Refused as refused:
                raise self.error(f"JetStream refuses to trim it: {refused}") from None

        await self.link.patiently(attempt)

    # -- places of offsets ------------------------------------------------------------------------------------------

    async def locate(self, offset: int) -> Entry | None:
        """Return the block that contains ``offset``, by interpolation between known places; None if none does."""
        low, lowest, after = self.places.between(offset)
        if after is None:
            last = await self.link.patiently(self.last)
            if last is None or offset >= last.end:
                return None
            after = last.end, last.sequence + 1
        high, highest = after[0], after[1] - 1
        halve = False
        while lowest <= highest:
            part = 0.5 if halve else (offset - low) / max(1, high - low)
            guess = min(highest, lowest + int((highest - lowest + 1) * part))
            halve = not halve
            entry = await self.entry(guess)
            if entry is None or entry.sequence > highest or entry.first > offset:
                highest, high = guess - 1, high if entry is None else min(high, entry.first)
            elif entry.end <= offset:
                lowest, low = entry.sequence + 1, entry.end
            else:
                return entry
        return None

    async def entry(self, sequence: int) -> Entry | None:
        """Return the first message that is left from ``sequence`` on, from any server that has it, else the leader."""

        async def attempt() -> Entry | None:
            found = await self.link.direct(self.name, self._next(sequence))
            return await self.after(sequence) if found is None else self._entry(found)

        return await self.link.patiently(attempt)

    async def entries(self, sequence: int, count: int) -> list[Entry | None]:
        """Return :meth:`entry` for each of ``count`` sequences, requested together."""
        sequences = range(sequence, sequence + count)

        async def attempt() -> list[Entry | None]:
            messages = await self.link.direct_all(self.name, [self._next(each) for each in sequences])
            return [
                await self.after(each) if message is None else self._entry(message)
                for each, message in zip(sequences, messages, strict=True)
            ]

        return await self.link.patiently(attempt)

    def _next(self, sequence: int) -> dict[str, Any]:
        return {"seq": max(1, sequence), "next_by_subj": f"{self.name}.blocks"}

    # -- from any thread --------------------------------------------------------------------------------------------

    def read(self, start: int, stop: int) -> Generator[Entry, None, None]:
        """Yield the messages of the blocks that contain the offsets from ``start`` to before ``stop``.

        Raises:
            JournalDamaged: a block is missing, or a message is not one of this journal.
        """
        if start >= stop:
            return
        entry = self.link.run(self.locate(start))
        if entry is None:  # a server that has lost its last messages may have given their numbers again
            self.places.forget()
            entry = self.link.run(self.locate(start))
        expected = start
        with closing(_Ahead(self, 1 if entry is None else entry.sequence + 1)) as ahead:
            while True:
                if entry is None or not entry.first <= expected < entry.end:
                    raise self.missing(expected)
                yield entry
                expected = entry.end
                if expected >= stop:
                    return
                entry = ahead.next(-(-(stop - expected) // entry.count))

    def missing(self, offset: int) -> JournalDamaged:
        """Return the error for an offset that is not stored."""
        return JournalDamaged(self.path, f"the block with offset {offset} is missing; {_RESTORE}")

    def error(self, reason: str) -> JournalError:
        """Return an error of this journal."""
        return JournalError(self.path, reason)


class _Ahead:
    """Blocks in their order, requested ahead in growing groups."""

    def __init__(self, stream: Stream, sequence: int) -> None:
        self._stream = stream
        self._asked = sequence
        self._last = sequence - 1
        self._width = 1
        self._waiting: deque[tuple[Started[list[Entry | None]], int]] = deque()
        self._ready: deque[Entry | None] = deque()

    def next(self, needed: int) -> Entry | None:
        """Return the next block; None if there is none. About ``needed`` of them will be used."""
        link = self._stream.link
        while True:
            there = len(self._ready) + sum(count for _, count in self._waiting)
            while len(self._waiting) < _GROUPS and (there < needed or not there):
                count = max(1, min(self._width, needed - there))
                self._waiting.append((link.start(self._stream.entries(self._asked, count)), count))
                self._asked += count
                self._width = min(2 * self._width, _AHEAD)
                there += count
            if not self._ready:
                group = link.result(self._waiting.popleft()[0])
                self._ready.extend(group)
            found = self._ready.popleft()
            if found is None:
                return None
            self._asked = max(self._asked, found.sequence + 1)
            if found.sequence > self._last:  # a missing message is answered with the one after it
                self._last = found.sequence
                if found.count:
                    return found

    def close(self) -> None:
        """Cancel what was requested."""
        for started, _ in self._waiting:
            started.cancel()
