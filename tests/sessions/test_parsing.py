"""Parsing: literals, names, notes, and errors with line, column and caret. Rule numbers are Limit-Stream's."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')

from hypothesis import given
from hypothesis import strategies as st

from afflux import Limits, MissingExtra
from afflux.sessions import SessionSyntaxError, loads, parse
from afflux.sessions.parsing import KEYWORDS, _parser
from afflux.sessions.types import (
    Annotation,
    Basic,
    Chain,
    Channel,
    Choose,
    Comment,
    Constant,
    End,
    Enum,
    Field,
    File,
    Name,
    Offer,
    Recv,
    Send,
    Struct,
    Variant,
)
from tests.sessions.trees import SUM

INT, UINT, STRING = Basic.INT, Basic.UINT, Basic.STRING


def chain_of(text: str) -> Chain:
    return parse(f"channel a = {text}").channels[0].chain


def test_the_example_of_the_specification() -> None:
    done, channel = parse(SUM).definitions
    branches = (Name("sum"), Chain((Recv(Name("Done")), Send(INT), End())))
    assert done == Struct("Done")
    assert channel == Channel("sum", Chain((Recv(INT), Offer(branches))))


def test_structs_and_enums() -> None:
    text = "struct User { name: string = 0, age: uint = 1, by: User2 } enum E { yes(User) = 1, no(bool), }"
    user = Struct("User", (Field("name", STRING, 0), Field("age", UINT, 1), Field("by", Name("User2"))))
    assert parse(text) == File((user, Enum("E", (Variant("yes", Name("User"), 1), Variant("no", Basic.BOOL)))))


def test_an_inner_choice_takes_all_bars() -> None:
    inner = Choose((Name("b"), Name("c")))
    assert chain_of("offer | a | recv int -> choose | b | c") == Chain((Offer((Name("a"), Chain((Recv(INT), inner)))),))


@pytest.mark.parametrize(
    ("literal", "basic", "value"),
    [
        ("0", UINT, 0),
        ("18446744073709551615", UINT, (1 << 64) - 1),
        ("0x1F", UINT, 31),
        ("0o17", UINT, 15),
        ("+5", INT, 5),
        ("-0x10", INT, -16),
        ("-0o7", INT, -7),
        ("+1.5", Basic.FLOAT, 1.5),
        ("-0.25", Basic.FLOAT, -0.25),
        ("true", Basic.BOOL, True),
        ("false", Basic.BOOL, False),
        (r'"a\\\"\n\r\t"', STRING, 'a\\"\n\r\t'),
        ('"->{}|end//"', STRING, "->{}|end//"),
        ('""', STRING, ""),
    ],
)
def test_constants(literal: str, basic: Basic, value: Any) -> None:
    """I-4: hexadecimal and octal numbers as well."""
    (step, _) = chain_of(f"recv {literal} -> end").steps
    assert step == Recv(Constant(basic, value))
    assert isinstance(step, Recv) and isinstance(step.type, Constant)
    assert type(step.type.value) is type(value)


@pytest.mark.parametrize("name", ["weekend", "endpoint", "receive", "_", "integer", "int8", "trueish", "größe", "ñ_1"])
def test_names_may_contain_keywords_and_letters_of_any_script(name: str) -> None:
    """I-3."""
    assert parse(f"channel {name} = end") == File((Channel(name, Chain((End(),))),))


def test_an_older_keyword_for_channels() -> None:
    """I-5."""
    assert parse("session a = end", legacy_keywords=True) == parse("channel a = end", legacy_keywords=True)
    assert parse("channel session = end").channels[0].name == "session"
    with pytest.raises(SessionSyntaxError, match='unexpected "session", expected "channel", "enum", "struct"'):
        parse("session a = end")


@pytest.mark.parametrize("name", sorted(KEYWORDS))
def test_keywords_are_not_names(name: str) -> None:
    with pytest.raises(SessionSyntaxError, match="expected a name"):
        parse(f"struct {name} {{}}")


def test_notes_are_kept_where_they_stand() -> None:
    text = """
    // before
    #[tag] #[level = +3]
    channel a = /// first
        recv int -> // second
        end
    struct S { // of the field
        b: int,
        // last
    }
    // the end"""
    channel, struct = parse(text).definitions
    first, second = Comment(" first", doc=True), Comment(" second")
    notes = (Comment(" before"), Annotation("tag"), Annotation("level", Constant(INT, 3)))
    assert channel == Channel("a", Chain((Recv(INT, (first,)), End((second,)))), notes)
    assert struct == Struct("S", (Field("b", INT, None, (Comment(" of the field"),)),), (), (Comment(" last"),))
    assert parse(text).last_notes == (Comment(" the end"),)


def test_an_empty_text_is_an_empty_file() -> None:
    assert parse("") == parse(" \r\n\t") == File()


ERRORS = [
    ("channel a = recv | end", 1, 18, 'unexpected "|", expected a constant, a name, a number or a type (syntax)'),
    ("channel a = recv send int -> end", 1, 18, "a channel cannot be the type of a value (R-39)"),
    ("struct S { a: end }", 1, 15, "a channel cannot be the type of a value (R-39)"),
    ("channel a = recv int -> b", 1, 25, 'unexpected "b"'),
    ("channel a = offer | b -> end | c", 1, 30, 'unexpected "|"'),
    ("\n\n  channel", 3, 10, "the text ends here, expected a name (syntax)"),
    ('channel a =\n  recv "x', 2, 8, "the string is not closed, or contains an unknown escape (syntax)"),
    ('channel a = recv "\\x" -> end', 1, 18, "the string is not closed"),
    ("channel a = @", 1, 13, "unexpected character '@' (syntax)"),
    ("channel a = recv 1.5 -> end", 1, 19, "unexpected character '.' (syntax)"),
    (f"channel a = recv {'9' * 65} -> end", 1, 18, "the number is out of range (R-31)"),
    (f"struct S {{ a: int = {'9' * 5000} }}", 1, 21, "the number is out of range (R-31)"),
    ("channel a = recv 1 2", 1, 20, 'unexpected "2", expected "->", "channel", "enum", "struct", a comment or'),
    (f"channel {'a' * 50} b", 1, 60, 'unexpected "b", expected "=" (syntax)'),
    (f"channel a {'b' * 50}", 1, 11, f'unexpected "{"b" * 40}…", expected "="'),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), ERRORS)
def test_errors_have_a_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(SessionSyntaxError) as caught:
        parse(text, name="a.lstr")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert caught.value.message.startswith(f"a.lstr:{line}:{column}: {message}")
    assert caught.value.rule == caught.value.problems[0].rule


def test_a_caret_is_under_the_place() -> None:
    with pytest.raises(SessionSyntaxError) as caught:
        parse("channel a =\n\trecv int ->\n\tsend ->\n")
    assert caught.value.message.splitlines()[1:] == ["   send ->", "        ^"]


def test_a_long_line_is_cut_around_the_caret() -> None:
    with pytest.raises(SessionSyntaxError) as caught:
        parse(f"/* {'x' * 300} */")
    assert caught.value.message.endswith(f"\n  /* {'x' * 97}\n  ^")
    with pytest.raises(SessionSyntaxError) as caught:
        parse(f"channel a = {'recv int -> ' * 100} @")
    shown, under = caught.value.message.splitlines()[1:]
    assert len(shown) <= 102
    assert shown[len(under) - 1] == "@"


def test_limits_of_the_text() -> None:
    limits = Limits(session_type_bytes=20)
    assert parse("channel äbcde = end", limits=limits)
    with pytest.raises(SessionSyntaxError, match="the text exceeds 20 bytes") as caught:
        parse("channel äbcdef = end", limits=limits)
    assert (caught.value.rule, caught.value.line) == ("type-too-large", 0)


def nested(depth: int) -> str:
    return "channel a = " + "offer | a | " * depth + "end"


def test_limits_of_the_depth() -> None:
    assert loads(nested(64))["a"]
    with pytest.raises(SessionSyntaxError, match="nested more than 64 deep") as caught:
        parse(nested(65))
    assert (caught.value.rule, caught.value.column) == ("type-too-deep", 13)
    with pytest.raises(SessionSyntaxError, match="nested more than 3 deep"):
        parse(nested(4), limits=Limits(session_type_depth=3))


@pytest.mark.repetitive
@pytest.mark.parametrize("word", ["offer | a | ", "recv int -> choose | a | "])
def test_ten_thousand_nested_branches_are_refused_without_a_recursion_error(word: str) -> None:
    limits = Limits(session_type_depth=128)
    with pytest.raises(SessionSyntaxError, match="nested more than 128 deep"):
        parse(f"channel a = {word * 10_000} end", limits=limits)


@pytest.mark.repetitive
@pytest.mark.parametrize("word", ["recv ", "{", "#[a = ", "offer | ", "channel ", "-> ", "("])
def test_repeated_words_are_refused_without_a_recursion_error(word: str) -> None:
    with pytest.raises(SessionSyntaxError):
        parse(f"channel a = {word * 10_000}")


@given(st.text('channelstructendrecvoffer|->{}()=,:#[]"\\/ \n0x1+-.', max_size=40))
def test_any_text_parses_or_has_an_error(text: str) -> None:
    try:
        parse(text)
    except SessionSyntaxError as error:
        assert error.problems
        assert error.line <= text.count("\n") + 1


@given(
    st.lists(st.sampled_from([*KEYWORDS, "a", "->", "|", "{", "}", "=", ":", ",", "(", ")", "1", "+1", '"x"', "//x\n"]))
)
def test_any_words_parse_or_have_an_error(words: list[str]) -> None:
    try:
        parse(" ".join(words))
    except SessionSyntaxError as error:
        assert error.problems


def test_text_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(SessionSyntaxError, match="unexpected character"):
        parse("\ud800")


def test_without_lark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "lark":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    _parser.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r'pip install "afflux\[sessions\]"') as caught:
        parse("")
    assert caught.value.extra == "sessions"


def test_the_recursion_limit_is_the_default() -> None:
    """The tests above would prove nothing under a larger one."""
    assert sys.getrecursionlimit() <= 1_000 * 3
