"""Every engine keeps the contract: the same names, with the same parameters."""

from __future__ import annotations

import inspect

import pytest

from afflux.core.engine import Engine as Contract
from afflux.protocols import jmux, reactivesocket, rsio, rsocket

ENGINES = [rsocket.Engine, reactivesocket.Engine, jmux.Engine, rsio.Engine]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: str(engine.__module__))
def test_an_engine_has_all_of_the_contract(engine: type) -> None:
    for name, wanted in vars(Contract).items():
        if name.startswith("_"):
            continue
        actual = inspect.getattr_static(engine, name)
        assert callable(actual) == callable(wanted), name
        if callable(wanted):
            expected = inspect.signature(wanted).parameters
            assert list(inspect.signature(actual).parameters) == list(expected), name
