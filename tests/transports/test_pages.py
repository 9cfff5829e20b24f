"""Large pages for large payloads: asked for where the system has them, and no harm where it has not."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from afflux.transports import pages

SIZE = 0x2200000
LARGE = Path("/sys/kernel/mm/transparent_hugepage")


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """The C library is looked for anew, before and after each test."""
    pages._advise.cache_clear()
    yield
    pages._advise.cache_clear()


def flags_at(address: int) -> str:
    """What the system says of the memory there."""
    here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            here = int(span[1], 16) <= address < int(span[2], 16)
        elif here and line.startswith("VmFlags:"):
            return line
    return ""


@pytest.mark.skipif(not LARGE.exists(), reason=f"no {LARGE}: Linux with large pages has it")
def test_the_system_gets_the_advice() -> None:
    buffer = BytesIO(bytes(SIZE))
    assert pages.ask_for_large_pages(buffer)
    with buffer.getbuffer() as view:
        first = ctypes.c_char.from_buffer(view)
        middle = ctypes.addressof(first) + SIZE // 2
        del first
    assert " hg" in flags_at(middle)


def test_nothing_else_changes() -> None:
    buffer = BytesIO(bytes(SIZE))
    pages.ask_for_large_pages(buffer)
    buffer.write(b"all of it")
    buffer.truncate()
    assert buffer.getvalue() == b"all of it"


@pytest.mark.parametrize("size", [0, 1, 5000])
def test_a_buffer_that_has_no_page_of_its_own(size: int) -> None:
    buffer = BytesIO(bytes(size))
    pages.ask_for_large_pages(buffer)
    assert buffer.getvalue() == bytes(size)


def test_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert not pages.ask_for_large_pages(BytesIO(bytes(SIZE)))


def test_a_python_without_ctypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    assert not pages.ask_for_large_pages(BytesIO(bytes(SIZE)))
