"""The outside: every name is there, nothing heavy comes with the import, and the version is one."""

from __future__ import annotations

import subprocess
import sys

import pytest

import afflux
from afflux.core import errors


def test_every_public_name_is_there() -> None:
    for name in afflux.__all__:
        assert getattr(afflux, name) is not None
    assert set(afflux.__all__) <= set(dir(afflux))


def test_the_blocking_side() -> None:
    for name in afflux.sync.__all__:
        assert getattr(afflux.sync, name) is not None
    assert afflux.sync.Session is not afflux.Session
    assert {"Pool", "Session"} <= set(afflux.__all__)


def test_every_error_is_public() -> None:
    assert set(errors.__all__) - {"Consequence", "Violation"} <= set(afflux.__all__)


def test_what_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        afflux.nothing  # type: ignore[attr-defined] # noqa: B018 -- on purpose


def test_importing_it_is_light() -> None:
    code = """
import sys
import afflux
heavy = {"asyncio", "socket", "ssl", "logging", "threading", "dataclasses", "afflux.protocols.rsocket.engine"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
