"""CSV is safe to open in a spreadsheet and keeps its rows; half a surrogate pair can be printed in every format."""

from __future__ import annotations

import csv
import io
import json

import pytest

from afflux.protocols.rsocket import frames as wire
from tests.cli.running import here

FORMULAS = ["=1+1", "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "-", "+1e", "-1,5"]
NUMBERS = ["-5", "+5", "-5.25", "+.5", "-1e3", "-1.5E-3"]


def rows(text: str) -> list[list[str]]:
    return [*csv.reader(io.StringIO(text, newline=""), strict=True)]


def test_formulas_in_csv_are_text(uri: str) -> None:
    """PC-24. Names of columns come from the peer too."""
    items = [word for text in FORMULAS for word in ("-d", json.dumps({"=a": text, "b": "x=1"}))]
    header, *found = rows(here("request", uri, "--channel", *items, "-o", "csv").out)
    assert header == ["'=a", "b"]
    assert found == [[f"'{text}", "x=1"] for text in FORMULAS]


def test_data_that_is_no_json_is_escaped_too(uri: str) -> None:
    words = ("-d", "=1+1", "-m", "-x", "--mmt", "text/plain", "-o", "csv")
    assert rows(here("request", uri, *words).out) == [["data", "metadata"], ["'=1+1", "'-x"]]


def test_numbers_in_csv_are_unchanged(uri: str) -> None:
    item = {"a": -5, "b": -1.5e-7, "c": None, "d": True} | {text: text for text in NUMBERS}
    told = here("request", uri, "-d", json.dumps(item), "-o", "csv").out.splitlines()
    assert told[0] == ",".join(item)
    assert told[1] == ",".join(["-5", "-1.5e-07", "", "true", *NUMBERS])


def test_line_breaks_do_not_begin_a_row_of_csv(uri: str) -> None:
    items = [{"a": "1\n2,=3", "b": ""}, {"a": "1\r2", "b": "x"}, {"a": 'y"', "b": "\r\n"}]
    given = [word for item in items for word in ("-d", json.dumps(item))]
    told = here("request", uri, "--channel", *given, "-o", "csv").out
    assert rows(told) == [["a", "b"], ["1\n2,=3", ""], ["1\r2", "x"], ['y"', "'\r\n"]]


def test_a_decoded_capture_as_csv_is_safe() -> None:
    """PC-24."""
    frame = wire.RequestFnf(stream=1, data=b"=1+1").encode().hex()
    told = here("decode", "--payload", "text", "--framing", "none", "-o", "csv", "--hex", frame)
    (row,) = csv.DictReader(io.StringIO(told.out))
    assert row["data"] == "'=1+1", told


@pytest.mark.parametrize("output", ["json", "ndjson", "csv", "table", "text", "raw"])
def test_half_a_surrogate_pair_is_escaped(uri: str, output: str) -> None:
    told = here("request", uri, "-d", r'{"a\udc00": "\ud800"}', "-o", output)
    assert (told.code, told.errors) == (0, "")
    assert r"\ud800" in told.out and r"a\udc00" in told.out
    if output in ("json", "ndjson"):
        assert json.loads(told.out) == {"a\udc00": "\ud800"}


def test_names_of_columns_do_not_control_the_terminal(uri: str) -> None:
    for value in ("x", "x" * 100):
        told = here("request", uri, "-d", json.dumps({"\x1b[31m": value, "a\nb": 1}), "-o", "table").out
        assert "\x1b" not in told and r"\x1b[31m" in told and r"a\nb" in told
