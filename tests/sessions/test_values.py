"""Values: the bytes of the specification, accepted formats, hostile bytes, limits. Rule numbers are Limit-Stream's."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux import Limits
from afflux.sessions.types import Basic, Constant, Enum, Field, Name, Struct, ValueType, Variant
from afflux.sessions.values import Codec, ValueMismatch, codecs
from tests.sessions.trees import values_of

BOOL, INT, UINT, FLOAT, DOUBLE, STRING = Basic
EMPTY = Struct("Done")
USER = Struct("User", (Field("name", STRING), Field("age", UINT), Field("note", STRING)))
PAIR = Struct("Pair", (Field("left", Name("Tree")), Field("right", Name("Tree"))))
TREE = Enum("Tree", (Variant("leaf", INT), Variant("node", Name("Pair")), Variant("none", Name("Done"))))
ONE = Struct("One", (Field("user", Name("User")),))
TYPES: dict[str, Struct | Enum] = {each.name: each for each in (EMPTY, USER, PAIR, TREE, ONE)}


def codec(kind: ValueType, limits: Limits | None = None, **classes: type) -> Codec:
    return codecs(TYPES, classes, limits or Limits())(kind)


def mismatch(call: Callable[[], Any]) -> str:
    with pytest.raises(ValueMismatch) as caught:
        call()
    return f"{caught.value.expected}{caught.value.where}: {caught.value.seen} ({caught.value.rule})"


ENCODED = [
    (BOOL, True, "c3"),
    (BOOL, False, "c2"),
    (INT, 0, "00"),
    (INT, 127, "7f"),
    (INT, 128, "cc80"),
    (INT, 255, "ccff"),
    (INT, 256, "cd0100"),
    (INT, 65_536, "ce00010000"),
    (INT, 1 << 32, "cf0000000100000000"),
    (INT, (1 << 63) - 1, "cf7fffffffffffffff"),
    (INT, -1, "ff"),
    (INT, -32, "e0"),
    (INT, -33, "d0df"),
    (INT, -128, "d080"),
    (INT, -129, "d1ff7f"),
    (INT, -200, "d1ff38"),
    (INT, -32_769, "d2ffff7fff"),
    (INT, -(1 << 31) - 1, "d3ffffffff7fffffff"),
    (INT, -(1 << 63), "d38000000000000000"),
    (UINT, (1 << 64) - 1, "cfffffffffffffffff"),
    (FLOAT, 1.5, "ca3fc00000"),
    (DOUBLE, 1.5, "cb3ff8000000000000"),
    (DOUBLE, 3, "cb4008000000000000"),
    (STRING, "", "a0"),
    (STRING, "runner", "a672756e6e6572"),
    (STRING, "x" * 31, "bf" + "78" * 31),
    (STRING, "x" * 32, "d920" + "78" * 32),
    (STRING, "é" * 128, "da0100" + "c3a9" * 128),
    (STRING, "x" * 65_536, "db00010000" + "78" * 65_536),
    (Name("Done"), (), "90"),
    (Name("User"), ("runner", 24, "runner1"), "93a672756e6e657218a772756e6e657231"),
    (Name("Tree"), ("leaf", 1), "92a46c65616601"),
    (Name("Tree"), ("node", (("none", ()), ("leaf", -1))), "92a46e6f64659292a46e6f6e659092a46c656166ff"),
    (Constant(STRING, "x"), "x", "a178"),
    (Constant(INT, 1), 1, "01"),
    (Constant(BOOL, True), True, "c3"),
    (Constant(FLOAT, 1.5), 1.5, "ca3fc00000"),
]


@pytest.mark.parametrize(("kind", "value", "data"), ENCODED)
def test_the_bytes_of_values(kind: ValueType, value: Any, data: str) -> None:
    """I-6: an enum has the variant's own name."""
    assert codec(kind).pack(value).hex() == data
    found = codec(kind).unpack(bytes.fromhex(data))
    assert found == value
    assert math.isnan(value) if value != value else True


@pytest.mark.parametrize("kind", [INT, UINT])
@pytest.mark.parametrize(
    "data", ["05", "cc05", "cd0005", "ce00000005", "cf0000000000000005", "d005", "d10005", "d200000005"]
)
def test_every_format_of_integers_is_accepted(kind: ValueType, data: str) -> None:
    """I-1."""
    assert codec(kind).unpack(bytes.fromhex(data)) == 5


@pytest.mark.parametrize("kind", [FLOAT, DOUBLE])
@pytest.mark.parametrize("data", ["ca3fc00000", "cb3ff8000000000000"])
def test_both_formats_of_floats_are_accepted(kind: ValueType, data: str) -> None:
    """I-2."""
    assert codec(kind).unpack(bytes.fromhex(data)) == 1.5


@pytest.mark.parametrize("data", ["a178", "d90178", "da000178", "db0000000178"])
def test_every_format_of_strings_and_arrays_is_accepted(data: str) -> None:
    assert codec(STRING).unpack(bytes.fromhex(data)) == "x"
    for head in ("92", "dc0002", "dd00000002"):
        leaf = codec(Name("Tree")).unpack(bytes.fromhex(f"{head}a46c656166d10003"))
        assert leaf == ("leaf", 3)


def test_not_a_number_and_infinity() -> None:
    assert math.isnan(codec(FLOAT).unpack(codec(FLOAT).pack(math.nan)))
    assert codec(FLOAT).unpack(codec(FLOAT).pack(-math.inf)) == -math.inf


def test_a_float_constant_accepts_both_widths() -> None:
    tenth = codec(Constant(FLOAT, 0.1))
    assert tenth.unpack(tenth.pack(0.1)) == tenth.unpack(struct.pack(">Bd", 0xCB, 0.1)) == 0.1
    assert "received" not in mismatch(lambda: tenth.unpack(struct.pack(">Bd", 0xCB, 0.2)))


REFUSED = [
    (BOOL, 1, "bool: int 1 (R-31)"),
    (INT, True, "int: bool True (R-31)"),
    (INT, 1.0, "int: float 1.0 (R-31)"),
    (INT, 1 << 63, "int: int 9223372036854775808, which is out of range (R-31)"),
    (INT, -(1 << 63) - 1, "int: int -9223372036854775809, which is out of range (R-31)"),
    (UINT, -1, "uint: int -1, which is out of range (R-31)"),
    (UINT, 1 << 64, "uint: int 18446744073709551616, which is out of range (R-31)"),
    (FLOAT, "1", "float: str '1' (R-31)"),
    (FLOAT, True, "float: bool True (R-31)"),
    (FLOAT, 1e300, "float: float 1e+300, which is out of range (R-31)"),
    (DOUBLE, 10**400, f"double: int 1{'0' * 39}…, which is out of range (R-31)"),
    (STRING, b"x", "string: bytes (R-31)"),
    (STRING, "\ud800", "string: text with a lone surrogate, which UTF-8 cannot represent (R-31)"),
    (Name("Done"), None, "Done: NoneType (R-31)"),
    (Name("User"), ("a", 1), "User: tuple (R-31)"),
    (Name("User"), {"name": "a", "age": 1, "other": ""}, "User: dict (R-31)"),
    (Name("User"), ("a", -1, ""), "uint in User.age: int -1, which is out of range (R-31)"),
    (Name("One"), [("a", 1, 2)], "string in One.user.User.note: int 2 (R-31)"),
    (Name("Tree"), "leaf", "Tree, a pair of a variant's name and its value: str 'leaf' (R-31)"),
    (Name("Tree"), ("twig", 1), "Tree: the variant str 'twig' (R-31)"),
    (Name("Tree"), ([], 1), "Tree: the variant list (R-31)"),
    (Name("Tree"), ("leaf", "x"), "int in Tree.leaf: str 'x' (R-31)"),
    (Constant(INT, 1), 2, "+1: int 2 (R-31)"),
    (Constant(INT, 1), True, "+1: bool True (R-31)"),
    (Constant(STRING, "x"), "y", "\"x\": str 'y' (R-31)"),
]


@pytest.mark.parametrize(("kind", "value", "text"), REFUSED)
def test_values_that_are_not_of_the_type_are_refused(kind: ValueType, value: Any, text: str) -> None:
    assert mismatch(lambda: codec(kind).pack(value)) == text


WRONG = [
    (INT, "", "int: the end of the data (R-32)"),
    (INT, "cd01", "int: data that ends 1 bytes early (R-32)"),
    (INT, "0101", "int: a value with further bytes (1) (R-32)"),
    (INT, "c3", "int: a bool (R-32)"),
    (INT, "c0", "int: nil (R-32)"),
    (INT, "c1", "int: an unused byte (R-32)"),
    (INT, "80", "int: a map (R-32)"),
    (INT, "df00000001", "int: a map (R-32)"),
    (INT, "a0", "int: a string (R-32)"),
    (INT, "c400", "int: binary data (R-32)"),
    (INT, "d40000", "int: an extension (R-32)"),
    (INT, "c70000", "int: an extension (R-32)"),
    (INT, "ca3fc00000", "int: a float (R-32)"),
    (INT, "cf8000000000000000", "int: 9223372036854775808, which is out of range (R-32)"),
    (FLOAT, "cb4800000000000000", "float: 6.80564733841877e+38, which is out of range (R-32)"),
    (UINT, "ff", "uint: -1, which is out of range (R-32)"),
    (UINT, "d3ffffffffffffffff", "uint: -1, which is out of range (R-32)"),
    (BOOL, "01", "bool: an integer (R-32)"),
    (FLOAT, "01", "float: an integer (R-32)"),
    (FLOAT, "ca00", "float: data that ends 3 bytes early (R-32)"),
    (STRING, "90", "string: an array (R-32)"),
    (STRING, "a1ff", "string: a string that is not UTF-8 (R-32)"),
    (STRING, "dbffffffff", "string: data that ends 4294967295 bytes early (R-32)"),
    (Name("Done"), "91", "Done: an array of 1 (R-32)"),
    (Name("Done"), "80", "Done: a map (R-32)"),
    (Name("User"), "ddffffffff", "User: an array of 4294967295 (R-32)"),
    (Name("User"), "93a001c3", "string in User.note: a bool (R-32)"),
    (Name("Tree"), "92a474776967", "Tree: the variant 'twig' (R-32)"),
    (Name("Tree"), "92a1ff00", "Tree: the variant '�' (R-32)"),
    (Name("Tree"), "92c0", "Tree: nil (R-32)"),
    (Name("Tree"), "92a46c656166c3", "int in Tree.leaf: a bool (R-32)"),
    (Constant(INT, 1), "02", "+1: int 2 (R-32)"),
    (Constant(INT, 1), "a0", "+1: a string (R-32)"),
    (Constant(BOOL, True), "c2", "true: bool False (R-32)"),
]


@pytest.mark.parametrize(("kind", "data", "text"), WRONG)
def test_bytes_that_are_not_one_value_of_the_type_are_refused(kind: ValueType, data: str, text: str) -> None:
    assert mismatch(lambda: codec(kind).unpack(bytes.fromhex(data))) == text


@dataclass(frozen=True, slots=True)
class User:
    name: str
    age: int
    note_: str


@dataclass(frozen=True, slots=True)
class One:
    user: User


@dataclass(frozen=True, slots=True)
class Done:
    pass


def test_structs_as_objects_tuples_and_maps() -> None:
    plain, typed = codec(Name("One")), codec(Name("One"), User=User, One=One, Done=Done)
    data = typed.pack(One(User("a", 1, "b")))
    assert plain.unpack(data) == (("a", 1, "b"),)
    assert typed.unpack(data) == One(User("a", 1, "b"))
    assert data == typed.pack(({"name": "a", "note": "b", "age": 1},)) == plain.pack([["a", 1, "b"]])
    assert codec(Name("Done"), Done=Done).unpack(b"\x90") == Done()
    assert codec(Name("Done"), Done=Done).pack(Done()) == b"\x90"
    assert mismatch(lambda: plain.pack(One(User("a", 1, "b")))) == "One: One (R-31)"


def test_a_class_must_have_the_fields() -> None:
    with pytest.raises(TypeError, match="One has 1 fields, struct User has 3"):
        codec(Name("User"), User=One)


def tree_of(depth: int) -> Any:
    made: Any = ("none", ())
    for _ in range(depth):
        made = ("node", (made, ("none", ())))
    return made


def test_limits_of_the_depth() -> None:
    limits = Limits(value_depth=7)
    data = codec(Name("Tree"), limits).pack(tree_of(3))
    assert codec(Name("Tree"), limits).unpack(data) == tree_of(3)
    text = mismatch(lambda: codec(Name("Tree"), limits).pack(tree_of(4)))
    assert text.endswith("a value that is nested too deep (value-too-deep)")
    data = codec(Name("Tree")).pack(tree_of(4))
    text = mismatch(lambda: codec(Name("Tree"), limits).unpack(data))
    assert text.endswith("a value that is nested too deep (value-too-deep)")
    struct_at_the_limit = codec(Name("Tree"), Limits(value_depth=1))
    assert struct_at_the_limit.unpack(struct_at_the_limit.pack(("none", ()))) == ("none", ())
    assert "too-deep" in mismatch(lambda: struct_at_the_limit.pack(tree_of(1)))
    assert "too-deep" in mismatch(lambda: codec(Name("Tree"), Limits(value_depth=2)).pack(tree_of(1)))
    assert "too-deep" in mismatch(lambda: codec(Name("Tree"), Limits(value_depth=0)).pack(("none", ())))


@pytest.mark.parametrize(("fields", "head"), [(15, "9f"), (16, "dc0010"), (0x1_0000, "dd00010000")])
def test_the_heads_of_large_structs(fields: int, head: str) -> None:
    wide = Struct("Wide", tuple(Field(f"f{number}", BOOL) for number in range(fields)))
    made = codecs({"Wide": wide}, {}, Limits(message_values=fields))(Name("Wide"))
    data = made.pack((True,) * fields)
    assert data == bytes.fromhex(head) + b"\xc3" * fields
    assert made.unpack(data) == (True,) * fields


@pytest.mark.parametrize("depth", [1_000, 1_000_000])
def test_hostile_nesting_ends_at_the_limit(depth: int) -> None:
    bomb = bytes.fromhex("92a46e6f646592") * depth
    assert "value-too-deep" in mismatch(lambda: codec(Name("Tree"), Limits(value_depth=128)).unpack(bomb))


def test_limits_of_the_number_of_values() -> None:
    full: Any = ("none", ())
    for _ in range(6):
        full = ("node", (full, full))
    data = codec(Name("Tree")).pack(full)
    values = 2 * 127 + 2 * 63
    assert codec(Name("Tree"), Limits(message_values=values)).unpack(data) == full
    text = mismatch(lambda: codec(Name("Tree"), Limits(message_values=values - 1)).unpack(data))
    assert text.endswith("more values than a message may contain (too-many-values)")


@given(
    st.sampled_from([*Basic, *map(Name, TYPES)]).flatmap(lambda kind: st.tuples(st.just(kind), values_of(kind, TYPES)))
)
def test_values_survive(made: tuple[ValueType, Any]) -> None:
    kind, value = made
    data = codec(kind).pack(value)
    found = codec(kind).unpack(data)
    assert found == value or value != value
    assert codec(kind).pack(found) == data


@given(st.sampled_from([*Basic, *map(Name, TYPES)]), st.binary(max_size=40))
def test_hostile_bytes_are_refused_or_one_value(kind: ValueType, data: bytes) -> None:
    try:
        value = codec(kind).unpack(data)
    except ValueMismatch:
        return
    assert len(codec(kind).pack(value)) <= len(data) or kind is DOUBLE


@given(
    st.integers(-(1 << 63), (1 << 64) - 1)
    | st.text(st.characters(exclude_categories=("Cs",)))
    | st.floats()
    | st.booleans()
)
def test_another_implementation_writes_the_same_bytes(value: Any) -> None:
    msgspec = pytest.importorskip("msgspec", reason='the comparison needs the extra "codecs"')
    kind = {bool: BOOL, int: INT if isinstance(value, int) and value < 1 << 63 else UINT, float: DOUBLE, str: STRING}
    assert codec(kind[type(value)]).pack(value) == msgspec.msgpack.encode(value)


def test_the_vectors_of_the_specification() -> None:
    path = Path(__file__).resolve().parent.parent / "vectors" / "limit-stream.json"
    if not path.exists():
        pytest.skip("tests/vectors/limit-stream.json is not here: it comes with the wire")
    kinds = {"int": INT, "double": DOUBLE}
    structs = {"ls-send-done": Name("Done"), "ls-struct-user": Name("User")}
    for vector in json.loads(path.read_text(encoding="utf-8")):
        decoded = vector["decoded"]
        if "value" in decoded:
            kind = structs.get(vector["id"]) or kinds[decoded["value_type"]]
            data = bytes.fromhex(decoded["data_hex"])
            value = tuple(decoded["value"]) if isinstance(decoded["value"], list) else decoded["value"]
            assert (codec(kind).unpack(data), codec(kind).pack(value)) == (value, data), vector["id"]
