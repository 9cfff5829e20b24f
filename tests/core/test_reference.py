"""Reference page, frame record, log line and Arrow schema: what people and tables see of a declaration. Rule
numbers are RSocket's."""

from __future__ import annotations

import sys

import pytest

from afflux.core.dissect import RECORD_KEYS, arrow_schema, escaped, line, record
from afflux.core.errors import MissingExtra
from afflux.core.reference import bit_diagram, field_docs, frame_page, reference_page
from afflux.protocols.reactivesocket.frames import RequestChannel
from afflux.protocols.rsocket.frames import FRAMES, Keepalive, Lease, PayloadFrame, RequestN, Setup
from tests.core.test_frame import Nothing

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


def test_a_frame_without_fields_has_a_record_and_a_line() -> None:
    row = record(Nothing(), ts="now", conn="c", dir=">", offset=7)
    assert tuple(row) == RECORD_KEYS
    assert row["fields"] == {} and row["flags"] == []
    assert line(row) == "> family stream=None NOTHING"


def test_a_record_has_no_other_keys() -> None:
    with pytest.raises(TypeError, match="a frame record has no colour"):
        record(Nothing(), colour="red")


def test_a_line_cannot_move_the_cursor() -> None:
    assert escaped("plain é") == "plain é"
    assert escaped("a\r\n\x1b[2J\u202e\ud800") == "a\\r\\n\\x1b[2J\\u202e\\ud800"


def test_the_arrow_schema_says_what_may_be_missing() -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra spark is not installed")
    schema = arrow_schema(Setup)
    assert schema.field("token") == pyarrow.field("token", pyarrow.binary(), nullable=True)
    assert schema.field("major") == pyarrow.field("major", pyarrow.uint16(), nullable=False)
    assert schema.field("data_mime") == pyarrow.field("data_mime", pyarrow.string(), nullable=False)
    assert schema.names == [field.name for field in Setup.LAYOUT if field.kind.in_value]


def test_the_arrow_schema_names_the_extra_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"afflux\[spark\]"):
        arrow_schema(Setup)
