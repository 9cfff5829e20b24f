"""Tables fit 80 columns, or the terminal; rows that do not fit are turned."""

from __future__ import annotations

import json
import re

import pytest
from rich.cells import cell_len

from afflux.cli import tables
from tests.cli.running import Server, here
from tests.cli.terminal import Terminal


def shown(capsys: pytest.CaptureFixture[str], *rows: dict[str, object]) -> str:
    tables.show(list(rows[0]), rows)
    return capsys.readouterr().out


def test_rows_that_fit_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    table = shown(capsys, {"name": "a", "value": 1}, {"name": "b", "value": [1, None]})
    assert "┃ name ┃ value     ┃" in table
    assert "│ b    │ [1, null] │" in table


@pytest.mark.parametrize(("size", "turned"), [(71, False), (72, True)])
def test_a_table_has_80_columns_at_most(capsys: pytest.CaptureFixture[str], size: int, turned: bool) -> None:
    lines = shown(capsys, {"a": "x" * size, "b": "yy"}).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert (lines[0] == "a: " + "x" * size) == turned


def test_turned_rows_have_a_line_for_each_value(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"id": 1, "text": "é" * 200, "two": "lines\nof text", "none": None}
    assert shown(capsys, row, row | {"id": 2}).splitlines()[:6] == [
        "id:   1",
        "text: " + "é" * 74,
        "      " + "é" * 74,
        "      " + "é" * 52,
        "two:  lines",
        "      of text",
    ]
    assert shown(capsys, row, row | {"id": 2}).count("\n\n") == 1


def test_long_names_and_wide_characters_fit(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, {"n" * 100: "語" * 100, "b": ""}).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert "".join(line.strip() for line in lines).count("語") == 100


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in shown(capsys, {"a": "\x1b[31mred"})
    assert "\\x1b[31m" in shown(capsys, {"a": "\x1b[31m" + "x" * 100})


def test_chosen_columns() -> None:
    with Server("--demo") as server:
        flights = ("request", server.uri, "--stream", "-r", "flights", "--take", "2")
        table = here(*flights, "-o", "table", "--columns", "carrier,dest").out
        assert "│ UA      │ IAH  │" in table
        assert here(*flights, "-o", "csv", "--columns", "dest,nosuch").out == "dest,nosuch\nIAH,\nIAH,\n"
        turned = here(*flights, "-o", "table").out
        assert "carrier:        UA\n" in turned
        assert max(map(len, turned.splitlines())) <= 80
        items = ("-d", '{"a": 1}', "-d", '{"b": 2}')
        assert re.search(r"a.*b", here("request", server.uri, "--channel", *items, "-o", "table").out)


def test_a_wide_terminal_has_room_for_a_wide_table() -> None:
    data = json.dumps({"a": "x" * 60, "b": "y" * 60})
    with Server("--demo") as server:
        for columns, table in ((80, False), (200, True)):
            with Terminal(["request", server.uri, "-d", data, "-o", "table"], columns=columns) as terminal:
                code, out = terminal.end()
            assert (code, ("┏" in out)) == (0, table)
