"""``afflux inspect`` as a user runs it: text on a terminal, rows elsewhere, exit codes, wrong input."""

from __future__ import annotations

import bz2
import json
import lzma
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from afflux.capture import write_tables
from afflux.capture.output import MARK
from afflux.capture.schemas import TABLES
from afflux.capture.units import Decoding
from afflux.cli import inspecting
from afflux.protocols.rsocket import frames as wire
from afflux.protocols.rsocket.metadata import compose
from tests.capture.tabling import SETUP, asks, complete, grant, item, packets
from tests.capture.tlspeers import Certificates, TlsTalk
from tests.capture.writing import ACK, FIN, RST, Packet, Talk, pcap, pcapng
from tests.cli.running import afflux, here
from tests.cli.terminal import Terminal

SAID = [
    (0, True, SETUP + asks(1, 1, metadata=compose(route="prices.\x1b[31meur"))),
    (0, False, item(1)),
    (1.5, True, grant(1, 1)),
    (0.5, False, item(1) + item(1) + complete(1)),
]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    other = Talk(client=("10.0.0.1", 50_000)).whole(b"POST / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n")
    path = tmp_path / "stalled.pcap"
    path.write_bytes(pcap([*packets(SAID), *other]))
    return path


def on_a_terminal(*words: str) -> str:
    """What the command prints on a terminal."""
    main, side = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "afflux", *words], stdout=side, stderr=subprocess.PIPE) as process:
        os.close(side)
        shown = b""
        try:
            while data := os.read(main, 65_536):
                shown += data
        except OSError:  # the other side has closed it
            pass
        os.close(main)
        assert process.stderr is not None
        assert process.stderr.read() == b"" and process.wait() == 0
    return shown.decode().replace("\r\n", "\n")


def test_error_codes_have_names(tmp_path: Path) -> None:
    codes = (0x202, "0x202 REJECTED"), (0x301, "0x301"), (0xFFFFFFFE, "0xFFFFFFFE")
    said: list[tuple[float, bool, bytes]] = [(0, True, SETUP)]
    for stream, (code, _) in enumerate(codes):
        failed = wire.ErrorFrame(stream=2 * stream + 1, code=code, data=b"no").encode()
        said += [(0, True, asks(2 * stream + 1, 1)), (0, False, len(failed).to_bytes(3, "big") + failed)]
    path, html = tmp_path / "failed.pcap", tmp_path / "failed.html"
    path.write_bytes(pcap(packets(said)))
    code, frames = Terminal(("decode", str(path))).end()
    streams = on_a_terminal("inspect", str(path))
    assert here("inspect", str(path), "--html", str(html)).code == 0
    for _, words in codes:
        assert f" code={words} data_len=2" in " ".join(frames.split())
        assert f"  {words}\n" in streams
        assert f">error {words}<" in html.read_text()
    assert code == 0 and max(map(len, (frames + streams).splitlines())) <= 80


def test_the_text_and_the_report_tell_who_ended_a_connection(tmp_path: Path) -> None:
    """A server that was killed: the system closes its socket. One client answers, another one waits."""
    file: list[Packet] = []
    for port, closes in ((1, [(False, FIN), (True, FIN)]), (2, [(False, FIN)]), (3, [(True, RST)])):
        talk = Talk(("10.0.0.1", 40_000 + port))
        file += [*talk.open(), *talk.send(True, SETUP + asks(1, 4)), *talk.send(False, item(1))]
        file += [talk.packet(client, len(talk.sent[client]), flags=flag | ACK) for client, flag in closes]
    path, html = tmp_path / "killed.pcap", tmp_path / "killed.html"
    path.write_bytes(pcap(file))
    text = on_a_terminal("inspect", str(path))
    for words in ("fin by the server;", "open, half closed by the server;", "rst by the client;"):
        assert words in " ".join(text.split())
    assert here("inspect", str(path), "--html", str(html)).code == 0
    for words in ("FIN by the server", "still open, half closed by the server", "RST by the client"):
        assert f">{words}<" in html.read_text()
    rows = here("inspect", str(path), "-o", "csv", "--table", "connections").out
    assert "closed_by" in rows.splitlines()[0]


@pytest.mark.parametrize("output", ["", "json", "csv", "html"])
def test_what_is_not_there_is_told(capture: Path, tmp_path: Path, output: str) -> None:
    out = tmp_path / "report.html"
    form = {"": [], "html": ["--html", str(out)]}.get(output, ["-o", output])
    (conn,) = [row["conn"] for row in shown(capture) if row["table"] == "streams"]
    for words, text in (
        (["--conn", "Ctypo"], "no connection Ctypo of 2"),
        (["--stream", "9"], "no stream 9 of 1"),
        (["--stream", "9", "--conn", conn], f"no stream 9 in {conn} of 1"),
        (["--where", "type == LEASE"], "no frame that --where selects of 7"),
    ):
        ran = here("inspect", str(capture), *words, *form)
        assert (ran.code, ran.errors) == (1, f"afflux: {text}\n")
        rows = ran.out.splitlines() if output == "" else json.loads(ran.out or "[]") if output == "json" else ran.out
        connections = 3 - len(words) // 2 if output in ("", "json") and words[0] == "--stream" else 0
        assert len(rows) == connections
    assert not out.exists()
    assert here("inspect", str(capture), "--conn", conn, "--stream", "1").code == 0


def shown(capture: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in here("inspect", str(capture)).out.splitlines()]


def test_the_first_rows_of_each_table(capture: Path) -> None:
    every = shown(capture)
    most = {row["table"]: [one for one in every if one["table"] == row["table"]] for row in every}
    assert max(map(len, most.values())) == 2
    for limit in (1, 2):
        ran = here("inspect", "--limit", str(limit), str(capture))
        assert [json.loads(line) for line in ran.out.splitlines()] == [
            row for row in every if row in most[row["table"]][:limit]
        ]
    rows = here("inspect", "--limit", "1", "-o", "csv", "--table", "connections", str(capture)).out.splitlines()
    assert len(rows) == 2
    assert "--limit applies to rows" in afflux_on_a_terminal("inspect", "--limit", "1", str(capture))


def afflux_on_a_terminal(*words: str) -> str:
    """What the command prints if it fails on a terminal."""
    main, side = pty.openpty()
    ran = subprocess.run([sys.executable, "-m", "afflux", *words], stdout=side, stderr=subprocess.PIPE, check=False)
    os.close(side)
    os.close(main)
    assert ran.returncode == 2
    return ran.stderr.decode()


@pytest.mark.parametrize("command", ["inspect", "decode"])
def test_what_is_no_capture_is_told_with_its_name(capture: Path, tmp_path: Path, command: str) -> None:
    whole = capture.read_bytes()
    for data, text in (
        (b"", "the file is empty"),
        (lzma.compress(whole)[:12], "the compressed data cannot be read: it ends early"),
        (bz2.compress(b"text"), "not a pcap or pcapng file: its first bytes are 74 65 78 74"),
        (pcapng(packets(SAID))[:10], "a pcapng file begins with 28 bytes, and this one has 10"),
        (pcapng(packets(SAID))[:8] + bytes(20), "the byte-order magic of the first section is 00000000"),
    ):
        path = tmp_path / "other"
        path.write_bytes(data)
        ran = here(command, str(path))
        assert (ran.code, ran.out, ran.errors) == (1, "", f"afflux: {path}: {text}\n")


def test_a_long_text_is_wrapped(tmp_path: Path) -> None:
    """And a connection that is not decoded has no stream."""
    route = "".join(f"part{number}." for number in range(30))
    said = [(0, True, SETUP + asks(1, 1, metadata=compose(route=route))), (1, False, item(1) + complete(1))]
    late = Talk(client=("10.0.0.1", 50_000))
    path = tmp_path / "long.pcap"
    path.write_bytes(pcap([*packets(said), *late.send(True, asks(1)), *late.send(False, item(1)), *late.close()]))
    text = on_a_terminal("inspect", str(path))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80 and "…" not in text
    assert "".join(text.split()).count(route) == 2  # of a stall and of a stream
    assert "    Spp" in lines
    assert "  not decoded: 1 mid-stream" in text
    assert "stream None" not in text and "stream -1" not in text


def test_connections_that_were_reset_before_they_had_data(tmp_path: Path) -> None:
    found = []
    for port, last in ((50_001, RST | ACK), (50_002, RST | ACK), (50_003, FIN | ACK)):
        talk = Talk(client=("10.0.0.1", port))
        found += [*talk.open(), talk.packet(False, 0, flags=last), talk.packet(True, 0, flags=last)]
    path = tmp_path / "empty.pcap"
    path.write_bytes(pcap(found))
    assert "  not decoded: 2 no data, reset, 1 no data\n" in on_a_terminal("inspect", str(path))


def test_the_text_names_who_stopped_the_stream(capture: Path) -> None:
    text = on_a_terminal("inspect", str(capture))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in text and "prices.\\x1b[31meur" in text
    (worst,) = [line for line in lines if line.startswith("  1.50 s  peer")]
    after = lines[lines.index(worst) + 1]
    assert "after PAYLOAD <" in after and after.endswith("until REQUEST_N")
    for shown in (
        "stalled   1.50 s  peer      1 stall: the receiver granted no credit",
        "not decoded: 1 not ours",
        "item 3 with credit for 2",
        "right: wait for REQUEST_N before the next item",
        "SpNppp",
    ):
        assert shown in text


def test_elsewhere_each_row_is_a_json_object(capture: Path) -> None:
    rows = [json.loads(line) for line in afflux(["inspect", str(capture)]).stdout.splitlines()]
    assert {row["table"] for row in rows} == {"connections", "streams", "stalls", "violations"}
    for row in rows:
        assert [*row] == ["table", *(column.name for column in TABLES[row["table"]])]
    whole = json.loads(afflux(["inspect", "-o", "json", str(capture)]).stdout)
    assert whole == rows
    (stream,) = [row for row in rows if row["table"] == "streams"]
    assert (stream["history"], stream["items_in"], stream["granted_in"]) == ("SpNppp", 3, 2)


@pytest.mark.parametrize("words", [("-o", "json"), ("-o", "csv"), ("-o", "ndjson", "--conn", "CONN")])
def test_rows_are_printed_without_pandas(words: tuple[str, ...], capture: Path) -> None:
    """Its import takes longer than a small capture."""
    conn = json.loads(afflux(f"inspect {capture} -o ndjson --table streams").stdout.splitlines()[0])["conn"]
    options = [conn if word == "CONN" else word for word in words]
    command = [sys.executable, "-X", "importtime", "-m", "afflux", "inspect", str(capture), *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert ran.stdout and "pyarrow" in imported and "pandas" not in imported


@pytest.mark.parametrize("table", TABLES)
def test_any_table_as_csv(table: str, capture: Path) -> None:
    ran = afflux(["inspect", "--table", table, "-o", "csv", str(capture)])
    assert ran.returncode == 0
    assert ran.stdout.splitlines()[0] == ",".join(column.name for column in TABLES[table])


def test_options_choose_rows(capture: Path) -> None:
    def rows(*options: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in afflux(["inspect", str(capture), *options]).stdout.splitlines()]

    assert next(row for row in rows("--stall", "1s") if row["table"] == "stalls")["cause"] == "peer"
    assert not [row for row in rows("--stall", "2s") if row["table"] == "stalls"]
    assert {row["table"] for row in rows("--stream", "3")} == {"connections"}
    conn = rows()[0]["conn"]
    assert {row["conn"] for row in rows("--conn", str(conn))} == {conn}
    assert not rows("--conn", "Cnone")


def two_streams(tmp_path: Path) -> Path:
    """Stream 1 with the route slow waits for credit, stream 3 with the route fast is cancelled."""
    path = tmp_path / "two.pcap"
    composite = {"metadata_mime": "message/x.rsocket.composite-metadata.v0"}
    setup = wire.Setup(**composite).encode(prefixed=True)
    slow = asks(1, 1, metadata=compose(route="slow"))
    fast = asks(3, 4, metadata=compose(route="fast"))
    said = [(0, True, setup + slow + fast), (0, False, item(1) + item(3)), (1, True, grant(1, 2))]
    said += [(0, True, wire.Cancel(stream=3).encode(prefixed=True)), (0, False, item(1) + complete(1))]
    path.write_bytes(pcap(packets(said)))
    return path


@pytest.mark.parametrize(
    ("where", "streams"),
    [
        ("type == REQUEST_N", {1}),
        ("type == CANCEL or n == 2", {1, 3}),
        ('route == "fast"', {3}),
        ("type == KEEPALIVE", set()),
    ],
)
@pytest.mark.parametrize("kind", ["capture", "tables"])
def test_a_filter_selects_streams(kind: str, where: str, streams: set[int], tmp_path: Path) -> None:
    path = two_streams(tmp_path)
    if kind == "tables":
        write_tables([str(path)], str(tmp_path / "tables"))
        path = tmp_path / "tables"
    ran = here("inspect", str(path), "--where", where)
    rows = [json.loads(line) for line in ran.out.splitlines()]
    for table in ("streams", "stalls"):
        assert {row["stream"] for row in rows if row["table"] == table} == streams
    assert len([row for row in rows if row["table"] == "connections"]) == bool(streams)


def test_a_directory_of_tables_has_the_rows_of_its_capture(capture: Path, tmp_path: Path) -> None:
    write_tables([str(capture)], str(tmp_path / "tables"), partition_by=["protocol"])
    given = [here("inspect", str(path)).out.splitlines() for path in (capture, tmp_path / "tables")]
    assert sorted(given[0]) == sorted(given[1])
    text = [on_a_terminal("inspect", str(path)).splitlines() for path in (capture, tmp_path / "tables")]
    assert text[0][1:] == text[1][1:]
    assert here("inspect", str(tmp_path / "tables"), "--strict").code == 5


@pytest.fixture
def partial(capture: Path, tmp_path: Path) -> Path:
    """A directory that has only the tables streams and frames."""
    write_tables([str(capture)], str(tmp_path / "partial"), Decoding(tables=("frames", "streams")))
    return tmp_path / "partial"


def test_a_table_without_files_is_absent(partial: Path) -> None:
    for name in ("stalls", "violations"):
        (partial / name).mkdir()
    (partial / "stalls" / "_SUCCESS").touch()
    ran = here("inspect", str(partial))
    assert (ran.code, ran.errors) == (0, "afflux: not in these tables: connections, stalls, violations\n")
    assert "needs the table violations" in here("inspect", "--strict", str(partial)).errors


def test_absent_tables_are_named_and_not_counted(partial: Path, tmp_path: Path) -> None:
    text = on_a_terminal("inspect", str(partial))
    assert "  1 stream, 7 frames\n  not in these tables: connections, stalls, violations\n" in text
    assert "no stalls" not in text and "no broken rules" not in text and "0 connections" not in text
    ran = here("inspect", str(partial))
    assert (ran.code, ran.errors) == (0, "afflux: not in these tables: connections, stalls, violations\n")
    out = tmp_path / "out.html"
    assert here("inspect", str(partial), "--html", str(out)).code == 0
    page = out.read_text(encoding="utf-8")
    assert "Not in these tables: connections, credit, latencies, stalls, violations." in page
    assert "<dt>Streams</dt><dd>1</dd>" in page and "<dt>Frames</dt><dd>7</dd>" in page
    for said in ("<dt>Stalls", "<dt>Violations", "<dt>Connections", "No stream stalled", "No credit was granted"):
        assert said not in page


@pytest.mark.parametrize(
    ("words", "option", "table"),
    [
        (["--strict"], "--strict", "violations"),
        (["--table", "stalls", "-o", "csv"], "--table stalls", "stalls"),
        (["--table", "stalls"], "--table stalls", "stalls"),
        (["--conn", "C1"], "--conn", "connections"),
    ],
)
def test_what_needs_an_absent_table_is_refused(words: list[str], option: str, table: str, partial: Path) -> None:
    ran = here("inspect", str(partial), *words)
    told = f"afflux: {option} needs the table {table}, and the directory has only frames, streams: decode the captures "
    assert (ran.code, ran.out) == (2, "")
    assert ran.errors == f"{told}again, with {table} among --tables or without --tables\n"


@pytest.mark.parametrize(("mark", "version"), [('{"version": 2}', "2"), ("{", "unknown"), ("[]", "unknown")])
@pytest.mark.parametrize("html", [False, True])
def test_tables_of_another_version_are_refused(
    mark: str, version: str, html: bool, partial: Path, tmp_path: Path
) -> None:
    (partial / MARK).write_text(mark)
    out = tmp_path / "out.html"
    ran = here("inspect", str(partial), *(["--html", str(out)] if html else []))
    told = f"afflux: {partial} has tables of version {version}, and this afflux reads and writes version 1"
    assert (ran.code, ran.out, ran.errors) == (1, "", f"{told}: decode the captures again\n")
    assert not out.exists()


def test_a_filter_needs_frames(capture: Path, tmp_path: Path) -> None:
    write_tables([str(capture)], str(tmp_path / "few"), Decoding(tables=("streams", "violations")))
    ran = here("inspect", str(tmp_path / "few"), "--where", "type == ERROR")
    assert ran.code == 2 and "--where needs the table frames, and the directory has only streams, vio" in ran.errors
    assert here("inspect", str(tmp_path / "few"), "--strict").code == 5


def test_the_key_log_and_the_copy_that_counts(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="decrypting needs the extra tls")
    talk = TlsTalk(Certificates(tmp_path), tmp_path / "keys.log", protocols=("rsocket",))
    for _, client, data in SAID:
        talk.send(client, data)
    path = tmp_path / "tls.pcap"
    path.write_bytes(pcap(talk.close()))

    def protocols(*words: str) -> list[str | None]:
        ran = here("inspect", "--table", "connections", str(path), *words)
        return [json.loads(line)["protocol"] for line in ran.out.splitlines()]

    assert protocols() == [None]
    hint = "  --keylog FILE decrypts TLS, with the file that SSLKEYLOGFILE names\n"
    assert hint in on_a_terminal("inspect", str(path))
    assert hint not in on_a_terminal("inspect", str(path), "--keylog", str(tmp_path / "keys.log"))
    assert protocols("--keylog", str(tmp_path / "keys.log")) == ["rsocket"]


@pytest.mark.parametrize(("words", "size"), [((), 4), (("--overlap", "last"), 9)])
def test_the_copy_that_counts(words: tuple[str, ...], size: int, tmp_path: Path) -> None:
    """PC-07. Two copies of bytes that wait for the ones before differ in their frames."""
    talk = Talk()
    found = [*talk.open(), *talk.send(True, SETUP + asks(1))]
    short, long = item(1, b"four") + item(1, b""), item(1, b"nine bytes"[:9])
    at = 0
    found += [talk.packet(False, at + 1, short[1 : len(long)]), talk.packet(False, at + 1, long[1:])]
    found.append(talk.packet(False, at, long[:1]))
    path = tmp_path / "copies.pcap"
    path.write_bytes(pcap(found))
    ran = here("inspect", "--table", "streams", str(path), *words)
    (row,) = [json.loads(line) for line in ran.out.splitlines()]
    assert row["bytes_in"] == size


def test_strict_exits_with_5(capture: Path, tmp_path: Path) -> None:
    ran = afflux(["inspect", "--strict", str(capture)])
    assert (ran.returncode, ran.stderr.strip()) == (5, "afflux: broken rules: 1")
    right = tmp_path / "right.pcap"
    right.write_bytes(pcap(packets(SAID[:3])))
    assert afflux(["inspect", "--strict", str(right)]).returncode == 0


def test_losses_come_first_and_strict_counts_them(tmp_path: Path) -> None:
    sent = packets(SAID)
    carrying = [number for number, one in enumerate(sent) if len(one.data) > 54]
    del sent[carrying[-1]]
    path = tmp_path / "lossy.pcap"
    path.write_bytes(pcap(sent))
    lines = on_a_terminal("inspect", str(path)).splitlines()
    assert lines[2].split()[:3] == ["lost", str(2 * len(item(1)) + len(complete(1))), "B"]
    assert "  no broken rules" in lines
    assert lines.index("Problems of the capture, the first ones") < lines.index("Stalls, the longest first")
    ran = afflux(["inspect", "--strict", str(path)])
    assert (ran.returncode, ran.stderr.strip()) == (5, "afflux: broken rules: 0; frames that are not whole: 1")


def test_one_direction_is_named(tmp_path: Path) -> None:
    path = tmp_path / "one.pcap"
    path.write_bytes(pcap([one for one in packets(SAID) if one.data[34:36] == (40_000).to_bytes(2, "big")]))
    text = on_a_terminal("inspect", str(path))
    assert "one direction only: 1 connection, so no stalls are told of it" in text and "no broken rules" in text


def test_a_silent_server_is_no_missing_direction(tmp_path: Path) -> None:
    """It acknowledges and sends nothing: the capture lacks nothing, and text and report tell the stall."""
    path, page = tmp_path / "silent.pcap", tmp_path / "silent.html"
    talk = Talk()
    sent = [*talk.open(), *talk.send(True, SETUP + asks(1, 1))]
    talk.time += 2_000_000_000
    path.write_bytes(pcap([*sent, *talk.close()]))
    text = on_a_terminal("inspect", str(path))
    assert "one direction" not in text and "producer  1 stall" in text
    assert afflux(["inspect", "--html", str(page), str(path)]).returncode == 0
    assert "one direction" not in page.read_text()


def test_a_damaged_file_exits_with_1_after_its_rows(capture: Path) -> None:
    capture.write_bytes(capture.read_bytes()[:-5])
    ran = afflux(["inspect", str(capture)])
    assert ran.returncode == 1 and "truncated at byte" in ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row["kind"] for row in rows if row["table"] == "violations"] == ["state", "damaged"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nothing.pcap"], "file 'nothing.pcap' not found"),
        (["--stall", "0"], "--stall expects a time above 0"),
        (["--stall", "soon"], "invalid --stall 'soon'"),
        (["--table", "frames2", "-o", "csv"], "there is no table 'frames2'"),
        (["-d", "x"], "-d expects PORT=NAME"),
        (["-o", "hex"], "invalid -o/--output: hex is not one of table"),
        (["--where", "typ == PAYLOAD"], "--where:1:1: unknown name"),
        (["--keylog", "/no/such/file"], "No such file"),
        (["--html", "out.html", "--table", "stalls"], "--html writes a report to a file: leave out"),
        (["--html", "out.html", "--top", "3"], "--html writes a report to a file: leave out"),
    ],
)
def test_wrong_options_are_usage_errors(words: list[str], text: str, capture: Path) -> None:
    given = words if words[0].endswith(".pcap") else [*words, str(capture)]
    ran = afflux(["inspect", *given])
    assert ran.returncode == 2 and text in ran.stderr and "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "words",
    [("-d", "1=jmux"), ("--protocol", "jmux"), ("--stall", "1s"), ("--overlap", "last")],
)
def test_a_directory_of_tables_refuses_what_concerns_captures(words: tuple[str, ...], tmp_path: Path) -> None:
    ran = here("inspect", str(tmp_path), *words)
    assert ran.code == 2 and "apply to captures" in ran.errors


def test_a_filter_reads_stdin_twice_which_is_refused() -> None:
    ran = here("inspect", "-", "--where", "error")
    assert ran.code == 2 and "stdin can be read once" in ran.errors


def test_a_filter_that_selects_too_many_streams_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspecting, "MOST_SELECTED", 1)
    ran = here("inspect", str(two_streams(tmp_path)), "--where", "type != SETUP")
    assert ran.code == 2 and "narrow it" in ran.errors


def test_what_is_no_capture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no capture")
    ran = afflux(["inspect", str(tmp_path / "text")])
    assert ran.returncode == 1 and "not a pcap or pcapng file" in ran.stderr


def test_several_files_are_one_capture_in_the_order_of_time(tmp_path: Path) -> None:
    whole = packets(SAID)
    (tmp_path / "b.pcap").write_bytes(pcap(whole[:8]))
    (tmp_path / "a.pcap").write_bytes(pcap(whole[8:]))
    ran = afflux(["inspect", "--table", "streams", str(tmp_path / "a.pcap"), str(tmp_path / "b.pcap")])
    (stream,) = [json.loads(line) for line in ran.stdout.splitlines()]
    assert (stream["history"], stream["ended"]) == ("SpNppp", "complete")
