"""Checks the frame record, its line and the Arrow schema: what a person or a table gets of a declaration."""

from __future__ import annotations

import sys

import pytest

from afflux.core.dissect import RECORD_KEYS, arrow_schema, escaped, line, record
from afflux.core.errors import MissingExtra
from afflux.protocols.rsocket.frames import ErrorFrame, Setup
from afflux.protocols.rsocket.meanings import MEANINGS
from tests.core.test_frame import Nothing


def test_a_frame_without_fields_has_a_record_and_a_line() -> None:
    row = record(Nothing(), ts="now", conn="c", dir=">", offset=7)
    assert tuple(row) == RECORD_KEYS
    assert row["fields"] == {} and row["flags"] == []
    assert line(row) == "now c > family stream=None NOTHING"


def test_a_line_names_the_error_code() -> None:
    for code, words in ((0x202, "0x202 REJECTED"), (0x301, "0x301")):
        row = record(ErrorFrame(stream=1, code=code))
        assert line(row, MEANINGS) == f"rsocket stream=1 ERROR code={words} data_len=0"
        assert line(row) == f"rsocket stream=1 ERROR code=0x{code:X} data_len=0"


def test_payloads_have_three_forms() -> None:
    shown = {form: record(Setup(data=b"\xffa"), payload=form)["data"] for form in ("hex", "text", "bytes")}
    assert shown == {"hex": "ff61", "text": "\ufffda", "bytes": b"\xffa"}


def test_a_record_has_no_other_keys() -> None:
    with pytest.raises(TypeError, match="a frame record has no colour"):
        record(Nothing(), colour="red")


def test_a_line_cannot_move_the_cursor() -> None:
    assert escaped("plain é") == "plain é"
    assert escaped("a\r\n\x1b[2J\u202e\ud800") == "a\\r\\n\\x1b[2J\\u202e\\ud800"


def test_the_arrow_schema_states_what_may_be_missing() -> None:
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
