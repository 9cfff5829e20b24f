"""The tables of every protocol: each cell against a grid written by hand, what is final, drawn and named."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest

from afflux.core.machine import Table

from .every import WIRES
from .wires import Wire, id_of, package_of

TABLES = [(wire, *entry) for wire in WIRES for entry in wire.tables]
IDS = [f"{wire.name}-{table.name}" for wire, table, _, _ in TABLES]


def grid(text: str, letters: dict[str, str]) -> dict[tuple[str, str], str]:
    """(state, input) to the next state, by name; "!" where the connection ends."""
    head, *lines = text.strip().splitlines()
    states = [letters[letter] for letter in head.split()]
    cells = {}
    for line in lines:
        input, *nexts = line.split()
        for state, next in zip(states, nexts, strict=True):
            cells[state, input] = state if next == "." else next if next == "!" else letters[next]
    return cells


@pytest.mark.parametrize(("wire", "table", "text", "letters"), TABLES, ids=IDS)
def test_every_cell(wire: Wire, table: Table[Any, Any, Any], text: str, letters: dict[str, str]) -> None:
    cells = {
        (state.name, input.name): "!" if any(step.action is fatal for fatal in wire.fatal) else step.next.name
        for state, input, step in table.cells()
    }
    assert cells == grid(text, letters)
    assert len(cells) == len(table.states) * len(table.inputs)


@pytest.mark.parametrize("wire", WIRES, ids=id_of)
def test_every_table_of_the_package_is_here(wire: Wire) -> None:
    module = import_module(f"afflux.protocols.{package_of(wire.name)}.states")
    declared = [table for table, _, _ in wire.tables]
    there = [value for name, value in vars(module).items() if isinstance(value, Table) and not name.startswith("_")]
    assert there
    assert [table.name for table in there if not any(table is other for other in declared)] == []


@pytest.mark.parametrize(("wire", "table"), [entry[:2] for entry in TABLES], ids=IDS)
def test_a_connection_or_stream_that_is_over_stays_so(wire: Wire, table: Table[Any, Any, Any]) -> None:
    over = [state for state in table.states if state.name == "CLOSED" and "session" not in table.name]
    assert [step for state, _, step in table.cells() if state in over and step.next != state] == []


@pytest.mark.parametrize(("wire", "table"), [entry[:2] for entry in TABLES], ids=IDS)
def test_every_step_names_what_it_rests_on(wire: Wire, table: Table[Any, Any, Any]) -> None:
    rules = {step.rule for _, _, step in table.cells()}
    assert [
        rule for rule in rules if not re.fullmatch(r"[RD]-\d+|[A-Z]{2}-\d+|\d(\.\d(, \d\.\d)*)?|RS \d\.\d+", rule)
    ] == []


@pytest.mark.parametrize(("wire", "table"), [entry[:2] for entry in TABLES], ids=IDS)
def test_it_can_be_drawn(wire: Wire, table: Table[Any, Any, Any]) -> None:
    assert table.mermaid().startswith(f"stateDiagram-v2\n    [*] --> {table.start.name}\n")
    assert all(state.name in table.markdown() for state in table.states if state.name != "CLOSED")
