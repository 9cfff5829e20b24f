"""Filters: their text, what they mean for records and for tables, what is refused and where.

Rule numbers are RSocket's.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.core.dissect import RECORD_KEYS
from afflux.filters import Filter, FilterError
from afflux.filters.columns import RECORD, columns
from afflux.filters.grammar import MOST_CHARACTERS, MOST_DEPTH
from afflux.filters.nodes import Node
from afflux.filters.patterns import for_java, for_python, quoted
from afflux.protocols.registry import PROTOCOLS, frames_of
from tests.examples import share
from tests.filters.tables import SCHEMA, table_of
from tests.strategies.filters import nodes, records

FRAME: dict[str, Any] = {
    "ts": "2026-11-21T02:37:44.000001Z", "conn": "Cq8RsiSzSOo3", "dir": ">", "protocol": "rsocket", "stream": 5,
    "type": "REQUEST_N", "flags": ["M", "C"], "n": 3, "metadata_len": None, "data_len": 0, "code": None, "offset": 3,
    "length": 10, "error": None, "fields": {"keepalive_ms": 20_000, "data_mime": "text/plain"}, "route": "prices.eu",
}  # fmt: skip
BROKEN = FRAME | {"error": {"rule": "R-7", "reason": "cut off: 1 bytes are missing"}, "fields": {}, "type": None}


def selects(text: str, record: dict[str, Any] = FRAME) -> bool:
    return Filter.of(text).predicate()(record)


@pytest.mark.parametrize(
    ("text", "whole", "broken"),
    [
        ("type == REQUEST_N and n < 4", True, False),
        ("stream == 5", True, True),
        ('route ~ "prices.*"', True, True),
        ('route ~ "^rice"', False, False),
        ('route !~ "^rice"', True, True),
        ('not (type = "REQUEST_N" or error)', False, False),
        ("error", False, True),
        ("NOT error AND n <= 0x3", True, False),
        ("!error && n >= 3 || n <> 3", True, False),
        ("error is not null", False, True),
        ('error.rule == "R-7"', False, True),
        ('error.reason ~ "cut off"', False, True),
        ("n in (1, 2, 3)", True, True),
        ("n not in (1, 2)", True, True),
        ("code != 1", False, False),
        ("not code == 1", False, False),
        ("code not in (1)", False, False),
        ("code is null", True, True),
        ("type is null", False, True),
        ("flags has M", True, True),
        ("flags has (M, C)", True, True),
        ("flags has (M, N)", False, False),
        ("not flags has N", True, True),
        ("fields.keepalive_ms >= 20_000", True, False),
        ("fields.data_mime in ('text/plain')", True, False),
        ("fields.publisher is null", True, True),
        ('ts >= "2026-11-21T02:37:44Z" and ts < "2026-11-21T03:37:44.5+01:00"', True, True),
        ('ts >= "2026-11-22"', False, False),
        ("dir == '>' and protocol == rsocket and type != PAYLOAD", True, False),
        ("n > -1 and data_len == 0", True, True),
    ],
)
def test_what_a_filter_selects(text: str, whole: bool, broken: bool) -> None:
    assert (selects(text), selects(text, BROKEN)) == (whole, broken)


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("strem == 5", 1, 'unknown name "strem"; did you mean "stream"?'),
        ("n < 4 and keepalive_ms > 1", 11, 'unknown name "keepalive_ms"; did you mean "fields.keepalive_ms"?'),
        ("fields.metadata_mim == 'a'", 1, 'did you mean "fields.metadata_mime"?'),
        ("zzz == 1", 1, "known: ts, conn, dir, "),
        ("type == REQUESTN", 9, 'unknown type "REQUESTN"; did you mean REQUEST_N?'),
        ("type == request_stream", 9, "did you mean REQUEST_STREAM?"),
        ("protocol == rsockett", 13, "did you mean rsocket?"),
        ("n == 'a'", 6, 'n is a number, not "a"'),
        ("n == 1.5", 6, "not a whole number"),
        ("n == 9223372036854775808", 6, "more than 63 bits"),
        (f"n == {'9' * 5000}", 6, "more than 63 bits"),
        ("type == 5", 9, 'type is text: write "5", in quotes'),
        ("conn == abc", 9, 'conn is text: write "abc", in quotes'),
        ("type < PAYLOAD", 6, "type is text, which has no order"),
        ("n ~ '4'", 3, "n is a number: write n == 4"),
        ("ts > 4", 6, "ts is a time"),
        ("ts > 'yesterday'", 6, "expected a time such as"),
        ("flags == M", 7, "flags is a list of flags: write flags has M"),
        ("flags has Q", 11, 'unknown flag "Q"; known: 1, 2, 4,'),
        ("n has M", 3, "n is a number"),
        ("fields.extensions == 1", 19, "fields.extensions is a list: write fields.extensions is null"),
        ("error == 1", 7, "error is an error: write error, not error"),
        ("n", 1, "n alone is no test: write n == 4"),
        ("dir == 'client'", 8, 'dir is ">"'),
        ("packet == 1", 1, "a column of the table of frames"),
        ("route ~ prices", 9, "a pattern in quotes"),
        ("route ~ 'a(?=b)'", 11, "not a part of the regular expressions"),
        ("route ~ 'ab**'", 13, "* has nothing to repeat"),
        ("route ~ '(a'", 10, "unterminated"),
        (r"route ~ '(a)\1'", 13, "not a part of"),
        ("route ~ '[z-a]'", 11, "bad character range"),
        ("route ~ '[a&&b]'", 10, "not a part of"),
        ("route ~ 'a{1'", 11, "not a part of"),
        ("n <", 4, "the filter ends here, expected a name, a number or a text in quotes"),
        ("n < 4 n", 7, 'unexpected "n"'),
        ("(n < 4", 7, 'the filter ends here, expected ")"'),
        ("n == 'abc", 6, "the text in quotes is not closed"),
        ("n < 4 %", 7, "unexpected character '%'"),
        ("", 1, "the filter ends here"),
    ],
)
def test_a_mistake_is_shown_where_it_is(text: str, column: int, reason: str) -> None:
    with pytest.raises(FilterError) as raised:
        Filter.of(text)
    error = raised.value
    assert (error.line, error.column) == (1, column) and reason in error.reason
    if text:
        *_, shown, caret = error.message.splitlines()
        assert len(shown) <= 102 and caret.strip() == "^"


def test_the_place_of_a_mistake_in_several_lines() -> None:
    with pytest.raises(FilterError, match=r"2:5: unknown name") as raised:
        Filter.of("n < 4\nand strem == 5")
    assert raised.value.message.endswith("\n  and strem == 5\n      ^")


def test_a_hostile_text_is_escaped() -> None:
    """PC-24."""
    for text in ('conn == "\x1b[31m" x', "\x1b == 1", "type == \u202ePAYLOAD", 'route ~ "\x1b(?=a)"'):
        with pytest.raises(FilterError) as raised:
            Filter.of(text)
        assert all(line.isprintable() for line in raised.value.message.splitlines())


def test_bounds() -> None:
    deep = "not " * (MOST_DEPTH - 2) + "error"
    assert not selects(deep) and selects("(" * 2_000 + "n == 3" + ")" * 2_000)
    assert selects(" or ".join(["n == 4"] * 900 + ["n == 3"]))
    for text, reason in (
        ("not " * (MOST_DEPTH - 1) + "error", f"nested more than {MOST_DEPTH} deep"),
        ("n == 3 " + " " * MOST_CHARACTERS, "at most 10,000 characters"),
        (f'route ~ "{"a" * 1_001}"', "at most 1,000 characters"),
    ):
        with pytest.raises(FilterError, match=reason):
            Filter.of(text)


def test_the_columns_that_a_filter_needs() -> None:
    assert Filter.of('route ~ "a" and error.rule == "b" or fields.token is null').columns == {
        "route",
        "error",
        "fields",
    }
    assert Filter.of("packet == 3 and file ~ 'pcap'", table=True).columns == {"packet", "file"}


def test_every_column_of_a_record_is_known_and_every_field_has_one_type() -> None:
    assert {name for name in RECORD if "." not in name} == {*RECORD_KEYS, "route"} - {"fields"}
    types: dict[str, set[str]] = {}
    for protocol in PROTOCOLS:
        for frame in frames_of(protocol):
            for field in frame.FIELDS:
                if field.kind.column is None and field.name not in ("stream", "n", "code"):
                    types.setdefault(field.name, set()).add(field.kind.python)
    mixed = {name for name, found in types.items() if len(found) > 1}
    assert mixed == {"extensions"}  # a list in both, of ids and of entries
    assert {f"fields.{name}" for name in types} <= set(columns(False))


@given(st.lists(records(), min_size=1, max_size=12), st.lists(nodes(), min_size=1, max_size=5))
@settings(max_examples=share(0.8), deadline=None)
def test_a_table_and_its_records_are_selected_alike(found: list[dict[str, Any]], trees: list[Node]) -> None:
    table = table_of(found)
    for tree in trees:
        one = Filter(tree)
        expected = [one.predicate()(record) for record in found]
        for form in (table, pa.concat_tables([table[:1], table[1:]]), table.to_batches()[0]):
            assert one.mask(form).to_pylist() == expected


def test_a_table_without_the_column() -> None:
    with pytest.raises(KeyError, match="route"):
        Filter.of("route is null").mask(table_of([]).drop_columns(["route"]))
    assert Filter.of("route is null").mask(SCHEMA.empty_table()).to_pylist() == []


@given(st.text(), st.text())
def test_a_quoted_text_matches_itself(text: str, other: str) -> None:
    pattern = re.compile(for_python(f"^{quoted(text)}$"), re.ASCII | re.DOTALL)
    assert pattern.search(text) and (text == other or not pattern.search(other))
    assert for_java("^a$") == r"(?s)\Aa\z"
