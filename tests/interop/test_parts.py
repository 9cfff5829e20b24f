"""The parts of the runner: the proxy, the table of known failures, and the page. Rule numbers are RSocket's."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from interop.__main__ import main
from interop.audit import Finding
from interop.cases import CASES, by_name
from interop.peers import HERE, PEERS
from interop.program import fill, read, shown
from interop.proxy import Proxy, Seen, _Lengths, _Messages
from interop.report import page, shown_bytes, summary
from interop.runner import ROLES, TRANSPORTS, Result, Results

from afflux.protocols.rsocket import frames as f
from interop import known

ROOT = Path(__file__).resolve().parent.parent.parent


def all_passed() -> Results:
    results = Results()
    for peer in PEERS:
        for role in ROLES:
            for transport in TRANSPORTS:
                for case in CASES:
                    results.results[peer, role, transport, case.name] = Result()
    return results


def as_declared() -> Results:
    results = all_passed()
    for key, result in results.results.items():
        if (entry := known.absent(key[0], key[1], key[2], key[3])) is not None:
            result.absent = entry.why
        elif known.known(*key) is not None:
            result.failure = "as expected"
    return results


# -- values -------------------------------------------------------------------------------------------------


def test_values_are_written_short_and_read_back() -> None:
    assert shown(None) is None
    assert read(None) is None
    assert read(shown(b"")) == b""
    assert read(shown(bytes(range(256)))) == bytes(range(256))
    assert read("f:1000:3") == fill(1000, 3)
    assert shown(fill(257, 1)) == "s:257:" + str(shown(fill(257, 1)))[-16:]
    assert len(fill(1000, 1)) == 1000
    assert fill(600, 1)[256:260] == b"\0\0\0\1"
    assert fill(600, 1) != fill(600, 2)


# -- the proxy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
@pytest.mark.parametrize("masked", [False, True])
def test_websocket_messages_are_cut_out_whatever_the_pieces(size: int, masked: bool) -> None:
    body = fill(size, 5)
    mask = b"\x01\x02\x03\x04" if masked else b""
    sent = bytes(byte ^ mask[i % 4] for i, byte in enumerate(body)) if masked else body
    code, width = (size, 0) if size < 126 else (126, 2) if size <= 0xFFFF else (127, 8)
    length = bytes((code,)) + (size.to_bytes(width, "big") if width else b"")
    length = bytes((length[0] | (0x80 if masked else 0),)) + length[1:]
    ping = b"\x89" + (b"\x80" + mask if masked else b"\x00")
    data = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + ping + b"\x82" + length + mask + sent + ping
    for step in (1, 7, len(data)) if size < 1000 else (997, len(data)):
        cutter = _Messages(">" if masked else "<")
        found = [one for at in range(0, len(data), step) for one in cutter.cut(data[at : at + step])]
        assert found == [body]


def test_what_is_injected_is_cut_out_again() -> None:
    frame = f.Keepalive(respond=True, data=bytes(200)).encode()
    for cutter in (_Messages(">"), _Messages("<"), _Lengths()):
        head = b"" if isinstance(cutter, _Lengths) else b"\r\n\r\n"
        assert cutter.cut(head + cutter.wrapped(frame)) == [frame]


async def test_the_proxy_records_injects_freezes_and_cuts() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    frame = f.Cancel(stream=1).encode(prefixed=True)
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Proxy(f"tcp://127.0.0.1:{port}") as proxy:
            host, _, own = proxy.uri.removeprefix("tcp://").rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(own))
            writer.write(frame)
            assert await reader.readexactly(len(frame)) == frame
            await proxy.wait(lambda: len(proxy.link.seen) == 2)
            assert proxy.link.seen == [Seen(">", frame[3:]), Seen("<", frame[3:])]
            assert (proxy.link.seen[0].stream, proxy.link.seen[0].type, proxy.link.seen[0].flags) == (1, 9, 0)
            proxy.link.inject("<", frame[3:])
            assert await reader.readexactly(len(frame)) == frame
            proxy.link.frozen = True
            writer.write(frame)
            await proxy.wait(lambda: len(proxy.link.seen) == 4)
            proxy.link.cut()
            with pytest.raises(ConnectionError):
                await reader.readexactly(1)
            writer.close()


# -- what is known ------------------------------------------------------------------------------------------


def test_every_entry_of_the_table_fits_something() -> None:
    keys = list(all_passed().results)
    found, missing = {id(known.known(*key)) for key in keys}, {id(known.absent(*key)) for key in keys}
    for entry in known.KNOWN:
        assert entry.fault in ("theirs", "ours", "hole")
        assert id(entry) in found, entry
    for absent in known.ABSENT:
        assert id(absent) in missing, absent


def test_the_bytes_of_the_table_are_frames() -> None:
    lines = [line for entry in (*known.KNOWN, *known.FINDINGS) for line in shown_bytes(entry.bytes)]
    assert len(lines) > 20
    assert [line for line in lines if "malformed" in line] == []


def test_a_run_is_good_when_everything_is_as_declared() -> None:
    assert as_declared().unexpected() == []


def test_an_undeclared_failure_is_reported() -> None:
    results = as_declared()
    results.results["rsocket-py", "server", "tcp", "fire.data"] = Result(failure="it burned", frames=["> frame"])
    assert results.unexpected() == ["rsocket-py/server/tcp/fire.data failed: it burned"]
    assert "✗ rsocket-py/server/tcp/fire.data: it burned\n    > frame\n" in summary(results)


def test_a_declared_failure_that_passes_is_reported() -> None:
    results = as_declared()
    results.results["rsocket-py", "client", "tcp", "error.code-301"] = Result()
    (told,) = results.unexpected()
    assert told.startswith("rsocket-py/client/tcp/error.code-301 is declared as a failure")
    assert told in summary(results)


def test_one_that_fails_only_sometimes_may_pass() -> None:
    results = as_declared()
    entry = known.known("rsocket-py", "server", "tcp", "fragments.channel")
    assert entry is not None
    assert entry.sometimes
    results.results["rsocket-py", "server", "tcp", "fragments.channel"] = Result()
    assert results.unexpected() == []


def test_findings_of_a_recording_are_reported_unless_they_are_known() -> None:
    results = as_declared()
    key = "rsocket-js-0", "client", "tcp", "push.metadata"
    text = "METADATA_PUSH without the flag M"
    results.results[key].findings = [Finding(">", "2.3", text, b"frame")]
    assert results.unexpected() == []
    assert [told for told in results.stale() if "2.3 of rsocket-js-0" in told] == []
    assert len(results.stale()) == sum(not entry.sometimes for entry in known.FINDINGS) - 1
    results.results[key].findings = [Finding("<", "2.3", text, b"frame"), Finding(">", "R-27", "too much", b"frame")]
    ours, theirs = results.unexpected()
    assert "afflux breaks 2.3" in ours
    assert "rsocket-js-0 breaks R-27: too much" in theirs


# -- the page and the command -------------------------------------------------------------------------------


def test_the_page_shows_every_case_and_every_fault() -> None:
    text = page(as_declared())
    for case in CASES:
        assert f"\n| {case.name.partition('.')[2]} | {case.title} | " in text
    for entry in known.KNOWN:
        assert " ".join(entry.why.split())[:60] in " ".join(text.split())
    assert "| echo | data and metadata are echoed unchanged | ✓ ✓ | ✓ ✓ | ✓ ✓ | ✗ ✗ | ✓ ✓ | ✓ ✓ | ✓ ✓ | ✓ ✓ |" in text
    assert text.endswith("\n")


def test_the_page_that_is_there_shows_today_s_cases() -> None:
    text = (ROOT / "docs" / "interop.md").read_text(encoding="utf-8")
    missing = [case.name for case in CASES if f"\n| {case.name.partition('.')[2]} | {case.title} | " not in text]
    assert missing == [], "run make interop"


def test_cases_have_names_of_their_own() -> None:
    assert len(by_name()) == len(CASES)
    assert all(re.fullmatch(r"[a-z]+\.[a-z0-9-]+", case.name) for case in CASES)


def test_an_unknown_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--case", "juggling"]) == 2
    assert "stream.items" in capsys.readouterr().err


def test_the_command_writes_a_page_when_it_gets_a_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.md"
    words = ["--peer", "rsocket-py", "--role", "server", "--transport", "tcp", "--case", "fire.data", "--out", str(out)]
    assert main(words) == 0
    assert "1 passed, 0 failed" in capsys.readouterr().out
    assert "# Interoperability" in out.read_text()


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((HERE / "package-lock.json").read_text())
    assert lock["packages"]
    for name, package in lock["packages"].items():
        assert "://" not in package.get("resolved", ""), name
    for folder in ("js0", "js1"):
        wanted = json.loads((HERE / folder / "package.json").read_text())["dependencies"]
        assert all(re.fullmatch(r"[0-9][0-9a-z.-]*", version) for version in wanted.values()), "exact versions"


def test_a_case_can_be_varied() -> None:
    case = by_name()["stream.items"]
    assert replace(case, limit=1).limit == 1
