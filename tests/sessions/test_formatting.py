"""Formatting: the layout, idempotence, and that nothing is lost."""

from __future__ import annotations

import pytest

pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')

from hypothesis import given

from afflux.sessions import dual, format_file, parse
from afflux.sessions.formatting import format_chain, format_constant
from afflux.sessions.types import Basic, Chain, Channel, Constant, End, File, Name, Offer
from tests.sessions.trees import SUM, files

LAID_OUT = """\
// Adds numbers.
channel sum =
    /// first
    recv int ->
    offer
        | sum
        | recv Done ->
          // the answer
          send 0x10 ->
          choose
              | sum
              | end

#[level = -0o7]
struct Done {}

enum Name {
    a(Done) = 1,
    // the other one
    b("x\\n\\"\\\\"),
    // last
}

// the end
"""


def test_the_layout() -> None:
    assert format_file(parse(LAID_OUT)) == LAID_OUT
    assert format_file(parse(SUM)).startswith(
        "struct Done {}\n\nchannel sum =\n    recv int ->\n    offer\n        | sum\n"
    )


def test_an_empty_file() -> None:
    assert format_file(File()) == ""
    assert format_file(parse("// nothing")) == "// nothing\n"


def test_chains_and_constants_alone() -> None:
    file = parse(SUM)
    assert format_chain(file.channels[0].chain).splitlines()[0] == "recv int ->"
    literals = {
        Constant(Basic.FLOAT, 1e-07): "+0.0000001",
        Constant(Basic.FLOAT, -3.0): "-3.0",
        Constant(Basic.FLOAT, 1e16): "+10000000000000000.0",
        Constant(Basic.INT, 0): "+0",
        Constant(Basic.UINT, 31, "0x1F"): "0x1F",
        Constant(Basic.UINT, 7): "7",
        Constant(Basic.BOOL, False): "false",
        Constant(Basic.STRING, "\t", '"\\t"'): '"\\t"',
    }
    assert [format_constant(each) for each in literals] == list(literals.values())


@given(files())
def test_formatting_loses_nothing_and_is_idempotent(file: File) -> None:
    text = format_file(file)
    assert parse(text) == file
    assert format_file(parse(text)) == text


@given(files())
def test_the_dual_can_be_written_as_well(file: File) -> None:
    assert parse(format_file(dual(file))) == dual(file)


def test_a_choice_that_would_take_the_bars_of_another_one_is_refused() -> None:
    end = Chain((End(),))
    inner = Chain((Offer((Name("a"), end)),))
    with pytest.raises(ValueError, match="a channel of its own"):
        format_file(File((Channel("a", Chain((Offer((inner, end)),))),)))
    assert format_file(File((Channel("a", Chain((Offer((end, inner)),))),)))
