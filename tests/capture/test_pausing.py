"""The garbage collector waits while a batch is decoded, and is then as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from afflux.capture import CaptureError
from afflux.capture.pausing import uncollected


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    yield
    gc.enable()


def test_the_collector_waits_and_works_again_after_an_error() -> None:
    with pytest.raises(CaptureError), uncollected():
        assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise CaptureError("wrong")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()


def test_blocks_may_overlap() -> None:
    """As those of two threads do: the collector works again after the last one."""
    first, second = uncollected(), uncollected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()
