"""Checking: every rule of the type checker, with the place of the problem. Rule numbers are Limit-Stream's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')

from hypothesis import given

from afflux import Limits
from afflux.sessions import SessionSyntaxError, check, compile_file, load, loads, parse
from afflux.sessions.types import Chain, Channel, Choose, End, File, Name, Recv
from tests.sessions.trees import SUM, files

PROBLEMS = [
    ("channel a = recv B -> end", "R-34 1:18", "B is not defined"),
    ("struct S { a: T }", "R-34 1:15", "T is not defined"),
    ("channel a = offer | b | end", "R-34 1:21", "b is not defined"),
    ("channel a = offer | S | end struct S {}", "R-34 1:21", "S is not a channel"),
    ("channel a = end\nstruct a {}", "R-34 2:8", "a is defined twice, first at 1:9"),
    ("struct S { a: int, a: uint }", "R-34 1:20", "S.a is defined twice, first at 1:12"),
    ("enum E { a(int), a(uint) }", "R-34 1:18", "E.a is defined twice, first at 1:10"),
    ("channel a = recv int", "R-35 1:13", "a chain ends in end, offer or choose"),
    ("channel a = recv int -> end -> send int -> end", "R-35 1:32", "nothing may follow end, offer or choose"),
    ("channel a = offer | end", "R-36 1:13", "2 to 10 branches are permitted, not 1"),
    (f"channel a = choose {'| end ' * 11}", "R-36 1:13", "2 to 10 branches are permitted, not 11"),
    ("channel a = recv int -> offer | a | a", "R-37 1:9", "no path of channel a reaches end"),
    (
        "channel a = offer | b | b\nchannel b = recv int -> offer | a | b",
        "R-37 1:9",
        "no path of channel a reaches end",
    ),
    ("struct S { a: S }", "R-38 1:8", "struct S contains itself without an enum that can end it"),
    ("struct S { a: T } struct T { a: S }", "R-38 1:8", "struct S contains itself without an enum that can end it"),
    ("enum E { a(E), b(S) } struct S { e: E }", "R-38 1:6", "each of its variants contains it"),
    ("enum E {}", "R-38 1:6", "enum E has no finite value: it has no variants"),
    ("channel a = recv a -> end", "R-39 1:18", "a is a channel, which cannot be the type of a value"),
    ("struct S { a: c } channel c = end", "R-39 1:15", "c is a channel"),
    ("channel a = recv 18446744073709551616 -> end", "R-31 1:18", "the constant is outside the range of uint"),
    ("channel a = recv -9223372036854775809 -> end", "R-31 1:18", "the constant is outside the range of int"),
    ("struct S { a: +9223372036854775808 }", "R-31 1:15", "the constant is outside the range of int"),
    (f"struct S {{ a: +{'9' * 39}.0 }}", "R-31 1:15", "the constant is outside the range of float"),
    (f"struct S {{ a: -{'9' * 400}.0 }}", "R-31 1:15", "the constant is outside the range of float"),
]


@pytest.mark.parametrize(("text", "rule", "message"), PROBLEMS)
def test_a_broken_rule_has_a_place(text: str, rule: str, message: str) -> None:
    """R-31, R-34, R-35, R-36, R-37, R-38, R-39."""
    first = check(parse(text))[0]
    assert f"{first.rule} {first.place}" == rule
    assert message in first.text


@pytest.mark.parametrize(
    "text",
    [
        SUM,
        f"channel a = choose {'| end ' * 10}",
        "channel a = offer | a | b channel b = end",
        "struct S { e: E } enum E { none(bool), some(S) }",
        "struct S { e: E, f: T } enum E { loop(S), none(bool) } struct T {}",
        "channel a = recv -9223372036854775808 -> recv 18446744073709551615 -> recv +3.4e0 -> end".replace("e0", ""),
    ],
)
def test_sound_types(text: str) -> None:
    """D-10: recursion through the names of branches, and of types through an enum."""
    assert check(parse(text)) == ()


@given(files())
def test_files_that_break_no_rule_have_no_problems(file: File) -> None:
    assert check(file) == ()


def test_all_problems_are_reported_up_to_a_hundred() -> None:
    with pytest.raises(SessionSyntaxError) as caught:
        loads("channel a = recv B -> offer | c | recv D", name="x.lstr")
    assert [problem.rule for problem in caught.value.problems] == ["R-34", "R-34", "R-34", "R-35"]
    assert caught.value.message.count("^") == 4
    many = "struct S { " + ", ".join(f"a{n}: T{n}" for n in range(200)) + "}"
    assert len(check(parse(many))) == 100


def test_trees_that_were_not_parsed_have_problems_without_places() -> None:
    with pytest.raises(SessionSyntaxError, match=r"^B is not defined \(R-34\)$"):
        compile_file(File((Channel("a", Chain((Recv(Name("B")), End()))),)))
    with pytest.raises(SessionSyntaxError, match=r"^1:18: B is not defined \(R-34\)$"):
        compile_file(parse("channel a = recv B -> end"))
    assert [problem.rule for problem in check(File((Channel("a", Chain(())),)))] == ["R-35", "R-37"]
    assert check(File((Channel("a", Chain((End(),))),) * 2))[0].text == "a is defined twice"


def test_limits_of_a_tree() -> None:
    chain = Chain((End(),))
    for _ in range(3):
        chain = Chain((Choose((chain, chain)),))
    deep = File((Channel("a", chain),))
    assert check(deep, limits=Limits(session_type_depth=3)) == ()
    assert [p.rule for p in check(deep, limits=Limits(session_type_depth=2))] == ["type-too-deep"]
    for _ in range(60):
        chain = Chain((Choose((chain, chain)),))
    (problem,) = check(File((Channel("a", chain),)))
    assert problem.rule == "too-many-states"
    steps = parse("channel a = recv int -> end channel b = end")
    assert check(steps, limits=Limits(session_type_states=3)) == ()
    (problem,) = check(steps, limits=Limits(session_type_states=2))
    assert (problem.rule, str(problem.place)) == ("too-many-states", "1:37")


def test_files(tmp_path) -> None:  # type: ignore[no-untyped-def]  # a fixture
    path = tmp_path / "sum.lstr"
    path.write_text(f"\ufeff{SUM}", encoding="utf-8")
    types = load(path)
    assert (list(types), len(types)) == (["sum"], 1)
    with pytest.raises(SessionSyntaxError, match="exceeds 20 bytes"):
        load(path, limits=Limits(session_type_bytes=20))
    path.write_bytes(b"// \xff")
    with pytest.raises(SessionSyntaxError, match=r"sum.lstr: the text is not UTF-8: byte 3 is 0xFF"):
        load(path)
    path.write_text("channel a = recv int")
    with pytest.raises(SessionSyntaxError, match=r"sum.lstr:1:13: a chain ends"):
        load(path)


def chain_of(states: int) -> str:
    steps = "recv int -> send string -> " * (states // 2 - 1)
    return f"channel a = {steps} offer | a | end"


def many_channels(count: int) -> str:
    """Each channel reaches the end through the next one only, and each struct contains the next one."""
    channels = "".join(f"channel c{n} = offer | c{n} | c{n + 1}\n" for n in range(count))
    structs = "".join(f"struct S{n} {{ a: S{n + 1} }}\n" for n in range(count))
    return f"{channels}channel c{count} = end\n{structs}struct S{count} {{}}"


@pytest.mark.parametrize("text_of", [chain_of, many_channels])
def test_work_grows_linearly(text_of: Callable[[int], str]) -> None:
    """Ten times the size takes about ten times as many calls: a square would take a hundred times as many."""

    def calls(count: int) -> int:
        text, made = text_of(count), 0

        def profile(frame: Any, event: str, argument: Any) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            loads(text)
        finally:
            sys.setprofile(before)
        return made

    loads(SUM)
    assert calls(1_000) < 13 * calls(100)
