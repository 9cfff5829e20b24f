"""The classes of payloads, those that applications derive from them, and their copies: equal in both builds."""

from __future__ import annotations

import copy
import pickle
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest

from afflux.core.payload import Payload, Plain, Run, payload_of, size_of
from afflux.protocols.limit.messages import Choice, Opening, Value
from afflux.protocols.rsocket_draft.entries import Entry
from afflux.protocols.rsocket_draft.payload import ExtendedPayload

T = TypeVar("T")


class Slotted(Payload):
    """An application's class with an attribute of its own, and one whose name Python changes."""

    __slots__ = ("__hidden", "number")

    def __init__(self, data: bytes = b"", number: int = 0) -> None:
        super().__init__(data, b"m")
        self.number = number
        self.__hidden = -number

    @property
    def hidden(self) -> int:
        """The other attribute."""
        return self.__hidden


class Open(Payload):
    """An application's class whose objects have any attribute."""

    more: Any


class Kept(ExtendedPayload):
    """An application's class of extended payloads."""

    more: Any


class Upper(Payload):
    """An application's class that overrides methods."""

    def __init__(self, word: str) -> None:
        super().__init__(word.encode())

    def __len__(self) -> int:
        return 77

    def __repr__(self) -> str:
        return f"Upper({super().text!r})"

    @property
    def text(self) -> str:
        """The text in capitals."""
        return super().text.upper()


def of(value: Any, **attributes: Any) -> Any:
    """The value with these attributes."""
    for name, attribute in attributes.items():
        setattr(value, name, attribute)
    return value


def attributes(payload: Payload) -> dict[str, Any]:
    """What the payloads of this file have; equality of a derived class does not compare it."""
    names = ("data", "metadata", "number", "hidden", "more", "branch", "value", "steps", "entries", "data_mime")
    return {name: getattr(payload, name) for name in names if hasattr(payload, name)}


def pickled(protocol: int) -> Callable[[Payload], Any]:
    """The payload after a journey to another process."""
    return lambda payload: pickle.loads(pickle.dumps(payload, protocol))


PAYLOADS = [
    Payload(),
    Payload(b"d", b""),
    Payload(bytearray(b"d"), bytearray(b"m")),  # type: ignore[arg-type]  # what a caller may do without mypy
    Slotted(b"d", 7),
    of(Open(b"d"), more=[1, "x"]),
    Upper("word"),
    ExtendedPayload(b"d", b"m", entries=[Entry("own", b"x")], data_mime="text/plain"),
    of(Kept(b"d", data_mime="text/plain"), more=[1, "x"]),
    Choice(3, b"m"),
    Value({"a": 1}, b"m", b"d"),
    Opening("prices", b"d"),
]


COPIED = [copy.copy, copy.deepcopy, *map(pickled, range(2, pickle.HIGHEST_PROTOCOL + 1))]


@pytest.mark.parametrize("copied", COPIED)
@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: type(payload).__name__)
def test_copies_keep_the_class_and_every_attribute(payload: Payload, copied: Callable[[Payload], Payload]) -> None:
    made = copied(payload)
    assert type(made) is type(payload)
    assert made is not payload
    assert made == payload
    assert attributes(made) == attributes(payload)


def test_only_deep_copies_copy_what_a_derived_class_adds() -> None:
    payload = of(Open(b"d"), more=[1])
    assert copy.copy(payload).more is payload.more
    assert copy.deepcopy(payload).more is not payload.more


def test_the_state_of_a_payload_is_that_of_a_slotted_class() -> None:
    """A pickle of one build can therefore be read by the other."""
    assert Payload(b"d", b"m").__getstate__() == (None, {"data": b"d", "metadata": b"m"})
    assert of(Open(b"d"), more=1).__getstate__() == ({"more": 1}, {"data": b"d", "metadata": None})
    assert pickle.loads(
        b"\x80\x04cafflux.core.payload\nPayload\n)\x81N}(\x8c\x04dataC\x01d\x8c\x08metadataNu\x86b."
    ) == (Payload(b"d"))


def test_a_payload_without_its_attributes_is_copied_without_them() -> None:
    bare = copy.copy(Payload.__new__(Payload))
    assert not hasattr(bare, "data")
    bare.data = b"d"
    assert bare.data == b"d"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_payload_keeps_the_objects_that_it_is_given(kind: Callable[[bytes], Any]) -> None:
    data, metadata = kind(b"data"), kind(b"m")
    payload = Payload(data, metadata)
    assert payload.data is data
    assert payload.metadata is metadata
    assert (len(payload), size_of([payload]), payload.text) == (5, 5, "data")
    assert payload == Payload(b"data", b"m")
    assert payload_of(payload) == Payload(b"data", b"m")
    extended = ExtendedPayload(data, metadata, data_mime="text/plain")
    assert extended.data is data
    assert type(payload_of(extended)) is ExtendedPayload
    assert payload_of(extended).proper


def test_what_becomes_a_payload_keeps_what_a_derived_class_adds() -> None:
    odd = of(Open(bytearray(b"d")), more=1)
    proper = payload_of(odd)
    assert (type(proper), proper.data, proper.more) == (Open, b"d", 1)
    assert odd.data == bytearray(b"d")
    assert type(odd.data) is bytearray


def test_attributes_can_be_set_and_others_cannot() -> None:
    payload = Payload(b"a")
    payload.data, payload.metadata = b"b", b"m"
    assert payload == Payload(data=b"b", metadata=b"m") == Payload(metadata=b"m", data=b"b")
    with pytest.raises(AttributeError, match="other"):
        payload.other = 1  # type: ignore[attr-defined]  # the mistake under test
    with pytest.raises(AttributeError):
        payload.text = "x"  # type: ignore[misc]  # the mistake under test
    with pytest.raises(AttributeError):
        payload.__dict__  # noqa: B018  # it raises
    with pytest.raises(TypeError, match="weak reference"):
        weakref.ref(payload)


@pytest.mark.parametrize("wrong", [((b"", b"", b""), {}), ((), {"other": b""}), ((b"",), {"data": b""})])
def test_wrong_arguments(wrong: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    with pytest.raises(TypeError):
        Payload(*wrong[0], **wrong[1])


def test_payloads_have_no_order() -> None:
    with pytest.raises(TypeError, match="not supported between instances of 'Payload' and 'Payload'"):
        Payload() < Payload()  # type: ignore[operator]  # noqa: B015  # the mistake under test


def test_what_applications_override_is_called_from_everywhere() -> None:
    payload = Upper("word")
    assert (repr(payload), payload.text, len(payload), bool(payload)) == ("Upper('word')", "WORD", 77, True)
    assert isinstance(payload, Payload)
    assert payload_of(payload) is payload
    assert payload == Payload(b"word")
    assert Payload(b"word") == payload
    assert hash(payload) == hash(Payload(b"word"))
    assert {payload: 1}[Payload(b"word")] == 1


def test_a_derived_class_decides_what_is_proper() -> None:
    class Never(Payload):
        proper = False  # type: ignore[assignment]  # an attribute instead of the property

    odd = Never(b"d")
    assert payload_of(odd) is not odd
    assert payload_of(odd) == odd


def test_objects_of_a_derived_class_have_a_dictionary_and_weak_references() -> None:
    payload = of(Open(b"d"), more=1)
    assert vars(payload) == {"more": 1}
    assert weakref.ref(payload)() is payload
    with pytest.raises(TypeError, match="__dict__"):
        vars(Slotted(b"d"))


def test_payloads_mix_with_other_classes() -> None:
    class Typed(Payload, Generic[T]):
        """A generic class."""

    @dataclass(eq=False)
    class Data(Payload):
        """A data class."""

        number: int = 3

        def __post_init__(self) -> None:
            super().__init__(str(self.number).encode())

    assert Typed[int](b"d") == Payload(b"d")
    assert Data(5).data == b"5"
    assert copy.copy(Data(5)).number == 5


def matched(value: object) -> object:
    """What a pattern finds in a payload."""
    match value:
        case Choice(branch=branch):
            return branch
        case Payload(data=b"", metadata=None):
            return "empty"
        case Payload(data=data, metadata=bytes(metadata)):
            return data, metadata
        case Payload(data=data):
            return data
        case _:
            return None


def test_patterns() -> None:
    found = [matched(value) for value in (Choice(4), Payload(), Payload(b"d", b"m"), Upper("word"), b"d")]
    assert found == [4, "empty", (b"d", b"m"), b"word", None]


def test_equality_of_classes() -> None:
    assert Choice(1) == Choice(1)
    assert Choice(1) != Choice(2)
    assert Choice(1) != Payload(Choice(1).data)
    assert hash(Choice(1, b"m")) == hash(Choice(1, b"m"))
    assert Opening("a", b"d") == Payload(b"d", b"a")
    assert (repr(Choice(3)), repr(Value([1])), Opening("a").channel) == ("Choice(3)", "Value([1])", "a")
    assert Payload(b"d").__eq__(b"d") is NotImplemented
    assert isinstance(ExtendedPayload(b"d"), Payload)
    assert not isinstance(b"d", Payload)


def test_runs_create_payloads_of_the_class() -> None:
    items = [*Run(b"..abc..def", 0, 2, 3, 2), *Plain([b"x"])]
    assert [type(item) for item in items] == [Payload] * 3
    assert pickle.loads(pickle.dumps(Plain([b"x", b"yz"]))) == Plain([b"x", b"yz"])
    assert copy.copy(Run(b"..abc..def", 0, 2, 3, 2)) == [Payload(b"abc"), Payload(b"def")]


def test_attributes_that_a_class_lists_as_compiled_ones_do_are_copied() -> None:
    class Listed(Payload):
        __mypyc_attrs__ = ("data", "metadata", "more", "unset")

    made = Listed(b"data", b"metadata")
    made.more = 1  # type: ignore[attr-defined] # applications may
    copied = copy.copy(made)
    assert (copied, copied.more) == (made, 1) and not hasattr(copied, "unset")  # type: ignore[attr-defined] # as above
