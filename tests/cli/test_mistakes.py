"""Mistakes on the command line: each is told in one line that says what was wrong and what would be right."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from afflux.cli import COMMANDS
from tests.capture.writing import pcap
from tests.cli.running import here
from tests.cli.terminal import Terminal

SOURCE = """
class Handler:
    async def request(self, payload):
        return b"x"

class Needs:
    def __init__(self, database):
        pass
    request = Handler.request

class Fails:
    def __init__(self):
        raise RuntimeError("no database")
    request = Handler.request

class Nothing:
    async def requests(self, payload):
        pass

def function(payload):
    pass

from afflux import Router
router = Router()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "capture.pcap").write_bytes(pcap([]))
    (tmp_path / "private").touch(mode=0o600)
    (tmp_path / "hands.py").write_text(SOURCE)
    (tmp_path / "imports.py").write_text("import nosuchmodule\n")
    (tmp_path / "syntax.py").write_text("def x(:\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "uses.py").write_text("from afflux import Backoff\n\nBackoff(first=-1)\n")
    (tmp_path / "parses.py").write_text('import json\njson.loads("")\n')
    (tmp_path / "raises.py").write_text('\nraise ValueError("boom")\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


LIKE = 'an address looks like "tcp://host:port", not'
SERVE = "serve tcp://127.0.0.1:0"
H = f"{SERVE} --handler"
RELAY = "relay --journal j --listen tcp://127.0.0.1:0"
DIRECTORY = "is a file; it has to be a directory, which may be new"
MEM = "mem://x connects ends within one program, and a command is a program of its own: use tcp:// or unix://"

TIME_OR_SIZE = "write a time such as 24h, or a size such as 50GB"

USAGE = {
    # what the parser of the command line refuses
    "request": "URI is missing (see afflux request --help)",
    "request tcp://h:1 more": "unexpected argument 'more' (see afflux request --help)",
    "request tcp://h:1 --strem": "unknown option --strem; did you mean --stream? (see afflux request --help)",
    "request tcp://h:1 -stream": "unknown option -s; did you mean --stream? (see afflux request --help)",
    "request tcp://h:1 -data x": "unexpected argument 'x'; did you mean --data? (see afflux request --help)",
    "request tcp://h:1 -o JSON": "invalid -o/--output: JSON is not one of text, table, json, ndjson, csv, raw, hex; "
    "did you mean json? (see afflux request --help)",
    "serve hands:router tcp://h:1": "unexpected argument 'tcp://h:1'; did you mean --handler hands:router? (see afflux "
    "serve --help)",
    "request tcp://h:1 -x": "unknown option -x (see afflux request --help)",
    "request tcp://h:1 -d": "-d needs a value (see afflux request --help)",
    "request tcp://h:1 --stream=3": "--stream takes no value (see afflux request --help)",
    "request tcp://h:1 --take 0": "invalid --take: 0 is less than 1 (see afflux request --help)",
    "request tcp://h:1 --take abc": "invalid --take: 'abc' is not a whole number (see afflux request --help)",
    "serve x --workers 9999": "invalid --workers: 9999 is more than 1024 (see afflux serve --help)",
    "relay": "--from is missing (see afflux relay --help)",
    "spark tial": "unknown command 'tial'; did you mean tail? (see afflux spark --help)",
    "spark nope": "unknown command 'nope'; available: tail, decode (see afflux spark --help)",
    "spark decode --nope": "unknown option --nope (see afflux spark decode --help)",
    "--nope": "unknown option --nope (see afflux --help)",
    "--nope request tcp://h:1": "unknown option --nope (see afflux --help)",
    "-vv request tcp://h:1": "option -v belongs after the command: afflux request -v … (see afflux --help)",
    # addresses
    "request localhost:7000": f'{LIKE} "localhost:7000"; did you mean "tcp://localhost:7000"?',
    "request tcp:host": f'{LIKE} "tcp:host"; did you mean "tcp://host:port"?',
    "serve :7000 --demo": f'{LIKE} ":7000"; did you mean "tcp://localhost:7000"?',
    "request tcp://h": '"tcp://h" has no port, as in "tcp://host:7878"; port 0 gives a server a free one',
    "request tcp://h:1?keepalive=abc": 'option "keepalive" cannot be "abc": expected a number of seconds, above 0 '
    "and at most 86400 (a day)",
    "request http://h:1": 'unknown transport "http"; did you mean "ws"? Known: tcp, tls, ws, wss, unix, mem',
    "request mem://x": MEM,
    "serve mem://x --demo": MEM,
    "serve mem:// --demo": 'a mem address looks like "mem://name", not "mem://"',
    "relay --from mem://x --journal j --listen tcp://127.0.0.1:0": MEM,
    # files and folders
    "request {uri} -d @folder": "-d: 'folder' is a directory, not a file",
    "request {uri} -d @nope": "-d: file 'nope' not found",
    "request {uri} -d @": "-d: file '' not found",
    "request {uri} -D @folder --channel": "-D: 'folder' is a directory, not a file",
    "request {uri} --resume --store folder": "--store: 'folder' is a directory, not a file",
    "request {uri} --resume --store nope/x": "--store: directory 'nope' not found",
    "request {uri} --resume --store hands.py": "--store: 'hands.py' is not a file of sessions: choose another, or a "
    "new one",
    "request {uri} --resume --store ''": "invalid --store: the name is empty (see afflux request --help)",
    "request {uri} --auth-file nope": "--auth-file: file 'nope' not found",
    "request {uri} --auth-file folder": "--auth-file: 'folder' is a directory, not a file",
    "request {uri} --auth-file ''": "invalid --auth-file: the name is empty (see afflux request --help)",
    "request {uri} --auth-file private": "--auth-file: private: no lines of credentials; expected a line `bearer "
    "TOKEN` or `simple USER PASSWORD`",
    "bench {uri} --auth-file nope": "--auth-file: file 'nope' not found",
    "relay --from {uri} --journal j --listen tcp://127.0.0.1:0 --auth-file nope": "--auth-file: file 'nope' not found",
    "request {uri} --channel -r sum --session nope": "--session: file 'nope' not found",
    f"{SERVE} --demo --auth-file nope": "--auth-file: file 'nope' not found",
    f"{SERVE} --demo --resume --store hands.py": "--store: 'hands.py' is not a file of sessions: choose another, or a "
    "new one",
    f"{SERVE} --demo --journal ''": "--journal: the name is empty",
    f"{SERVE} --file ''": "invalid --file: the name is empty (see afflux serve --help)",
    "journal ''": "DIR: directory '' not found",
    "capture --listen tcp://127.0.0.1:0 --to {uri} -w folder": "--write: 'folder' is a directory, not a file",
    "capture --listen tcp://127.0.0.1:0 --to {uri} -w nope/x": "--write: directory 'nope' not found",
    "capture --listen tcp://127.0.0.1:0 --to {uri} -w ''": "--write: the name is empty",
    f"{SERVE} --file folder": "--file: 'folder' is a directory, not a file",
    f"{SERVE} --file nope": "--file: file 'nope' not found",
    f"{SERVE} --file /dev/null": "--file: '/dev/null' is a device or a pipe, not a regular file: it is read more than "
    "once",
    f"{SERVE} --demo --journal file": f"--journal: 'file' {DIRECTORY}",
    f"{SERVE} --sink file": f"--sink: 'file' {DIRECTORY}",
    "relay --from {uri} --journal file --listen tcp://127.0.0.1:0": f"--journal: 'file' {DIRECTORY}",
    # what would connect to itself, and what no value can be
    "capture --listen {uri} --to {uri} -w x": "--to {uri} is the address of --listen: the command would connect to "
    "itself",
    "capture --listen unix:///s --to unix:///./s -w x": "--to unix:///./s is the address of --listen: the command "
    "would connect to itself",
    "relay --from tcp://localhost:7 --journal j --listen tcp://0.0.0.0:7": "--from tcp://localhost:7 is the address of "
    "--listen: the command would connect to itself",
    f"{SERVE} --demo --journal j --keep 36501d": "invalid --keep '36501d': the longest time is 36500d",
    f"{SERVE} --demo --journal j --keep 9223373TB": "invalid --keep '9223373TB': the largest size is 9223372TB",
    f"{SERVE} --demo --journal j --keep 0.5GB": f"invalid --keep '0.5GB': {TIME_OR_SIZE}",
    f"{SERVE} --demo --journal j --keep ''": f"invalid --keep '': {TIME_OR_SIZE}",
    f"{SERVE} --demo --journal j --journal-bytes {'9' * 5000}": f"invalid --journal-bytes '{'9' * 64}': the largest "
    "size is 9223372TB",
    f"{SERVE} --demo --lease 5/x": "invalid --lease 'x': write 200ms, 1.5s or 2m",
    "request {uri} --lease --max-time x": "invalid --max-time 'x': write 200ms, 1.5s or 2m",
    "request {uri} -d @/proc/self/mem": "-d: cannot read '/proc/self/mem': Input/output error",
    "request {uri} -m @/proc/self/mem": "-m: cannot read '/proc/self/mem': Input/output error",
    "request {uri} --channel -D @/proc/self/mem": "-D: cannot read '/proc/self/mem': Input/output error",
    # what cannot be written
    "bench {uri} --hdr /proc/x": "--hdr: cannot write '/proc/x': No such file or directory",
    "capture --listen tcp://127.0.0.1:0 --to {uri} -w /proc/x": "--write: cannot write '/proc/x': No such file or "
    "directory",
    "request {uri} --resume --store /proc/x": "--store: cannot write '/proc/x': No such file or directory",
    f"{SERVE} --sink /proc/x": "--sink: cannot write into '/proc': No such file or directory",
    f"{SERVE} --demo --journal /proc/x/y": "--journal: cannot write into '/proc': No such file or directory",
    f"{SERVE} --demo --journal file/y": "--journal: '{folder}/file' is a file, so 'file/y' cannot be made",
    # files are missing before anything else is wrong
    "check hands.py nope --against nope2": "--against: file 'nope2' not found",
    "check hands.py nope --against file": "DUMP: file 'nope' not found",
    "inspect hands.py --keylog folder": "--keylog: cannot read 'folder': Is a directory",
    "inspect hands.py --html ''": "--html: the name is empty",
    "inspect hands.py --html folder": "--html: 'folder' is a directory, not a file",
    "wireshark -o folder": "--output: 'folder' is a directory, not a file",
    "wireshark -o nope/x.lua": "--output: directory 'nope' not found",
    f"{SERVE} --demo --journal kafka://h/x": "--journal kafka://h/x: a journal is a directory, or nats://HOST/STREAM",
    "inspect nope hands.py": "FILE: file 'nope' not found",
    "demo --out file": f"--out: 'file' {DIRECTORY}",
    "decode folder": "FILE: 'folder' is a directory, not a file",
    "decode nope": "FILE: file 'nope' not found; hexadecimal bytes require --hex",
    "inspect /dev/null": (
        "FILE: '/dev/null' is a device or a pipe, not a regular file: it is read more than once; read it from stdin: "
        "afflux inspect - < /dev/null"
    ),
    "inspect hands.py --html nope/x.html": "--html: directory 'nope' not found",
    "check folder": "FILE: 'folder' is a directory, not a file",
    "check nope": "FILE: file 'nope' not found",
    "journal file": "DIR: 'file' is a file, not a directory",
    "doctor --journal nope": "--journal: directory 'nope' not found",
    "spark decode hands.py --out file": f"--out: 'file' {DIRECTORY}",
    # handlers
    f"{H} hands": "invalid --handler 'hands': expected MODULE:OBJECT, such as hands:handler",
    f"{H} hands.py:Handler": "--handler: 'hands.py' is not the name of a module; did you mean hands:Handler?",
    f"{H} ./hands:Handler": "--handler: './hands' is not the name of a module; did you mean hands:Handler?",
    f"{H} hands:Handlr": "--handler: Handlr not found in hands; did you mean Handler?",
    f"{H} imports:x": "--handler: no module 'nosuchmodule', which imports imports",
    f"{H} syntax:x": "--handler: cannot import syntax: invalid syntax (syntax.py, line 1)",
    f"{H} raises:x": "--handler: cannot import raises: ValueError: boom (raises.py, line 2)",
    f"{H} uses:x": "--handler: cannot import uses: ValueError: invalid Backoff: first= is 0 seconds "
    "or more, not -1 (uses.py, line 3)",
    f"{H} parses:x": "--handler: cannot import parses: JSONDecodeError: Expecting value: line 1 column 1 "
    "(char 0) (parses.py, line 2)",
    f"{H} hands:Needs": "--handler: hands:Needs is a class that needs arguments; name an object of it "
    "instead (Needs.__init__() missing 1 required positional argument: 'database')",
    f"{H} hands:Fails": "--handler: cannot make hands:Fails: RuntimeError: no database (hands.py, line 13)",
    f"{H} hands:Nothing": "--handler: hands:Nothing has none of the methods request, fire, stream, "
    "channel, push, session; did you mean requests → request?",
    f"{H} hands:router": "--handler: hands:router is a Router without routes",
    f"{H} hands:function": "--handler: hands:function is a function: add it to a Router, or name an object with "
    "methods such as request, fire, stream, channel, push, session",
    f"{H} leaves:x": "--handler: cannot import leaves: it ends the program, by sys.exit(3)",
    # options
    "request {uri} --dmt json": "--dmt: 'json' is not a MIME type; did you mean application/json?",
    "bench {uri} --mmt Text": "--mmt: 'Text' is not a MIME type; did you mean text/plain?",
    "request {uri} --dmt ü": "--dmt: 'ü' is not a MIME type of at most 127 ASCII characters",
    "bench {uri} --mmt ü": "--mmt: 'ü' is not a MIME type of at most 127 ASCII characters",
    "request jmux+tcp://127.0.0.1:1 --cursor 0": "--cursor requires a protocol with cursors, such as RSocket at "
    "tcp://…: jmux has none",
    "serve jmux+tcp://127.0.0.1:0 --demo --journal j": "--journal requires a protocol with cursors, such as RSocket at "
    "tcp://…: jmux has none",
    "request jmux+127.0.0.1:7000": 'an address looks like "tcp://host:port", not "jmux+127.0.0.1:7000"; did you mean '
    '"jmux+tcp://127.0.0.1:7000"?',
    "spark decode hands.py --out o --where 'x ='": "--where:1:4: the filter ends here, expected a name, a number or a "
    "text in quotes\n  x =\n     ^",
    "spark tail {uri} --out o --every x": "invalid --every 'x': write 200ms, 1.5s or 2m",
    "capture --listen tcp://127.0.0.1:0 --to tcp://127.0.0.1:0 -w x": "tcp://127.0.0.1:0 is for servers: port 0 gives "
    "one a free port, and a client names that port",
    "inspect hands.py -o json --table x": "--table: there is no table 'x'; there are frames, connections, streams, "
    "credit, stalls, latencies, violations",
    "relay --from {uri} --journal j --listen tcp://127.0.0.1:0 --shards 2": "--key and --shards require each other: "
    "items are distributed to N shards by the value of a key",
    f"{RELAY} --from {{uri}} --framing nope": "invalid --framing 'nope': expected one of lines, u8, u16, u24, u32",
    f"{RELAY} --from tcp://h:1 --framing lines": "--framing cuts sessions of bytes, which rsocket at tcp://h:1 does "
    "not have: omit it",
    f"{RELAY} --from jmux+tcp://h:1": "--from jmux+tcp://h:1 is a stream of bytes: choose its framing with --framing, "
    "one of lines, u8, u16, u24, u32",
    f"{RELAY} --from tcp://h:1 --subscribe": '--from tcp://h:1: rsocket has no "subscribe"; it has: lease, resume, '
    "store, extensions",
    f"{RELAY} --from tcp://h:1 --key x --shards 2": "invalid --key 'x': expected a JSON pointer, such as /carrier",
    f"{RELAY} --from tcp://h:1 --key /x --shards 5000": "invalid --shards 5,000: the most are 1,024; raise it with "
    "--limit partitions=…",
    f"{RELAY} --from tcp://h:1 --from tcp://h:2 --key /x --shards 2": "--key distributes the items of one --from, not "
    "of several",
    "relay --from tcp://h:1 --journal j --listen jmux+tcp://127.0.0.1:0": "--listen requires a protocol with cursors, "
    "such as RSocket at tcp://…: jmux has none",
    f"{SERVE} --demo --lease 99999999999999/1s": "invalid --lease '99999999999999/1s': a lease has 0 to 2147483647 "
    "requests and 0 to 2147483 seconds, not 99999999999999 requests and 1 seconds",
    f"{SERVE} --demo --lease {'9' * 5000}/1s": f"invalid --lease '{'9' * 64}': expected N/TIME, such as 100/1s",
    "decode capture.pcap --framing none": "--framing and --role apply to dumps and --hex: a capture has packets, and "
    "directions of its own",
    "check file --role server": "--role requires --against: it is about frames, and types alone have none",
    "check file --dual -o json": "-o and --dual exclude each other: that prints a file of its own form",
    "inspect hands.py --top 3 -o json": "--top and -o exclude each other: rows are limited by --limit",
    "inspect folder": "FILE: folder: no capture tables; expected a directory of Parquet files for each table, such as "
    "folder/streams, as afflux spark decode --out writes them",
    "bench {uri} --rate 0": "invalid --rate 0.0: expected 0.001 to 10,000,000 per second",
    "bench {uri} --workers 300": "invalid --workers 300: expected 1 to 256",
    "request tcp://127.0.0.1:0": "tcp://127.0.0.1:0 is for servers: port 0 gives one a free port, and a client names "
    "that port",
    "request {uri} --routes -o table --columns verb,nosuch": "--columns: unknown nosuch; the columns of --routes are "
    "verb, route",
    "request {uri} -d x --max-time 0": "--max-time must be longer than 0",
    "bench {uri} -D x": "invalid --duration 'x': write 200ms, 1.5s or 2m",
    "bench {uri} -D 0s": "--duration must be longer than 0",
    "bench {uri} --warmup x": "invalid --warmup 'x': write 200ms, 1.5s or 2m",
    "bench {uri} --timeout 0": "--timeout must be longer than 0",
    "doctor --journal nats://h/x": "--journal: doctor reports directories; use afflux journal nats://HOST/STREAM",
    "request {uri} -d x --fnf -o json": "-o and --fnf exclude each other: that call prints no answer",
    "request {uri} -d x --delay 1s": "--delay requires --stream, --channel, --cursor or -D: one request has no items "
    "to pause after",
    "request {uri} --push": "--push requires -m or -d: it sends metadata, and there is none",
    "request {uri} --limit connections=5": "--limit connections is for servers, and this command connects to one: use "
    "afflux serve --limit connections=…",
    "bench {uri} --limit half_handshakes=5": "--limit half_handshakes is for servers, and this command connects to "
    "one: use afflux serve --limit half_handshakes=…",
    "request {uri} --limit capture_bytes=5": "--limit capture_bytes is for captures, which this command does not read",
    "request {uri} --limit foo=1": "--limit: unknown limit 'foo'; docs/reference/limits.md lists them",
    f"{SERVE} --demo --limit connections=0": "--limit connections=0: nothing would be served: it has to be above 0 "
    "(count)",
    f"{SERVE} --demo --stats inf": "invalid --stats 'inf': write 200ms, 1.5s or 2m",
    f"{SERVE} --demo --stats 10ms": "invalid --stats '10ms': expected 100ms to 1d",
    "request {uri}/path": 'a tcp address has no path: omit "/path"',
    "request {uri} -d x --mmt ''": "--mmt is empty: write a MIME type such as application/json",
    "request {uri} -d x --dmt ''": "--dmt is empty: write a MIME type such as application/json",
    "request {uri} -o tabel": "invalid -o/--output: tabel is not one of text, table, json, ndjson, csv, raw, hex; did "
    "you mean table? (see afflux request --help)",
    SERVE: "serve requires exactly one of --demo, --handler MODULE:OBJECT, --file PATH, --sink DIR",
    "request {uri} -d - -m -": "only one of -d, -D and -m can read stdin, which is read once",
    "request {uri} -d x -o csv --columns a,,b": "--columns 'a,,b': a name is empty",
    "request {uri} -d x -o csv --columns ''": "--columns '': a name is empty",
    f"{SERVE} --demo --journal s3://bucket/x": "--journal s3://bucket/x: a journal is a directory, or nats://HOST/STREAM",
    f"{SERVE} --demo --journal NATS://h/x": "--journal NATS://h/x: a journal is a directory, or nats://HOST/STREAM",
    f"{SERVE} --demo --journal j --keep -5h": f"invalid --keep '-5h': {TIME_OR_SIZE}",
    "spark tail {uri} --out x --master ''": "--master is empty: write one such as local[4]",
    "spark decode folder --out x --master ' '": "--master is empty: write one such as local[4]",
    f"{SERVE} --demo --journal j --keep 5 h": "unexpected argument 'h' (see afflux serve --help)",
    f"{SERVE} --demo --journal j --keep 5": "--keep 5 has no unit: write a time such as 5h, or a size such as 5GB",
    "request {uri} --timeout abc": "invalid --timeout 'abc': write 200ms, 1.5s or 2m",
    "relay --from {uri} --journal j --listen tcp://127.0.0.1:0 --origin x": "--origin is for ws:// and wss://, not for "
    "tcp://",
}


@pytest.mark.parametrize("command", USAGE)
def test_a_mistake(uri: str, folder: Path, command: str) -> None:
    ran = here(*shlex.split(command.replace("{uri}", uri)))
    told = USAGE[command].replace("{uri}", uri).replace("{folder}", str(folder))
    assert ran == (2, "", f"afflux: {told}\n")


@pytest.mark.parametrize(
    ("option", "code", "told"),
    [
        ("--lease", 69, "leases are not supported (0x002)"),
        ("--resume", 70, "resumption is not supported (0x003)"),
    ],
)
def test_a_server_without_a_feature(uri: str, option: str, code: int, told: str) -> None:
    ran = here("request", uri, option)
    advice = f"omit {option}, or start the server with it (afflux serve {option})"
    assert ran == (code, "", f"afflux: {told}; {advice}\n")


def test_a_capture_that_does_not_exist() -> None:
    assert here("spark", "decode", "nope", "--out", "x") == (2, "", "afflux: PATH: file 'nope' not found\n")


def test_a_module_that_does_not_exist(folder: Path) -> None:
    ran = here(*f"{H} nope:Handler".split())
    assert ran == (2, "", f"afflux: --handler: no module 'nope' (in {folder} or installed)\n")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("request tcp://127.0.0.1:1", "cannot connect to tcp://127.0.0.1:1: refused: nothing listens there"),
        ("request TCP://127.0.0.1:1", "cannot connect to tcp://127.0.0.1:1: refused: nothing listens there"),
        ("serve {uri} --demo", "cannot listen on {uri}: the port is in use"),
        ("capture --listen {uri} --to tcp://127.0.0.1:1 -w x.pcapng", "cannot listen on {uri}: the port is in use"),
        (
            "serve tcp://192.0.2.1:7000 --demo",
            "cannot listen on tcp://192.0.2.1:7000: this machine does not have the address",
        ),
    ],
)
def test_what_fails_at_once(uri: str, command: str, told: str) -> None:
    ran = here(*command.replace("{uri}", uri).split())
    assert ran == (1, "", f"afflux: {told.replace('{uri}', uri)}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_an_unknown_option_in_the_same_way(command: str) -> None:
    ran = here(command, "--zzz")
    assert ran == (2, "", f"afflux: unknown option --zzz (see afflux {command} --help)\n")


def test_an_empty_directory_of_journals() -> None:
    assert here("journal", "folder") == (0, "", "afflux: no journals in 'folder'\n")
    with Terminal(["journal", "folder"]) as terminal:
        code, shown = terminal.end()
    assert (code, shown.strip()) == (0, "afflux: no journals in 'folder'")


def test_a_directory_that_was_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    words = [sys.executable, "-m", "afflux", *f"{H} hands:Handler".split()]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    told = "afflux: --handler: the current directory was removed: change to another\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", told)


@pytest.mark.parametrize("uri", ["tcp://127.0.0.1:1", "unix:///nosuch/socket"])
def test_a_process_without_open_files_left(uri: str) -> None:
    program = f"""
import os, resource
import afflux, afflux.sync

def failure():
    try:
        afflux.sync.connect({uri!r})
    except afflux.ConnectFailed as error:
        return error

print(failure())  # imports all that the second one needs
resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print(failure())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    before, told = ran.stdout.splitlines()
    assert before.startswith(f"cannot connect to {uri}: ")
    assert "open files" not in before
    assert told == f"cannot connect to {uri}: this process has too many open files: raise its limit (ulimit -n)"
