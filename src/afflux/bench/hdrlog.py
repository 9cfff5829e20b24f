"""Encode and decode histograms in HdrHistogram's compressed format (V2), and write its log lines.

HdrHistogram tools of any language can read and merge the result.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from struct import Struct, error

from afflux.bench.histogram import Histogram

__all__ = ["HEADER", "decode", "encode", "line"]

_OUTER = Struct(">II")
_INNER = Struct(">IIIIqqd")
_COMPRESSED = 0x1C849314
_PLAIN = 0x1C849313
_MOST_BYTES = 9
"Maximum bytes of a number; the ninth has eight bits."

_MOST = 0x400_0000
"Maximum size of a decompressed histogram: 64 MiB."

HEADER = (
    "#[Histogram log format version 1.3]\n"
    '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'
)
"The first lines of a log."


def encode(histogram: Histogram) -> bytes:
    """Encode a histogram in compressed V2. Minimum and maximum are rounded to the histogram's precision."""
    body = b"".join(_numbers(histogram.counts()))
    inner = _INNER.pack(_PLAIN, len(body), 0, histogram.digits, histogram.lowest, histogram.highest, 1.0)
    packed = zlib.compress(inner + body)
    return _OUTER.pack(_COMPRESSED, len(packed)) + packed


def decode(data: bytes) -> Histogram:
    """Decode a histogram.

    Raises:
        ValueError: ``data`` is not a V2 histogram, or is damaged.
    """
    try:
        cookie, size = _OUTER.unpack_from(data)
        if cookie != _COMPRESSED or size != len(data) - _OUTER.size:
            raise ValueError("not a compressed histogram (V2)")
        inflate = zlib.decompressobj()
        plain = inflate.decompress(data[_OUTER.size :], _MOST)
        cookie, size, offset, digits, lowest, highest, _ = _INNER.unpack_from(plain)
        if cookie != _PLAIN or offset or size != len(plain) - _INNER.size:
            raise ValueError("not a histogram (V2)")
        histogram = Histogram(highest, digits, lowest)
        histogram.set_counts(_counts(plain[_INNER.size :], histogram.slots))
    except (error, zlib.error, IndexError) as failure:
        raise ValueError(f"damaged histogram: {failure}") from None
    return histogram


def line(histogram: Histogram, tag: str, start: float, length: float) -> str:
    """Return one log line.

    Args:
        histogram: in nanoseconds; the log shows its maximum in milliseconds.
        tag: the name of the series; commas and spaces become ``_``.
        start: seconds since 1970.
        length: duration of the measurement in seconds.
    """
    tag = "_".join(tag.replace(",", " ").split())
    most = f"{start:.3f},{length:.3f},{histogram.max / 1e6:.3f}"
    return f"Tag={tag},{most},{b64encode(encode(histogram)).decode()}\n"


def _numbers(counts: Iterable[int]) -> Iterator[bytes]:
    """Encode counts as ZigZag LEB128; -n encodes n zeros."""
    zeros = 0
    for count in counts:
        if count == 0:
            zeros += 1
            continue
        if zeros:
            yield _varint(2 * zeros - 1)
            zeros = 0
        yield _varint(2 * count)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F and len(made) < _MOST_BYTES - 1:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _counts(data: bytes, most: int) -> Iterator[int]:
    """Decode the counts, including zeros, up to ``most`` of them."""
    at = seen = 0
    while at < len(data):
        value = shift = 0
        for size in range(_MOST_BYTES):
            byte = data[at]
            at += 1
            last = size == _MOST_BYTES - 1
            value |= (byte if last else byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or last:
                break
        number = value >> 1 ^ -(value & 1)
        seen += max(1, -number)
        if seen > most:
            raise ValueError(f"damaged histogram: more than {most} counts")
        if number > 0:
            yield number
        else:
            yield from (0 for _ in range(max(1, -number)))
