"""Transition tables: complete by construction, or not constructed."""

from __future__ import annotations

from enum import Enum, IntEnum, auto

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afflux.core.machine import Row, Step, Table, functions, members, numbered, same


class Door(IntEnum):
    OPEN = 0
    SHUT = 1
    LOCKED = 2
    GONE = 3


class Hand(IntEnum):
    PUSH = 0
    PULL = 1
    TURN_KEY = 2


class Deed(Enum):
    NOTHING = auto()
    MOVE = auto()
    LOCK = auto()
    UNLOCK = auto()


class Gap(IntEnum):
    FIRST = 0
    THIRD = 2


class Below(IntEnum):
    MINUS = -1
    ZERO = 0


DoorRow = Row[Door, Hand, Deed]

ROWS: list[DoorRow] = [
    Row(Door.OPEN, Hand.PUSH, Deed.MOVE, Door.SHUT, "X-1"),
    Row(Door.SHUT, Hand.PULL, Deed.MOVE, Door.OPEN, "X-1"),
    Row(Door.SHUT, Hand.TURN_KEY, Deed.LOCK, Door.LOCKED, "X-2"),
    Row(Door.LOCKED, Hand.TURN_KEY, Deed.UNLOCK, Door.SHUT, "X-2"),
    Row((Door.SHUT, Door.LOCKED), Hand.PUSH, Deed.NOTHING, same, "X-3"),
]


def table_of(*rows: DoorRow, start: Door = Door.OPEN) -> Table[Door, Hand, Deed]:
    return Table(
        "door",
        states=(Door.OPEN, Door.SHUT, Door.LOCKED),
        inputs=Hand,
        start=start,
        rows=rows,
        otherwise=(Deed.NOTHING, "X-9"),
    )


DOOR = table_of(*ROWS)


def test_a_row_fills_its_cells() -> None:
    assert DOOR.step(Door.OPEN, Hand.PUSH) == Step(Door.SHUT, Deed.MOVE, "X-1")
    assert DOOR[Door.SHUT, Hand.TURN_KEY] == Step(Door.LOCKED, Deed.LOCK, "X-2")
    step = DOOR.step(Door.LOCKED, Hand.PUSH)
    assert (step.next, step.action, step.rule) == (Door.LOCKED, Deed.NOTHING, "X-3")
    assert DOOR.step(Door.SHUT, Hand.PUSH).next is Door.SHUT


def test_every_other_cell_is_filled_by_otherwise() -> None:
    assert DOOR.step(Door.OPEN, Hand.TURN_KEY) == Step(Door.OPEN, Deed.NOTHING, "X-9")
    assert DOOR.otherwise == (Deed.NOTHING, "X-9")


def test_cells_walk_over_all_of_the_table() -> None:
    cells = list(DOOR.cells())
    assert [(state, input) for state, input, _ in cells] == [
        (state, input) for state in (Door.OPEN, Door.SHUT, Door.LOCKED) for input in Hand
    ]
    assert all(DOOR[state, input] is step for state, input, step in cells)
    assert repr(DOOR) == "<Table 'door': 3 states × 3 inputs>"


def test_a_state_that_is_not_of_the_table_is_a_bug() -> None:
    with pytest.raises(IndexError):
        DOOR.step(Door.GONE, Hand.PUSH)


def test_a_state_may_be_left_out_in_the_middle() -> None:
    table = Table(
        "gate",
        states=(Door.OPEN, Door.LOCKED),
        inputs=Hand,
        start=Door.LOCKED,
        rows=[Row((Door.OPEN, Door.LOCKED), tuple(Hand), "go", Door.OPEN, "G-1")],
        otherwise=("stay", "G-2"),
    )
    assert table.step(Door.LOCKED, Hand.PULL) == (Door.OPEN, "go", "G-1")
    with pytest.raises(IndexError):
        table.step(Door.SHUT, Hand.PULL)
    assert "LOCKED --> OPEN: PUSH, PULL, TURN_KEY / go\n" in table.mermaid()


@pytest.mark.parametrize(
    ("rows", "start", "message"),
    [
        ([*ROWS, ROWS[0]], Door.OPEN, "two rows for OPEN × PUSH"),
        ([*ROWS, Row(Door.GONE, Hand.PUSH, Deed.MOVE, same, "")], Door.OPEN, "GONE: 3> is not a state"),
        ([*ROWS, Row(Door.OPEN, Hand.PULL, Deed.MOVE, Door.GONE, "")], Door.OPEN, "GONE: 3> is not a state"),
        (ROWS, Door.GONE, "the start <Door.GONE: 3> is not a state"),
        (ROWS[:2], Door.OPEN, "unreachable states: LOCKED"),
        ([], Door.OPEN, "unreachable states: SHUT, LOCKED"),
    ],
)
def test_a_table_that_is_wrong_cannot_be_made(rows: list[DoorRow], start: Door, message: str) -> None:
    with pytest.raises(ValueError, match=f"door: .*{message}"):
        table_of(*rows, start=start)


def test_members_are_compared_by_identity() -> None:
    stranger: DoorRow = Row(Door.OPEN, Gap.FIRST, Deed.MOVE, same, "")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ValueError, match="FIRST: 0> is not an input"):
        table_of(*ROWS, stranger)


def test_inputs_have_no_gaps_and_states_no_negative_numbers() -> None:
    with pytest.raises(ValueError, match="inputs are numbered from 0 without gaps"):
        Table("t", states=Door, inputs=Gap, start=Door.OPEN, rows=[], otherwise=("", ""))
    with pytest.raises(ValueError, match="states are different numbers"):
        Table("t", states=Below, inputs=Hand, start=Below.ZERO, rows=[], otherwise=("", ""))
    with pytest.raises(ValueError, match="states are different numbers"):
        Table("t", states=(Door.OPEN, Door.OPEN), inputs=Hand, start=Door.OPEN, rows=[], otherwise=("", ""))


def test_the_picture_is_drawn_from_the_cells() -> None:
    assert DOOR.mermaid() == (
        "stateDiagram-v2\n"
        "    [*] --> OPEN\n"
        "    OPEN --> SHUT: PUSH / MOVE\n"
        "    SHUT --> SHUT: PUSH / NOTHING\n"
        "    SHUT --> OPEN: PULL / MOVE\n"
        "    SHUT --> LOCKED: TURN_KEY / LOCK\n"
        "    LOCKED --> LOCKED: PUSH / NOTHING\n"
        "    LOCKED --> SHUT: TURN_KEY / UNLOCK\n"
    )


def test_an_end_is_drawn_as_one() -> None:
    rows: list[DoorRow] = [
        Row(Door.OPEN, (Hand.PUSH, Hand.PULL), Deed.MOVE, Door.SHUT, ""),
        Row(Door.OPEN, Hand.TURN_KEY, Deed.MOVE, Door.LOCKED, ""),
    ]
    picture = table_of(*rows).mermaid()
    assert "    OPEN --> SHUT: PUSH, PULL / MOVE\n" in picture
    assert picture.endswith("    SHUT --> [*]\n    LOCKED --> [*]\n")


def test_the_table_for_people() -> None:
    assert DOOR.markdown() == (
        "|State|Input|Action|Next|Rule|\n"
        "|---|---|---|---|---|\n"
        "|OPEN|PUSH|MOVE|SHUT|X-1|\n"
        "|SHUT|PUSH|NOTHING|same|X-3|\n"
        "|SHUT|PULL|MOVE|OPEN|X-1|\n"
        "|SHUT|TURN_KEY|LOCK|LOCKED|X-2|\n"
        "|LOCKED|PUSH|NOTHING|same|X-3|\n"
        "|LOCKED|TURN_KEY|UNLOCK|SHUT|X-2|\n"
        "|any|anything else|NOTHING|same|X-9|\n"
    )


class Light(IntEnum):
    OFF = 0
    ON = 1
    BLINK_FAST = 2


class Lamp:
    def off(self) -> str:
        return "off"

    def blink_fast(self) -> str:
        return "fast"


def test_the_functions_of_actions_are_lists_by_number() -> None:
    assert numbered({Light.ON: "on", Light.BLINK_FAST: "fast"}, unhandled=[Light.OFF]) == [None, "on", "fast"]
    assert functions(Light, Lamp, unhandled=[Light.ON]) == [Lamp.off, None, Lamp.blink_fast]


def test_each_action_has_a_function_or_is_unhandled() -> None:
    with pytest.raises(ValueError, match=r'Light: expected either a function or "unhandled" for ON$'):
        functions(Light, Lamp)
    with pytest.raises(ValueError, match=r"for OFF, BLINK_FAST$"):
        numbered({Light.ON: "on"})
    with pytest.raises(ValueError, match=r"for OFF$"):
        functions(Light, Lamp, unhandled=(Light.OFF, Light.ON))


def test_the_members_of_a_row_are_a_tuple() -> None:
    assert members(Door.OPEN) == (Door.OPEN,)
    assert members((Door.OPEN, Door.SHUT)) == (Door.OPEN, Door.SHUT)


@given(st.dictionaries(st.tuples(st.sampled_from(Door), st.sampled_from(Hand)), st.sampled_from(Door)))
def test_a_table_is_total_or_refused(cells: dict[tuple[Door, Hand], Door]) -> None:
    reached = {Door.OPEN}
    for _ in Door:
        reached |= {cells.get((state, input), state) for state in reached for input in Hand}
    rows = [Row(state, input, "go", next, "X") for (state, input), next in cells.items()]
    try:
        table = Table("any", states=Door, inputs=Hand, start=Door.OPEN, rows=rows, otherwise=("stay", "Y"))
    except ValueError:
        assert reached != set(Door)
        return
    assert reached == set(Door)
    for state, input, step in table.cells():
        assert step.next is cells.get((state, input), state)
        assert step.action == ("go" if (state, input) in cells else "stay")
