"""Read a capture file as batches of packets, with bounded memory: a chunk of the file and one record.

Recognizes the format and the compression from the first bytes. Does not look into packets.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from os import PathLike
from typing import BinaryIO

from afflux.capture import pcap, pcapng
from afflux.capture.errors import CaptureError, Damaged, NoCapture, Problem
from afflux.capture.names import Names
from afflux.capture.packets import PAD, Packets
from afflux.capture.pcap import Pcap
from afflux.capture.pcapng import Pcapng
from afflux.capture.secrets import Secrets
from afflux.capture.source import CHUNK, Reader, Source, compression, no_capture
from afflux.core.limits import Limits

__all__ = ["Capture", "is_capture"]


def is_capture(start: bytes) -> bool:
    """Return whether a file with these first 10 bytes is a capture, or compressed so that it may be one."""
    return start[:4] in pcap.MAGIC or start[:4] == pcapng.MAGIC or compression(start) is not None


class Capture:
    """The packets of one capture file, read once, in order.

    Iterate over it, then look at ``problem``. A file that is still being written is read as far as it goes; the record
    that is being written counts as truncated.

    Args:
        file: a file or a pipe, open for reading bytes.
        limits: the bounds of section 7 of the limits; ``Limits.server()`` by default.
        chunk: bytes of the file in a batch.
        secrets: takes the TLS secrets in the file, in addition to those that it has.

    Raises:
        CaptureError: the file is not a capture, or its version is unsupported.
        MissingExtra: the file is compressed with zstd, and pyarrow is missing.
    """

    def __init__(
        self,
        file: BinaryIO | Reader,
        *,
        limits: Limits | None = None,
        chunk: int = CHUNK,
        secrets: Secrets | None = None,
    ) -> None:
        self.limits = Limits.server() if limits is None else limits
        self.secrets = Secrets(self.limits) if secrets is None else secrets
        "The TLS secrets in the blocks of the file that were read so far, and those of ``secrets``."
        self.names = Names(self.limits)
        "The names of addresses in the blocks of the file that were read so far."
        self.problem: Problem | None = None
        "Why reading ended before the end of the file; None if it did not."
        self.packets = 0
        "Packets read so far."
        self.bytes = 0
        "Bytes of the decompressed file that were read so far, to the end of the last whole record."
        name = getattr(file, "name", None)
        self.name = str(name) if isinstance(name, str | PathLike) else ""
        "The name of the file; empty if it has none."
        self._chunk = chunk
        try:
            self._source = Source(file, self.limits)
            self._rest = self._source.read(pcap.HEADER)
            self.format: Pcap | Pcapng = self._format(self._rest)
        except (Damaged, CaptureError) as error:
            text = error.text if isinstance(error, Damaged) else error.message
            kind = NoCapture if isinstance(error, NoCapture) else CaptureError
            raise kind(f"{self.name}: {text}" if self.name else text) from None

    def _format(self, start: bytes) -> Pcap | Pcapng:
        if start[:4] in pcap.MAGIC:
            self._rest, self.bytes = b"", pcap.HEADER
            return Pcap(start, self.limits)
        if start[:4] == pcapng.MAGIC:
            return Pcapng(start, self.limits, self.secrets, self.names)
        raise NoCapture(no_capture(start))

    def __iter__(self) -> Iterator[Packets]:
        try:
            yield from self._batches()
        except Damaged as damaged:
            self.problem = Problem(damaged.word, damaged.offset, damaged.text)

    def _batches(self) -> Iterator[Packets]:
        rest, ended = self._rest, False
        self._rest = b""
        while not ended:
            late: Damaged | None = None
            try:
                data = self._source.read(self._chunk)
            except Damaged as damaged:
                data, late = b"", damaged
            ended = not data
            if not ended:
                block, end = b"".join((rest, data, PAD)), len(rest) + len(data)
                rest = yield from self._cut(block, end)
            elif rest or late is not None:
                raise late or Damaged("truncated", self.bytes, "the last record is cut off")

    def _cut(self, block: bytes, end: int) -> Generator[Packets, None, bytes]:
        """Yield the packets of a block; return the rest of it, a part of a record."""
        at, offset = 0, self.bytes
        while True:
            packets, stop, damaged = self.format.cut(block, at, end, offset, self.packets)
            self.bytes = offset + stop
            if packets is not None:
                self.packets += len(packets)
                yield packets
            if damaged is not None:
                raise damaged
            if isinstance(self.format, Pcapng) and self.format.skip:
                missing, self.format.skip = self.format.skip, 0
                self._pass(missing)
                return b""
            if stop == at:
                return block[at:end]
            at = stop

    def _pass(self, size: int) -> None:
        """Read the rest of a block that is skipped."""
        while size:
            data = self._source.read(min(size, self._chunk))
            if not data:
                raise Damaged("truncated", self.bytes, "the last block is cut off")
            size -= len(data)
            self.bytes += len(data)
