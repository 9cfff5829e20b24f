"""Run the cases: each peer in each role over each transport, one conversation at a time per slot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from afflux.core.dissect import line
from afflux.protocols.rsocket import frames as f
from interop import known
from interop.audit import Finding, audit
from interop.cases import Case
from interop.control import Process, started
from interop.conversation import Conversation, Failed, Skip, peer_is_client, peer_is_server
from interop.peers import PEERS, Peer
from interop.proxy import Seen

__all__ = ["Key", "Plan", "Result", "Results", "recognised", "run"]

Key = tuple[str, str, str, str]
"Peer, role, transport, case."

ROLES = ("client", "server")
TRANSPORTS = ("tcp", "ws")
_AT_ONCE = 3
"Concurrent conversations; failing ones mostly wait."
_SHOWN = 12
"Frames shown of a failed conversation."


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run."""

    peers: Sequence[Peer]
    cases: Sequence[Case]
    roles: Sequence[str] = ROLES
    transports: Sequence[str] = TRANSPORTS


@dataclass(slots=True)
class Result:
    """The result of one case."""

    failure: str | None = None
    "The failure; None if the case passed."
    absent: str | None = None
    "Why the case does not apply."
    findings: list[Finding] = field(default_factory=list)
    "Findings in the recording, of either side."
    frames: list[str] = field(default_factory=list)
    "The end of the recording of a failure."


@dataclass(slots=True)
class Results:
    """All results."""

    results: dict[Key, Result] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)
    "Peers that could not run, and why."

    def unexpected(self) -> list[str]:
        """Undeclared failures, declared ones that pass, and undeclared findings."""
        found = []
        for key, result in self.results.items():
            if result.absent is not None:
                continue
            entry = known.known(*key)
            if result.failure is not None and entry is None:
                found.append(f"{'/'.join(key)} failed: {result.failure}")
            elif result.failure is None and entry is not None and not entry.sometimes:
                found.append(f"{'/'.join(key)} is declared as a failure ({entry.rule}) and passes")
            if entry is None:  # what went wrong in a failure is told there
                found += [f"{'/'.join(key)}: {text}" for text in _surprises(key, result)]
        return found

    def stale(self) -> list[str]:
        """Declared findings that no recording shows any more; for a complete run."""
        seen = {id(entry) for key, result in self.results.items() for entry in recognised(key, result)}
        return [
            f"the finding {entry.rule} of {entry.peer} is declared and does not show"
            for entry in known.FINDINGS
            if id(entry) not in seen and not entry.sometimes
        ]


def recognised(key: Key, result: Result) -> Iterable[known.KnownFinding]:
    """The entries of the table that a recording shows."""
    for finding in result.findings:
        by_peer = (finding.direction == ">") == (key[1] == "client")
        entry = known.finding(key[0] if by_peer else "afflux", key[1], finding.rule, finding.text)
        if entry is not None:
            yield entry


def _surprises(key: Key, result: Result) -> list[str]:
    """Findings that are not in the table: all of afflux, and new ones of peers."""
    peer, role, _, _ = key
    found = []
    for finding in result.findings:
        by_peer = (finding.direction == ">") == (role == "client")
        who = peer if by_peer else "afflux"
        if known.finding(who, role, finding.rule, finding.text) is None:
            found.append(f"{who} breaks {finding.rule}: {finding.text} [{finding.frame[:40].hex()}]")
    return found


async def run(plan: Plan, told: Callable[[str], None]) -> Results:
    """Run the plan; ``told`` hears of each step."""
    results = Results()
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def some(peer: Peer, role: str, transport: str) -> None:
        async with at_once:
            await _run_cases(peer, role, transport, plan.cases, results, told)

    async with asyncio.TaskGroup() as group:
        for peer in plan.peers:
            if reason := peer.why_not():
                results.away[peer.name] = reason
                continue
            for role in plan.roles:
                for transport in plan.transports:
                    group.create_task(some(peer, role, transport))
    return results


async def _run_cases(
    peer: Peer, role: str, transport: str, cases: Iterable[Case], results: Results, told: Callable[[str], None]
) -> None:
    async with AsyncExitStack() as stack:
        process: Process | None = None
        for case in cases:
            key = (peer.name, role, transport, case.name)
            told(" ".join(key))
            if reason := _absent(case, key):
                results.results[key] = Result(absent=reason)
                continue
            if process is None:
                process = await stack.enter_async_context(started(peer.command))
                process.tells_leases = peer.tells_leases
            process.forget()
            result = results.results[key] = await one(process, peer, role, transport, case)
            if result.failure is not None:  # a fresh process: one failure must not make the next
                await stack.aclose()
                process = None


def _absent(case: Case, key: Key) -> str | None:
    """Why the case does not apply."""
    if key[2] not in case.transports:
        return f"a case for {' and '.join(case.transports)} only"
    entry = known.absent(*key)
    return None if entry is None else entry.why


async def one(process: Process, peer: Peer, role: str, transport: str, case: Case) -> Result:
    """One conversation."""
    meet = peer_is_client if role == "client" else peer_is_server
    result = Result()
    seen: list[Seen] = []
    try:
        async with asyncio.timeout(case.limit), meet(process, peer.name, transport, case.setting) as conversation:
            await _hold(case, conversation, seen)
    except TimeoutError:
        result.failure = f"nothing happened for {case.limit:g} s"
    except Skip as skip:
        result.absent = str(skip)
    except Exception as error:  # whatever a peer brings about is its result
        result.failure = (
            str(error) if isinstance(error, AssertionError | Failed) else f"{type(error).__name__}: {error}"
        )
    if result.failure is not None:
        result.frames = [_line(one) for one in seen[-_SHOWN:]]
    if case.audited:
        result.findings = audit(seen)
    return result


def _line(seen: Seen) -> str:
    return line(f.record(seen.frame, payload="text" if len(seen.frame) < 100 else "none", dir=seen.direction))


async def _hold(case: Case, conversation: Conversation, seen: list[Seen]) -> None:
    try:
        await case.body(conversation)
    finally:
        if conversation.proxy.links:
            seen += conversation.proxy.links[0].seen


def peers_of(names: Sequence[str] | None) -> list[Peer]:
    """The peers of those names; all without names."""
    return [PEERS[name] for name in names or PEERS]
