"""Duality: dual(dual(T)) = T, of trees and of machines (Limit-Stream R-15, R-40)."""

from __future__ import annotations

import pytest

pytest.importorskip("lark", reason='the language of session types needs the extra "sessions"')

from hypothesis import given

from afflux.sessions import compile_file, dual, format_file, loads
from afflux.sessions.types import File
from tests.sessions.trees import SUM, files


@given(files())
def test_the_dual_of_the_dual_is_the_type(file: File) -> None:
    """Limit-Stream R-40."""
    assert dual(dual(file)) == file
    for channel in file.channels:
        assert dual(dual(channel)) == channel
        assert dual(dual(channel.chain)) == channel.chain


@given(files())
def test_the_dual_of_a_machine_is_the_machine_of_the_dual(file: File) -> None:
    machines, duals = compile_file(file), compile_file(dual(file))
    for name, machine in machines.items():
        assert machine.dual() == duals[name]
        assert machine.dual().dual() == machine


def test_the_client_of_the_example() -> None:
    text = format_file(dual(loads(SUM).file))
    assert text.endswith(
        "channel sum =\n    send int ->\n    choose\n        | sum\n"
        "        | send Done ->\n          recv int ->\n          end\n"
    )
