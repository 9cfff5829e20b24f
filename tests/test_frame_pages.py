"""Checks the pages of frames, which tools/frame_pages.py writes from their declarations. Rule numbers are RSocket's."""

from __future__ import annotations

import pytest
from tools.frame_pages import bit_diagram, field_docs, frame_page, reference_page

from afflux.protocols.reactivesocket.frames import RequestChannel
from afflux.protocols.rsocket.frames import FRAMES, Keepalive, Lease, PayloadFrame, RequestN, Setup

REQUEST_N = """\
 0                   1                   2                   3
 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|0|                            stream                           |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
| Type 0x08 |I|        0        |0|             ...             |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|               n               |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+"""

SETUP_FIELDS = """\
|          lifetime_ms          |      token length (if R)      |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|                          token (if R)                         |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|     length    |
+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
|                         metadata_mime                         |
"""


def test_a_diagram_is_drawn_from_the_declaration() -> None:
    assert bit_diagram(RequestN) == REQUEST_N
    assert SETUP_FIELDS in bit_diagram(Setup)
    assert "| Type 0x0A |I|M|F|C|N|    0    |" in bit_diagram(PayloadFrame)
    assert "| Type 0x03 |I|0|R|      0      |" in bit_diagram(Keepalive)
    assert "metadata, to the end" in bit_diagram(Lease)


def test_a_field_that_a_flag_brings() -> None:
    """The first items of a channel have it, the others do not."""
    assert "|0|                       initial_n (if N)                      |" in bit_diagram(RequestChannel)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=lambda frame: frame.NAME)
def test_no_diagram_has_a_ragged_row(frame: type[PayloadFrame]) -> None:
    rows = bit_diagram(frame).splitlines()[2:]
    assert {row[0] + row[-1] for row in rows} == {"++", "||"}
    assert max(len(row) for row in rows) == 65


@pytest.mark.parametrize("frame", FRAMES.values(), ids=lambda frame: frame.NAME)
def test_every_field_of_every_frame_has_a_sentence(frame: type[PayloadFrame]) -> None:
    docs = field_docs(frame)
    for field in frame.LAYOUT:
        if field.kind.in_value:
            assert docs[field.name].endswith("."), field.name
    assert (frame.__doc__ or "").strip()


def test_the_page_of_a_frame_has_its_diagram_and_its_fields() -> None:
    page = frame_page(Setup)
    assert page.startswith("## SETUP (0x01)\n\nThe client's first frame: how the connection is to be.\n")
    assert bit_diagram(Setup) in page
    assert "| `keepalive_ms` | 0+31 bits, at least 1 | `20000` | Milliseconds between" in page
    assert "| `major` | 16 bits | `1` |" in page
    assert "| `token` | bytes after 16 bits of length, if R | `None` |" in page
    assert "| `data_mime` | ASCII text after 8 bits of length | `'application/octet-stream'` |" in page
    assert "| `lease` | flag L, 0x040 | `False` |" in page
    assert "| `data` | bytes to the end | `b''` |" in page
    assert "| `n` | 0+31 bits, at least 1 | required | How many more; 0 is refused (D-5). |" in frame_page(RequestN)


def test_the_page_of_a_protocol_keeps_the_order() -> None:
    page = reference_page("RSocket 1.0", FRAMES.values())
    headings = [row for row in page.splitlines() if row.startswith("#")]
    assert headings == ["# RSocket 1.0", *(f"## {frame.NAME} (0x{code:02X})" for code, frame in FRAMES.items())]


def test_a_page_without_source_has_no_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: object) -> str:
        raise OSError("no source")

    monkeypatch.setattr("inspect.getsource", missing)
    assert field_docs(RequestN) == {}
