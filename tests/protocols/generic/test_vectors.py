"""The published bytes of every protocol, both ways."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.core.errors import Violation

from .every import WIRES
from .wires import VECTORS, Wire, id_of

PIECES = [(wire, *piece) for wire in WIRES for piece in wire.vectors.every()]
IDS = [f"{wire.name}-{id}" for wire, id, _, _ in PIECES]


@pytest.mark.parametrize(("wire", "id", "data", "meaning"), PIECES, ids=IDS)
def test_a_vector_is_read_as_published(wire: Wire, id: str, data: bytes, meaning: dict[str, Any]) -> None:
    frame = wire.vectors.decode(data, meaning)
    assert wire.vectors.described(frame) == meaning


@pytest.mark.parametrize(("wire", "id", "data", "meaning"), PIECES, ids=IDS)
def test_a_vector_is_written_as_published(wire: Wire, id: str, data: bytes, meaning: dict[str, Any]) -> None:
    frame = wire.vectors.decode(data, meaning)
    written = wire.vectors.encode(frame)
    assert (written == data) is (id not in wire.vectors.one_way)
    assert wire.vectors.decode(written, meaning) == frame


@pytest.mark.parametrize(("wire", "id", "data", "meaning"), PIECES, ids=IDS)
def test_a_vector_that_is_cut_is_something_else_or_nothing(
    wire: Wire, id: str, data: bytes, meaning: dict[str, Any]
) -> None:
    """Nothing but a Violation comes out, wherever the end is missing."""
    for size in range(len(data)):
        try:
            assert wire.vectors.decode(data[:size], meaning).encode() != b""
        except Violation as violation:
            assert violation.rule


@pytest.mark.parametrize("wire", WIRES, ids=id_of)
def test_the_vectors_are_there(wire: Wire) -> None:
    assert wire.vectors.every()
    assert wire.vectors.one_way <= {id for id, _, _ in wire.vectors.every()}


def test_no_file_of_vectors_is_forgotten() -> None:
    assert {path.name for path in VECTORS.iterdir()} == {wire.vectors.file for wire in WIRES}
