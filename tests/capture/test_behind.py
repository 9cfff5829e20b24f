"""Batches that are followed while the next one is decoded have the rows of batches that are followed at once, in the
same order, however late they are followed."""

from __future__ import annotations

import io
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afflux.capture import Analysis, Capture, CaptureError, behind
from afflux.capture.behind import Behind
from afflux.capture.gathered import Gathered
from afflux.capture.ledger import Ledger
from afflux.capture.schemas import TABLES
from afflux.capture.segments import segments
from afflux.capture.window import Windows
from afflux.core.limits import Limits
from afflux.protocols.rsocket import frames as wire
from tests.capture.tabling import SETUP, Tables, asks, brief, item, packets, tables
from tests.capture.test_frames import damage
from tests.capture.test_whole import connection, mixed
from tests.capture.writing import ACK, FIN, RST, Packet, Talk, pcap
from tests.examples import share


class Late:
    """A thread that is as late as it can be: it works when somebody waits for it."""

    def __init__(self, threads: int, name: str) -> None:
        self.count = 0

    def submit(self, function: Callable[[Gathered], Any], batch: Gathered) -> Future[Any]:
        self.count += 1
        made: Future[Any] = Future()
        wait = made.result

        def result(timeout: float | None = None) -> Any:
            made.set_result(function(batch))
            return wait(timeout)

        made.result = result  # type: ignore[method-assign]  # a future that works when it is asked
        return made

    def shutdown(self) -> None:
        pass


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    """Batches are followed in the thread from the first one on, without numba as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "compiled", staticmethod(lambda closing: True))
        patch.setattr(Windows, "compiled", True)
        yield


def followed(file: bytes, chunk: int, limits: Limits | None = None, *, late: bool = True) -> tuple[Tables, int]:
    """The tables, and how many batches the thread has followed."""
    found: Tables = {}

    def add(made: Any) -> None:
        for name, batch in made.items():
            found.setdefault(name, []).extend(batch.to_pylist())

    analysis, detached = Analysis(limits, tables=list(TABLES), payload=True), 0
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        if late:
            patch.setattr(behind, "ThreadPoolExecutor", Late)
        following = stack.enter_context(Behind(analysis))
        capture = Capture(io.BytesIO(file), limits=analysis.limits, chunk=chunk)
        for some in capture:
            for made in following.take(some, segments(some, analysis.batches.network)):
                add(made)
            detached += following._following is not None
        for made in following.rest():
            add(made)
    if (problem := capture.problem) is not None:
        add(analysis.damaged(problem.offset, problem.word, problem.text))
    for made in (analysis.passed(), analysis.end(), analysis.passed()):
        add(made)
    return found, detached


@given(st.integers(0, 1 << 60), st.sampled_from([400, 700, 4_000]), st.booleans())
@settings(deadline=None, max_examples=share(1.0))
def test_batches_that_are_followed_late_have_the_same_tables(seed: int, chunk: int, small: bool) -> None:
    """All protocols, lost, repeated, cut and swapped packets, ports that are used again, packets after a RST."""
    noise = random.Random(seed)
    made = mixed([connection(number, noise) for number in range(noise.randint(1, 9))], noise)
    if noise.random() < 0.4:
        damage(made, noise)
    limits = Limits.tiny(capture_flows=noise.randint(1, 4)) if small else None
    file = pcap(made)
    options: dict[str, Any] = {"tables": list(TABLES), "payload": True, "chunk": chunk, "limits": limits}
    assert followed(file, chunk, limits)[0] == tables(file, **options)


def long() -> list[Packet]:
    """A connection of many batches of 4,000 bytes, in which new types of frames appear."""
    said = [(0.0, True, SETUP + asks(1))]
    for number in range(1, 40):
        said.append((0.01, False, item(1, bytes(300)) * 3))
        if number % 10 == 0:
            said.append((0.2, True, asks(1 + 2 * number)))
            said.append((0.0, True, wire.Cancel(stream=1 + 2 * number).encode(prefixed=True)))
    return packets(said)


@pytest.mark.parametrize("late", [False, True])
def test_a_long_connection(late: bool) -> None:
    """All batches but the last are followed in the thread: connections may begin in them, and end in order."""
    file = pcap(long())
    found, detached = followed(file, 4_000, late=late)
    assert found == tables(file, tables=list(TABLES), payload=True, chunk=4_000)
    assert detached > 8 and len(found["frames"]) > 100 and found["stalls"]


def first_batch(found: list[Packet]) -> int:
    """The bytes of a batch that has these packets, the first ones of a file."""
    return sum(16 + len(one.data) for one in found)


def same(first: list[Packet], then: list[Packet]) -> Tables:
    """The tables of two batches; they are the same with and without a thread."""
    file, chunk = pcap([*first, *then]), first_batch(first)
    found = tables(file, tables=list(TABLES), payload=True, chunk=chunk)
    assert followed(file, chunk)[0] == found
    return found


def test_segments_after_a_reset_do_not_change_the_row_of_the_batch_with_the_reset() -> None:
    talk = Talk()
    reset = [*talk.open(), talk.packet(True, 0, flags=FIN | ACK), talk.packet(False, 0, flags=RST | ACK)]
    found = same(reset, talk.send(False, b"HTTP/1.1 200 OK\r\n\r\n"))
    assert brief(found["connections"], "content", "closing") == [("no data", "rst")]


def test_a_side_that_begins_in_the_next_batch_is_not_known_from_its_first_byte() -> None:
    """Its SYN comes after the frames of the other side, so that its first frames may be answers to lost requests."""
    talk = Talk()
    opening, answer, last = talk.open()
    found = same([opening, *talk.send(True, SETUP + asks(1))], [answer, last, *talk.send(False, item(7) + item(1))])
    assert brief(found["violations"], "kind") == [("order",)]


def test_an_error_in_the_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    before, where = set(threading.enumerate()), []
    follow = Analysis.follow

    def failing(self: Analysis, batch: Gathered) -> Any:
        if threading.current_thread() is not threading.main_thread():
            where.append(threading.current_thread())
            raise CaptureError("wrong")
        return follow(self, batch)

    monkeypatch.setattr(Analysis, "follow", failing)
    with pytest.raises(CaptureError, match="wrong"):
        followed(pcap(long()), 4_000, late=False)
    assert len(where) == 1 and set(threading.enumerate()) <= before
