"""Jmux with its Java original, each in both roles: what is said comes back whole. Skipped where Apache River is not."""

from __future__ import annotations

import tempfile

import pytest
from benchmarks.pairs import Pair, start
from benchmarks.peers import PEERS, Contender
from benchmarks.workloads import WORKLOADS

AFFLUX, JAVA = Contender("afflux-jmux", "asyncio"), Contender("jeri", "java")
NAMED = {workload.name: workload for workload in WORKLOADS}


@pytest.mark.parametrize(("server", "client"), [(JAVA, AFFLUX), (AFFLUX, JAVA)], ids=["java serves", "afflux serves"])
async def test_both_understand_each_other(server: Contender, client: Contender) -> None:
    """64 sessions at once, their ids used again and again; then sessions of 1 MiB each way, many times the ration."""
    if reason := JAVA.why_not():
        pytest.skip(reason)
    with tempfile.TemporaryFile() as errors:
        ends = [serving := await start(server.command("server", "default"), errors)]
        try:
            port = (await serving.hear())["port"]
            ends.append(asking := await start(client.command("client", "default", str(port)), errors))
            await asking.hear()
            both = Pair(serving, asking, (0, 0))
            for name, amount in (("request-1", 20), ("request-64", 2000), ("session-1m", 5)):
                assert PEERS[client.peer].why_not(NAMED[name]) is None
                assert (await both.measure(NAMED[name], amount)).amount == amount  # it fails at a wrong count
        finally:
            for end in reversed(ends):
                await end.end()
