"""Report the results of a run: a summary for the terminal, and the page docs/interop.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap

from afflux.core.dissect import line
from afflux.protocols.rsocket import frames as f
from interop import known
from interop.cases import CASES, Case, by_name
from interop.peers import PEERS, Peer
from interop.runner import ROLES, TRANSPORTS, Result, Results, recognised

__all__ = ["page", "shown_bytes", "summary"]

Entry = known.Known | known.KnownFinding

_FAULTS = {
    "ours": "Ours: to be fixed",
    "theirs": "Theirs",
    "hole": "Holes in the specification",
}
_HEAD = """\
# Interoperability

afflux is tested with other implementations of RSocket 1.0, each as client of an afflux server and as server of an
afflux client, over TCP and WebSocket. `make interop` runs every case and writes this page; `make test` runs a short
selection. A recording proxy between the two sides also checks every frame of either side against the rules
(`interop/audit.py`), so a case that passes by accident is detected. Rule numbers are RSocket's
([specification](specs/rsocket.md)).

| peer | from | version |
|---|---|---|
"""
_MARKS = """\
✓ passed · ✗ failed · – does not apply: the case is for the other transport, or the reason is given below. The first
mark is TCP, the second WebSocket.
"""
_RUN = """\
## Running the tests

```sh
make interop                                  # run everything and write this page
.venv/bin/python -m interop --peer rsocket-py --case 'lease.*' --transport tcp -v
make interop-smoke                            # run a few cases of each peer
```

The JavaScript peers need Node.js 18 or newer and npm, which installs the versions in `interop/package-lock.json`. The
Java peer needs a JDK and rsocket-java: Maven resolves `interop/java/pom.xml`, or `AFFLUX_RSOCKET_JAVA` contains a class
path with rsocket-core, rsocket-transport-netty and their dependencies. Without either it is listed as not run, and the
run still succeeds.

Every failure is declared in `interop/known.py`, with its class and reason. An undeclared failure makes the run fail,
and so does a declared one that passes.

A failure is *theirs* if the bytes or the silence of the peer violate a rule, named by its number; *ours* if afflux
violates it; a *hole* if the specification leaves it open. All cases use the default limits. In the cases "fragments"
the peer fragments at 16 KiB if it can. In the cases "whole" it sends up to 4 MB in one frame, which `frame_bytes`
allows by default. The cases "sizes" set an MTU on both sides, if the peer has that option, and echo payloads.
"""


def summary(results: Results, *, verbose: bool = False) -> str:
    """Return a short summary."""
    lines = []
    done = [result for result in results.results.values() if result.absent is None]
    for key, result in results.results.items():
        if result.failure is not None and (verbose or known.known(*key) is None):
            lines.append(f"✗ {'/'.join(key)}: {result.failure}")
            lines += [f"    {line}" for line in result.frames]
    lines += [f"! {text}" for text in results.unexpected() if " failed: " not in text]
    lines += [f"not run: {name}: {reason}" for name, reason in results.away.items()]
    passed = sum(result.failure is None for result in done)
    failed = len(done) - passed
    lines.append(
        f"{passed} passed, {failed} failed ({failed - len(_undeclared(results))} of them declared), "
        f"{len(results.results) - len(done)} do not apply"
    )
    return "\n".join(lines)


def _undeclared(results: Results) -> list[str]:
    return [text for text in results.unexpected() if " failed: " in text]


def page(results: Results) -> str:
    """Return the content of docs/interop.md."""
    versions = "".join(f"| {peer.title} | {peer.packages} | {peer.version()} |\n" for peer in _met(results))
    parts = [
        _HEAD + versions,
        "".join(f"Not run: {PEERS[name].title}. {_sentence(why)}\n" for name, why in results.away.items()),
        _totals(results),
        "## The matrix\n\n" + _MARKS,
        *(_matrix(results, group) for group in _groups()),
        *(_faults(results, fault) for fault in ("ours", "theirs", "hole")),
        _absences(results),
        _RUN,
    ]
    return "\n".join(part for part in parts if part)


def _met(results: Results) -> list[Peer]:
    """Return the peers that could run."""
    return [peer for peer in PEERS.values() if peer.name not in results.away]


def _sentence(why: str) -> str:
    return why[0].upper() + why[1:] + "."


def _groups() -> list[str]:
    return list(dict.fromkeys(case.group for case in CASES))


def _totals(results: Results) -> str:
    """Return the counts by peer and role."""
    lines = ["| peer | as | passed | theirs | hole | ours | – |", "|---|---|---|---|---|---|---|"]
    for peer in _met(results):
        for role in ROLES:
            mine = {key: result for key, result in results.results.items() if key[:2] == (peer.name, role)}
            counts = dict.fromkeys(("passed", "theirs", "hole", "ours", "–"), 0)
            for key, result in mine.items():
                counts[_outcome(key, result)] += 1
            lines.append(f"| {peer.title} | {role} | " + " | ".join(map(str, counts.values())) + " |")
    return "\n".join(lines) + "\n"


def _outcome(key: tuple[str, str, str, str], result: Result) -> str:
    if result.absent is not None:
        return "–"
    if result.failure is None:
        return "passed"
    entry = known.known(*key)
    return "ours" if entry is None else entry.fault


def _matrix(results: Results, group: str) -> str:
    """Return the table of one group."""
    columns = [(peer.name, role) for peer in _met(results) for role in ROLES]
    names = [f"{peer} {role}" for peer, role in columns]
    lines = [f"### {group}", "", "| case | checks | " + " | ".join(names) + " |"]
    lines.append("|---|---|" + ":-:|" * len(names))
    for case in CASES:
        if case.group == group:
            cells = [_cell(results, case, peer, role) for peer, role in columns]
            lines.append(f"| {case.name.partition('.')[2]} | {case.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(results: Results, case: Case, peer: str, role: str) -> str:
    marks = []
    for transport in TRANSPORTS:
        result = results.results.get((peer, role, transport, case.name))
        if result is None or result.absent is not None:
            marks.append("–")
        else:
            marks.append("✓" if result.failure is None else "✗")
    return " ".join(marks)


def _faults(results: Results, fault: str) -> str:
    """Return all failures of one class, by peer."""
    lines = [f"## {_FAULTS[fault]}", ""]
    for entry in _entries(fault):
        names = _named(results, entry)
        if not names:
            continue
        role = "" if entry.role == "*" else f", {entry.role}"
        peer = "any peer" if entry.peer == "*" else entry.peer
        over = f" over {entry.transport}" if isinstance(entry, known.Known) and entry.transport != "*" else ""
        text = f"- **{peer}{role}{over}**, {entry.rule}: {entry.why} ({', '.join(names)})"
        lines += wrap(text, 120, subsequent_indent="  ", break_on_hyphens=False)
        if entry.bytes:
            lines += ["", "  ```text", *(f"  {line}" for line in shown_bytes(entry.bytes)), "  ```", ""]
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def _entries(fault: str) -> Iterable[Entry]:
    entries: Sequence[Entry] = (*known.KNOWN, *known.FINDINGS)
    return sorted((entry for entry in entries if entry.fault == fault), key=lambda entry: entry.peer)


def _named(results: Results, entry: Entry) -> list[str]:
    """Return the cases in which a failure was seen."""
    found = set()
    for key, result in results.results.items():
        if isinstance(entry, known.Known):
            if result.failure is not None and known.known(*key) is entry:
                found.add(key[3])
        elif any(seen is entry for seen in recognised(key, result)):
            found.add(key[3])
    return [f"`{name}`" for name in by_name() if name in found]


def shown_bytes(words: str) -> list[str]:
    """Return frames in hexadecimal with their decoded form."""
    return [f"{word}  {line(f.record(bytes.fromhex(word), payload='text'))}" for word in words.split()]


def _absences(results: Results) -> str:
    """Return the table of cases that do not apply."""
    reasons: dict[tuple[str, str], list[str]] = {}
    order = list(by_name())
    for (peer, role, transport, case), result in sorted(
        results.results.items(), key=lambda pair: order.index(pair[0][3])
    ):
        if result.absent is not None and transport in by_name()[case].transports:
            names = reasons.setdefault((f"{peer} {role}", result.absent), [])
            if f"`{case}`" not in names:
                names.append(f"`{case}`")
    lines = ["## Cases that do not apply", "", "| peer | cases | reason |", "|---|---|---|"]
    lines += [f"| {peer} | {', '.join(names)} | {why} |" for (peer, why), names in sorted(reasons.items())]
    return "\n".join(lines) + "\n"
