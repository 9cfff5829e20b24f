"""What ``@frame`` makes of a declaration: source, slots, values, blame."""

from __future__ import annotations

import inspect
import linecache
import pickle
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, ClassVar

import pytest

from afflux.core.errors import Violation
from afflux.core.fields import U8, U16, Data, Flag, Rest, Sized, TypeWord, UInt
from afflux.core.frame import MISSING, Frame, Malformed, UnknownFrame, codecs_module, frame, shown, trailing


class Family(Frame):
    """A protocol with a 16-bit word and nothing else."""

    __slots__ = ()

    PROTOCOL = "family"
    LARGEST = 0x20

    word: ClassVar[Annotated[int, TypeWord(16, shift=8)]]


@frame(0x01)
class GrantMore(Family):
    """Two names in one."""

    n: Annotated[int, UInt(16, at_least=1, rule="F-1")]


@frame(0x02, "TAIL")
class WithTail(Family):
    """Everything that varies."""

    loud: Annotated[bool, Flag("L", 0x80)] = False
    token: Annotated[bytes | None, Sized(8, flag=Flag("T", 0x40), secret=True)] = None
    mark: U8 = 7
    tail: Annotated[bytes, Rest(flag=Flag("D", 0x01))] = b""


@frame(0x03)
class Always(Family):
    """A flag that is sent whatever there is."""

    tail: Annotated[bytes, Rest(flag=Flag("D", 0x01), always=True)] = b""


@frame(0x04)
class Nothing(Family):
    """No field at all."""


def test_names_and_types_are_derived_or_given() -> None:
    assert (GrantMore.TYPE, GrantMore.NAME) == (0x01, "GRANT_MORE")
    assert (WithTail.TYPE, WithTail.NAME) == (0x02, "TAIL")
    assert GrantMore.__qualname__ == "GrantMore"
    assert GrantMore.__doc__ == "Two names in one."
    assert [field.name for field in WithTail.FIELDS] == ["token", "mark", "tail"]
    assert [(flag.letter, field.name) for flag, field in WithTail.FLAGS] == [
        ("L", "loud"),
        ("T", "token"),
        ("D", "tail"),
    ]
    assert (GrantMore.OPEN_ENDED, WithTail.OPEN_ENDED, Nothing.OPEN_ENDED) == (False, True, False)


def test_a_frame_is_a_slotted_keyword_only_value() -> None:
    one = GrantMore(n=3)
    assert one == GrantMore(n=3)
    assert one != GrantMore(n=4)
    assert one != object()
    assert Nothing() == Nothing() == Nothing.decode(b"\x04\x00", 0, 2)
    assert hash(one) == hash(GrantMore(n=3)) != hash(GrantMore(n=4))
    assert not hasattr(one, "__dict__")
    with pytest.raises(AttributeError):
        one.other = 1  # type: ignore[attr-defined]  # that is the point
    with pytest.raises(TypeError):
        GrantMore(3)  # type: ignore[call-arg]  # that is the point
    assert pickle.loads(pickle.dumps(WithTail(token=b"t"))) == WithTail(token=b"t")


def test_bounds_are_kept_when_constructing_and_not_when_decoding() -> None:
    with pytest.raises(Violation, match="GRANT_MORE: n is 0, not within 1 to 65535") as caught:
        GrantMore(n=0)
    assert (caught.value.rule, caught.value.code) == ("F-1", None)
    assert GrantMore.decode(b"\x01\x00\x00\x00", 0, 4).n == 0


def test_flags_follow_the_fields_that_they_go_with() -> None:
    cases: list[tuple[Frame, int]] = [
        (WithTail(), 0x00),
        (WithTail(loud=True), 0x80),
        (WithTail(token=b""), 0x40),
        (WithTail(tail=b"x"), 0x01),
        (Always(), 0x01),
        (GrantMore(n=1), 0x00),
    ]
    for one, bits in cases:
        assert one.flags() == bits
        assert one.encode()[1] == bits
        assert type(one).decode(one.encode(), 0, one.encoded_size) == one


def test_a_frame_too_large_is_not_encoded() -> None:
    largest = WithTail(tail=bytes(0x20 - 3))
    assert len(largest.encode()) == 0x20
    with pytest.raises(Violation, match="TAIL of 33 bytes: at most 32 fit") as caught:
        WithTail(tail=bytes(0x20 - 2)).encode()
    assert caught.value.rule == "frame-too-large"


def test_what_is_left_over_is_accepted_and_counted() -> None:
    wire = b"\x01\x00\x00\x09rest"
    one = GrantMore.decode(wire, 0, len(wire))
    assert one == GrantMore(n=9)
    assert trailing(one, 0, len(wire)) == 4
    assert trailing(one, 0, 4) == 0
    assert trailing(WithTail(), 0, 99) == 0


def test_what_is_cut_short_or_lies_about_a_length_is_malformed() -> None:
    with pytest.raises(Malformed, match="GRANT_MORE ends after 3 bytes") as caught:
        GrantMore.decode(b"\x01\x00\x00\x00", 0, 3)
    assert (caught.value.rule, caught.value.ignorable, caught.value.stream) == ("malformed", False, 0)
    with pytest.raises(Malformed, match="TAIL: token of 9 bytes where 1 are left"):
        WithTail.decode(b"\x02\x40\x09x", 0, 4)


def test_the_generated_source_can_be_read() -> None:
    assert "def decode(cls, buffer: bytes, start: int, end: int) -> GrantMore:" in GrantMore.__source__
    assert inspect.getsource(GrantMore.encode) in GrantMore.__source__
    assert GrantMore.encode.__qualname__ == "GrantMore.encode"
    assert inspect.getdoc(GrantMore.encode) == inspect.getdoc(Frame.encode)
    assert any("GrantMore" in name for name in linecache.cache if name.startswith("<afflux frame"))


DECLARED = """
from typing import Annotated, ClassVar
from afflux.core.fields import U16, Data, TypeWord, UInt
from afflux.core.frame import Frame, frame

class Family(Frame):
    __slots__ = ()
    word: ClassVar[Annotated[int, TypeWord(16, shift=8)]]

@frame(0x01)
class One(Family):
    n: Annotated[int, UInt(16, at_least=1)]

@frame(0x02)
class Two(Family):
    data: Data = b""
"""


def declare(folder: Path, package: str, text: str, codecs: str = "") -> ModuleType:
    """A package with declarations, and with codecs that were written down."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").touch()
    (folder / package / "frames.py").write_text(text)
    if codecs:
        (folder / package / "_codecs.py").write_text(codecs)
    return import_module(f"{package}.frames")


def codec_of(cls: type[Frame]) -> str:
    """Where its codec is from."""
    return cls.__mro__[1].__module__


def test_codecs_that_were_written_down_are_taken_while_they_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    first = declare(tmp_path, "written_none", DECLARED)
    assert codec_of(first.One) == "written_none.frames"
    codecs = codecs_module([first.One, first.Two])

    fits = declare(tmp_path, "written_fits", DECLARED, codecs)
    assert codec_of(fits.One) == codec_of(fits.Two) == "written_fits._codecs"
    assert fits.One(n=3).encode() == first.One(n=3).encode()
    assert fits.Two.decode(b"\x02\x00data", 0, 6) == fits.Two(data=b"data") != first.Two(data=b"data")
    with pytest.raises(Violation, match="ONE: n is 0, not within 1 to 65535"):
        fits.One(n=0)
    with pytest.raises(Malformed, match="ONE ends after 3 bytes"):
        fits.One.decode(b"\x01\x00\x00", 0, 3)

    stale = declare(tmp_path, "written_stale", DECLARED.replace("at_least=1", "at_least=2"), codecs)
    assert (codec_of(stale.One), codec_of(stale.Two)) == ("written_stale.frames", "written_stale._codecs")
    with pytest.raises(Violation, match="ONE: n is 1, not within 2 to 65535"):
        stale.One(n=1)


def test_frames_can_be_declared_outside_of_packages() -> None:
    namespace = {"__name__": "alone"}
    exec(compile(DECLARED, "alone", "exec", dont_inherit=True), namespace)
    assert codec_of(namespace["One"]) == "alone"  # type: ignore[arg-type]  # a class, by now


def test_secrets_and_long_bytes_are_not_shown_in_full() -> None:
    assert repr(GrantMore(n=1)) == "GrantMore(n=1)"
    assert repr(WithTail(token=b"secret", loud=True)) == "WithTail(token=(6 bytes), mark=7, tail=b'', loud=True)"
    assert repr(WithTail()) == "WithTail(token=None, mark=7, tail=b'')"
    assert shown(bytes(33), Rest()) == f"{bytes(32)!r}... (33 bytes)"
    assert repr(MISSING) == "MISSING"


def test_the_undeclared_frame_does_nothing() -> None:
    bare = Frame()
    with pytest.raises(NotImplementedError):
        bare.encode()
    with pytest.raises(NotImplementedError):
        Frame.decode(b"", 0, 0)
    with pytest.raises(NotImplementedError):
        _ = bare.encoded_size


def test_a_violation_about_an_unknown_frame_is_a_malformed_one() -> None:
    unknown = UnknownFrame("no such frame", rule="X-5", code=0x101, stream=3, ignorable=True)
    assert isinstance(unknown, Malformed)
    assert (unknown.reason, unknown.code, unknown.stream, unknown.ignorable) == ("no such frame", 0x101, 3, True)


def test_a_declaration_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Kindless\.n has no field kind"):

        @frame(0x05)
        class Kindless(Family):
            n: int

    with pytest.raises(TypeError, match="Wordless needs exactly one TypeWord"):

        @frame(0x05)
        class Wordless(Frame):
            n: U16

    with pytest.raises(TypeError, match="a field that runs to the end must be the last"):

        @frame(0x05)
        class Endless(Family):
            first: Data
            second: U16
