"""Generate the reference pages from the declarations: ``python -m tools.reference`` writes docs/reference.

Every table and diagram comes from the code that uses it, and a test compares the pages with the output of this tool.
The text of a frame, a code, a state or a limit is in its declaration.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tools.contracts import contract, docstring, first_sentence, sided
from tools.frame_pages import field_docs, frame_page, reference_page
from tools.specs import linked, owner_of

import afflux
from afflux.capture import schemas
from afflux.cli.exits import code_of
from afflux.core import limits
from afflux.core.errors import RemoteProtocolError
from afflux.core.frame import Frame
from afflux.core.machine import Table
from afflux.protocols.family import states as family
from afflux.protocols.jmux import errors as jmux_errors
from afflux.protocols.jmux import frames as jmux_frames
from afflux.protocols.jmux import states as jmux_states
from afflux.protocols.limit import codes as limit_codes
from afflux.protocols.limit import frames as limit_frames
from afflux.protocols.limit import states as limit_states
from afflux.protocols.reactivesocket import codes as reactivesocket_codes
from afflux.protocols.reactivesocket import frames as reactivesocket_frames
from afflux.protocols.reactivesocket import states as reactivesocket_states
from afflux.protocols.rsio import frames as rsio_frames
from afflux.protocols.rsio import states as rsio_states
from afflux.protocols.rsio.codes import Extension
from afflux.protocols.rsocket import codes as rsocket_codes
from afflux.protocols.rsocket import states
from afflux.protocols.rsocket.codes import FIRST_APPLICATION_CODE, LAST_APPLICATION_CODE, Code
from afflux.protocols.rsocket.frames import FRAMES
from afflux.protocols.rsocket_draft import frames as draft_frames
from afflux.protocols.rsocket_draft import states as draft_states

__all__ = ["FOLDER", "pages", "write"]

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"

_ABOUT_FRAMES = """\
All numbers are big endian. On a byte stream, such as TCP, each frame is preceded by its length: 24 bits, which do not
count themselves and are not shown below. Every frame starts with six bytes: the stream id (0 is the connection), the
frame type in 6 bits, and 10 flag bits. A diagram has 32 bits per row; `...` marks the part of a field in the other row,
and a field without a fixed size has a separate row.

Rule numbers link to the [specification](../specs/rsocket.md).
"""

_ABOUT_CODES = """\
The codes of an ERROR frame. "Arrives as" is the exception that the application receives; "exit" is the exit code of the
`afflux` command. CONNECTION_CLOSE raises nothing by itself: live streams continue, and new requests raise
ConnectionClosed. [errors.md](../errors.md) describes how to handle each.
"""

_ABOUT_STATES = """\
The engine executes these tables, and the tests cover every cell. A stream has two directions: OUT is sent by this side,
IN is received. A stream with answers only is half closed from the start: its requester starts in OUT_DONE and its
responder in IN_DONE. Inputs whose names start with APP come from the application, the others from the peer, the clock
or the transport. A rule that is only a number, such as 3.1, is a section of the specification.
"""

_ABOUT_TABLES = """\
`afflux inspect` and `afflux.capture.analyze` make these tables of captures; types are those of Spark SQL. `conn` and
`stream` join the tables. `>` is what the client sends, the side that opened the connection, and `<` what the server
sends. [How to find who stopped a stream](../how-to/inspect.md) explains causes and rules. For Jmux, credit is in bytes
(its ration); for the others, in items.
"""

_ABOUT_LIMITS = """\
`Limits.server()` is the default: safe for untrusted peers. `Limits.trusted()` is for links between hosts of one
operator, and `Limits.tiny()` for small devices and tests. Change a limit with `Limits.server(streams=64)`; values that
contradict each other raise an error that names both.

The value of a limit is allowed, one more is not. "Reason" is the first word of the error text, locally and on the wire.
Ki, Mi and Gi are powers of 1,024. [credit.md](../credit.md) describes the effect of the most common limits.
"""


_ABOUT_API = """\
The names of `import afflux`. Its modules are on a [separate page](modules.md), as are the [engines](engine.md) of the
drivers. The contract of each name follows its table. Rule numbers are RSocket's: see its
[specification](../specs/rsocket.md).
"""

_ABOUT_MODULES = """\
Further modules of `afflux`. They are imported on first use.
"""

_ABOUT_ENGINES = """\
`afflux.connect` and `afflux.serve` are based on engines. An engine takes bytes and the time, and returns bytes and
events. It has no socket, no clock and no threads, so it runs under any loop, in any test, and in a debugger. Frames and
states are on the [page of the protocol](rsocket.md). Rule numbers are RSocket's: see its
[specification](../specs/rsocket.md).
"""

_PARTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Connect and serve", "", ("afflux.aio",)),
    ("Routes", "", ("afflux.router",)),
    ("Brokers", "", ("afflux.broker",)),
    ("Payloads", "", ("afflux.core.payload",)),
    ("Limits", "[limits.md](limits.md) lists all of them with their values.", ("afflux.core.limits",)),
    ("Metadata", "", ("afflux.calls", "afflux.protocols.rsocket.metadata")),
    ("Leases", "", ("afflux.protocols.rsocket.lease",)),
    ("Connection options", "", ("afflux.retry", "afflux.transports")),
    ("Reactive Streams", "", ("afflux.reactive",)),
    (
        "Errors",
        "[errors.md](../errors.md) states when each is raised and what is safe to retry.",
        ("afflux.core.errors",),
    ),
)
"Topics of the names of ``afflux``, by the module that each comes from."

_MODULES = ("bench", "capture", "codecs", "middleware", "journal")
"Public modules that are not among the names of ``afflux``."

_ENGINES = ("afflux.core.engine", "afflux.core.events", "afflux.protocols.rsocket")


def pages() -> dict[str, str]:
    """Every page by its file name, with a link at each rule number."""
    owners = {"api.md": "rsocket", "engine.md": "rsocket"}
    return {name: linked(text, owners.get(name) or owner_of(Path(name))) for name, text in _pages().items()}


def _pages() -> dict[str, str]:
    return {
        "README.md": _index(),
        "api.md": _api(),
        "engine.md": _engine(),
        "limits.md": _limits(),
        "capture-tables.md": _capture_tables(),
        "modules.md": _modules(),
        "rsocket.md": _rsocket(),
        "jmux.md": _wire(JMUX),
        "limit-stream.md": _wire(LIMIT),
        "reactivesocket.md": _wire(REACTIVESOCKET),
        "rsocket-draft.md": _wire(DRAFT),
        "reactive-streams-io.md": _wire(RSIO),
    }


def write(folder: Path = FOLDER) -> None:
    """Write every page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


def _note(sources: str) -> str:
    return _wrapped(
        f"Generated by `python -m tools.reference` from {sources}. To change it, edit the source and run it again."
    )


def _index() -> str:
    note = _note("the declarations and docstrings in `src/afflux`")
    return f"""\
# Reference

{note}
- [api.md](api.md): every name of `afflux`, with its contract.
- [modules.md](modules.md): further modules: blocking calls, authentication, codecs and others.
- [engine.md](engine.md): engines and their events, for drivers of your own and for tests.
- [rsocket.md](rsocket.md): RSocket 1.0. Every frame with its bits and fields, the error codes, the states of
  connections and streams.
- [rsocket-draft.md](rsocket-draft.md), [jmux.md](jmux.md), [reactivesocket.md](reactivesocket.md),
  [reactive-streams-io.md](reactive-streams-io.md), [limit-stream.md](limit-stream.md): the same for the other
  protocols.
- [limits.md](limits.md): every limit, its values in three profiles, and its reason word.
- [capture-tables.md](capture-tables.md): the tables that captures become, and every column.
"""


def _api() -> str:
    """Return the names of ``afflux`` by topic. Names without a topic are at the end: add one in ``_PARTS``."""
    names = [name for name in afflux.__all__ if not name.startswith("_")]
    objects = {name: thing for name in names if not isinstance(thing := getattr(afflux, name), ModuleType)}
    left = dict(objects)
    parts = ["# Python API", _note("the docstrings"), _ABOUT_API]
    for title, about, modules in (*_PARTS, ("Others", "", ("",))):
        inside = {name: left[name] for name in sorted(left, key=lambda name: inspect.isclass(left[name]))}
        inside = {name: thing for name, thing in inside.items() if thing.__module__.startswith(modules)}
        left = {name: thing for name, thing in left.items() if name not in inside}
        if inside:
            parts += [f"## {title}\n", about, _contents("afflux", inside)]
            parts += [_contract(f"afflux.{name}", thing) for name, thing in inside.items()]
    return _joined(parts)


def _modules() -> str:
    names = [name for name in afflux.__all__ if isinstance(getattr(afflux, name), ModuleType)]
    parts = ["# Modules", _note("the docstrings"), _ABOUT_MODULES]
    for name in dict.fromkeys((*names, *_MODULES)):
        parts += _module(f"afflux.{name}")
    return _joined(parts)


def _engine() -> str:
    parts = ["# Engines", _note("the docstrings"), _ABOUT_ENGINES]
    for name in _ENGINES:
        parts += _module(name)
    return _joined(parts)


def _module(name: str) -> list[str]:
    """Return a module's docstring, a table of its names, and their contracts."""
    module = import_module(name)
    names = module.__all__
    options = _directive(name, show_root_heading=False, show_root_toc_entry=False, members=[])
    about = sided(options, docstring(inspect.getdoc(module) or ""))
    things = {each: getattr(module, each) for each in names}
    contracts = [_contract(f"{name}.{each}", thing) for each, thing in things.items()]
    return [f"## {name}\n", about, _contents(name, things), *contracts]


def _contents(owner: str, things: dict[str, Any]) -> str:
    rows = ["| name | description |", "|---|---|"]
    rows += [f"| [`{name}`](#{owner}.{name}) | {_first_sentence(thing)} |" for name, thing in things.items()]
    return "\n".join(rows) + "\n"


def _first_sentence(thing: Any) -> str:
    """Return the first sentence of a docstring; "" for a value, which has only the docstring of its type."""
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return ""
    return first_sentence(inspect.getdoc(thing) or "").replace("|", "\\|")


def _contract(name: str, thing: Any) -> str:
    """Return the contract of a name: that of mkdocstrings on the site, and plain Markdown elsewhere."""
    return sided(_directive(name), contract(name, thing))


def _directive(name: str, **options: Any) -> str:
    """Return the directive that mkdocstrings replaces by the docstring of ``name``."""
    lines = [f"::: {name}", *(["    options:"] if options else [])]
    lines += [
        f"      {key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in options.items()
    ]
    return "\n".join(lines) + "\n"


def _joined(parts: list[str]) -> str:
    """Join the parts of a page with empty lines."""
    return "\n".join(part if part.endswith("\n") else part + "\n" for part in parts if part)


def _capture_tables() -> str:
    found = ["# Tables of captures", _note("`src/afflux/capture/schemas.py`"), _ABOUT_TABLES]
    for name, columns in schemas.TABLES.items():
        rows = [f"|`{column.name}`|{column.type.upper()}|{column.doc}|" for column in columns]
        found += [f"## {name}", "\n".join(["|Column|Type|Meaning|", "|---|---|---|", *rows])]
    return _joined(found)


def _limits() -> str:
    return _joined(["# Limits", _note("`src/afflux/core/limits.py`"), _ABOUT_LIMITS, limits.reference()])


def _rsocket() -> str:
    title, _, frames = reference_page("RSocket 1.0", FRAMES.values()).partition("\n\n")
    sources = "`frames.py`, `codes.py` and `states.py` in `src/afflux/protocols/rsocket`"
    return "\n".join(
        [
            title,
            "",
            _note(sources),
            "[Frames](#frames) · [Error codes](#error-codes) · [States](#states)",
            "",
            "## Frames",
            "",
            _ABOUT_FRAMES,
            _frame_index(),
            frames,
            "## Error codes",
            "",
            _ABOUT_CODES,
            _codes(),
            "## States",
            "",
            _ABOUT_STATES,
            *(_table(table, about) for table, about in _TABLES),
            "### What the names mean",
            "",
            _names(),
        ]
    )


_TABLES: tuple[tuple[Table[Any, Any, Any], str], ...] = (
    (states.CLIENT, "The side that connected. It sends SETUP and hears whether it was accepted by what comes next."),
    (states.SERVER, "The side that was connected to. In DECIDING its application may refuse the client."),
    (states.REQUESTER, "The side that opened the stream."),
    (states.RESPONDER, "The side that answers."),
)


def _frame_index(frames: Mapping[int, type[Frame]] = FRAMES) -> str:
    rows = ["| Type | Frame | |", "|---|---|---|"]
    for code, frame in frames.items():
        anchor = f"{frame.NAME.lower()}-0x{code:02x}"
        about = inspect.cleandoc(frame.__doc__ or "").splitlines()[0]
        rows.append(f"| 0x{code:02X} | [{frame.NAME}](#{anchor}) | {about} |")
    return "\n".join(rows) + "\n"


def _codes() -> str:
    docs = _member_docs(Code)
    rows = ["| Code | Name | Meaning | Arrives as | Exit |", "|---|---|---|---|---|"]
    for code in Code:
        rows.append(_code_row(f"0x{code:03X}", code.name, docs[code.name], code))
    own = "The application's own codes."
    span = f"0x{FIRST_APPLICATION_CODE:03X} to 0x{LAST_APPLICATION_CODE:X}"
    rows.append(_code_row(span, "", own, FIRST_APPLICATION_CODE))
    rows.append(_code_row("any other", "", "On a stream it breaks a rule.", LAST_APPLICATION_CODE + 1))
    return "\n".join(rows) + "\n"


def _code_row(shown: str, name: str, about: str, code: int, known: ModuleType = rsocket_codes) -> str:
    """Return the row of a code, received on a stream if it is allowed there, otherwise on the connection."""
    bounds = limits.Limits.server()
    error = known.error_for(code, b"", 1, bounds)
    if isinstance(error, RemoteProtocolError) and code in set(known.Code):
        error = known.error_for(code, b"", 0, bounds)
    return f"| {shown} | {name} | {about} | `{type(error).__name__}` | {code_of(error)} |"


def _table(table: Table[Any, Any, Any], about: str) -> str:
    name = table.name[0].upper() + table.name[1:]
    return f"### {name}\n\n{about}\n\n```mermaid\n{table.mermaid()}```\n\n{table.markdown()}"


def _names(*kinds: type[Enum]) -> str:
    """Return the docstrings of states, inputs and actions."""
    rows = ["| Name | |", "|---|---|"]
    said = set()
    for kind in kinds or _RSOCKET_KINDS:
        for name, text in _member_docs(kind).items():
            row = f"| {name} | {text} |"
            if row not in said:
                said.add(row)
                rows.append(row)
    return "\n".join(rows) + "\n"


_RSOCKET_KINDS = (family.ConnectionInput, family.ConnectionAction, family.StreamInput, family.StreamAction)


def _member_docs(kind: type[Enum]) -> dict[str, str]:
    """Return the docstrings of an enum's members, by name."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    docs: dict[str, str] = {}
    for member, sentence in pairwise(ast.iter_child_nodes(body)):
        match member, sentence:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = inspect.cleandoc(text)
    return docs


# -- the other protocols --------------------------------------------------------------------------------------


class Wire(NamedTuple):
    """What the page of a protocol is made of."""

    title: str
    package: str
    about_frames: str
    frames: Mapping[int, type[Frame]]
    draw: Callable[[type[Frame]], str]
    codes: str
    "The section about errors, written."
    about_states: str
    tables: tuple[tuple[Table[Any, Any, Any], str], ...]
    kinds: tuple[type[Enum], ...]
    "The enums whose members have sentences."


def _wire(wire: Wire) -> str:
    folder = f"src/afflux/protocols/{wire.package}"
    return "\n".join(
        [
            f"# {wire.title}",
            "",
            _note(f"the declarations in `{folder}`"),
            "[Frames](#frames) · [Errors](#errors) · [States](#states)",
            "",
            "## Frames",
            "",
            wire.about_frames,
            _frame_index(wire.frames),
            *(wire.draw(frame) for frame in wire.frames.values()),
            "## Errors",
            "",
            wire.codes,
            "## States",
            "",
            wire.about_states,
            *(_table(table, about) for table, about in wire.tables),
            "### What the names mean",
            "",
            _names(*wire.kinds),
        ]
    )


def _fields_page(frame: type[Frame]) -> str:
    """A message whose fields have no fixed size: nothing to draw."""
    docs = field_docs(frame)
    kinds: Iterable[tuple[str, object]] = frame.KINDS  # type: ignore[attr-defined]  # messages have them
    rows = [f"| `{name}` | {_KINDS[type(kind).__name__]} | {docs.get(name, '')} |" for name, kind in kinds]
    head = f"## {frame.NAME} (0x{frame.TYPE:02X})\n\n{inspect.cleandoc(frame.__doc__ or '')}\n"
    return "\n".join([head, "| Field | Type | Meaning |", "|---|---|---|", *rows, ""])


_KINDS = {
    "Varint": "varint",
    "Text": "varint length, UTF-8",
    "Octets": "varint length, bytes",
    "Ids": "varint count, then varints",
    "Element": "bytes: as many as elements have, or behind a varint length",
    "Elements": "count × size bytes",
}


def _codes_of(module: ModuleType, digits: int, about: str) -> str:
    """The codes that a module declares."""
    docs = _member_docs(module.Code)
    rows = ["| Code | Name | Meaning | Arrives as | Exit |", "|---|---|---|---|---|"]
    for code in module.Code:
        rows.append(_code_row(f"0x{code:0{digits}X}", code.name, docs[code.name], code, module))
    return about + "\n" + "\n".join(rows) + "\n"


def _errors_of(module: ModuleType, about: str) -> str:
    """The exceptions that a module declares."""
    kinds: list[Any] = [
        thing for thing in vars(module).values() if inspect.isclass(thing) and thing.__module__ == module.__name__
    ]
    rows = ["| Error | | Exit |", "|---|---|---|"]
    rows += [f"| `{kind.__name__}` | {_first_sentence(kind)} | {code_of(kind('x'))} |" for kind in kinds]
    return about + "\n" + "\n".join(rows) + "\n"


def _extensions() -> str:
    docs = _member_docs(Extension)
    rows = ["| Extension | Name | |", "|---|---|---|"]
    rows += [f"| {each.value} | {each.name} | {docs[each.name]} |" for each in Extension]
    return _ABOUT_ERRORS_RSIO + "\n" + "\n".join(rows) + "\n"


_ABOUT_FRAMES_2015 = """\
All numbers are big endian. On a byte stream, such as TCP, each frame is preceded by its length: 32 bits, which count
themselves and are not shown below. Every frame starts with eight bytes: 16 bits of type, 16 flag bits, and the stream
id (0 is the connection). A metadata length counts its own four bytes as well.

Rule numbers link to the [specification](../specs/reactivesocket.md).
"""
_ABOUT_CODES_2015 = """\
The codes of an ERROR frame. "Arrives as" is the exception that the application receives; "exit" is the exit code of the
`afflux` command. The numbers are those of 2015; the dialect `codes-0.1` uses others on the wire.
"""
_ABOUT_STATES_2015 = """\
The engine is RSocket's with these tables and frames: inputs that only RSocket has, such as those of resumption, are
no-ops here. Inputs whose names start with APP come from the application.
"""
_ABOUT_FRAMES_DRAFT = """\
Length and header are those of [RSocket](rsocket.md#frames). X marks a chain of extension entries, before everything of
variable size; D and MM mark MIME types that apply to one item. Frames of RSocket that the draft does not change (LEASE,
KEEPALIVE, METADATA_PUSH, RESUME, RESUME_OK, EXT without X) are on [RSocket's page](rsocket.md#frames).

Rule numbers link to the [specification](../specs/rsocket-draft.md).
"""
_ABOUT_CODES_DRAFT = """\
The codes are those of [RSocket](rsocket.md#error-codes).
"""
_ABOUT_STATES_DRAFT = """\
The engine is RSocket's with these tables and frames. The tables of streams are
[RSocket's](rsocket.md#stream-requester). Inputs whose names start with APP come from the application.
"""
_ABOUT_FRAMES_JMUX = """\
All numbers are big endian. Each side starts with a header of eight bytes: `4A 6D 75 78` ("Jmux"), the version 1, its
initial ration in units of 256 bytes (two bytes, 0 for unbounded), and a 0. Messages follow; each has four bytes, and
then as many as its length states. The low bits of the first byte are flags.

Rule numbers link to the [specification](../specs/jmux.md).
"""
_ABOUT_ERRORS_JMUX = """\
Jmux has no codes: Error, Shutdown and Abort carry text. The type of the exception states whether the call may have been
processed.
"""
_ABOUT_STATES_JMUX = """\
The engine executes these tables, and the tests cover every cell. An unlisted input is a violation: Error is sent, and
the connection ends. Inputs whose names start with APP come from the application.
"""
_ABOUT_FRAMES_LIMIT = """\
All numbers are big endian. On a byte stream, such as TCP, each frame is preceded by its length: 24 bits, which do not
count themselves and are not shown below. Every frame starts with six bytes: the number of a message (0 is the
connection), the frame type in 6 bits, and 10 flag bits.

Rule numbers link to the [specification](../specs/limit-stream.md).
"""
_ABOUT_CODES_LIMIT = """\
The codes of an ERROR frame. "Arrives as" is the exception that the application receives; "exit" is the exit code of the
`afflux` command.
"""
_ABOUT_STATES_LIMIT = """\
The engine executes these tables, and the tests cover every cell. VIOLATE sends ERROR[CONNECTION_ERROR], and the
connection ends. Inputs whose names start with APP come from the application; those that start with TO come from the
session type, which decides whose turn it is.
"""
_ABOUT_FRAMES_RSIO = """\
A message is its type followed by its fields, without lengths or tags. A varint has seven bits per byte, the least
significant first; the high bit marks that another byte follows.

Rule numbers link to the [specification](../specs/reactive-streams-io.md).
"""
_ABOUT_ERRORS_RSIO = """\
There are no codes: onError and goodbye carry text, and onError arrives as `ApplicationError`. These extensions of
version 0 are used if both hellos list them:
"""
_ABOUT_STATES_RSIO = """\
The engine executes these tables, and the tests cover every cell. FATAL sends goodbye with a reason and ends all
subscriptions. Inputs whose names start with APP come from the application.
"""

REACTIVESOCKET = Wire(
    "ReactiveSocket of 2015",
    "reactivesocket",
    _ABOUT_FRAMES_2015,
    reactivesocket_frames.FRAMES,
    frame_page,
    _codes_of(reactivesocket_codes, 2, _ABOUT_CODES_2015),
    _ABOUT_STATES_2015,
    (
        (reactivesocket_states.CLIENT, "The side that connected. It sends SETUP, and may send requests immediately."),
        (reactivesocket_states.SERVER, "The side that was connected to. In DECIDING its application may refuse."),
        (reactivesocket_states.REQUESTER, "The side that opened the stream."),
        (reactivesocket_states.RESPONDER, "The side that answers. Its end ends both directions of a channel."),
        (reactivesocket_states.HALF_REQUESTER, "The same in the dialect `half-close`: each direction ends alone."),
        (reactivesocket_states.HALF_RESPONDER, "The responder in the dialect `half-close`."),
    ),
    _RSOCKET_KINDS,
)
DRAFT = Wire(
    "RSocket, the extensible draft",
    "rsocket_draft",
    _ABOUT_FRAMES_DRAFT,
    {kind.TYPE: kind for kind in (*draft_frames.FRAMES.values(), draft_frames.ExtChain) if "__source__" in vars(kind)},
    frame_page,
    _ABOUT_CODES_DRAFT,
    _ABOUT_STATES_DRAFT,
    (
        (draft_states.CLIENT, "The side that connected. In AWAIT_OK it waits for SETUP_OK."),
        (draft_states.SERVER, "The side that was connected to. In DECIDING and RESUMING its application may refuse."),
    ),
    _RSOCKET_KINDS,
)
JMUX = Wire(
    "Jmux",
    "jmux",
    _ABOUT_FRAMES_JMUX,
    jmux_frames.FRAMES,
    frame_page,
    _errors_of(jmux_errors, _ABOUT_ERRORS_JMUX),
    _ABOUT_STATES_JMUX,
    (
        (jmux_states.CLIENT, "The side that connected. It sends its header, and waits for the other's."),
        (jmux_states.SERVER, "The side that was connected to."),
        (jmux_states.CLIENT_SESSION, "A session at the client, which opened it."),
        (jmux_states.SERVER_SESSION, "A session at the server. Its record stays until the id is opened again."),
    ),
    (
        jmux_states.ConnectionState,
        jmux_states.ConnectionInput,
        jmux_states.ConnectionAction,
        jmux_states.SessionState,
        jmux_states.SessionInput,
        jmux_states.SessionAction,
    ),
)
LIMIT = Wire(
    "Limit-Stream",
    "limit",
    _ABOUT_FRAMES_LIMIT,
    limit_frames.FRAMES,
    frame_page,
    _codes_of(limit_codes, 3, _ABOUT_CODES_LIMIT),
    _ABOUT_STATES_LIMIT,
    (
        (limit_states.CLIENT, "The side that connected. It opens the sessions."),
        (limit_states.SERVER, "The side that was connected to. In DECIDING its application may refuse the client."),
        (limit_states.SESSION, "A session at one of the sides."),
    ),
    (
        limit_states.ConnectionState,
        limit_states.ConnectionInput,
        limit_states.ConnectionAction,
        limit_states.SessionState,
        limit_states.SessionInput,
        limit_states.SessionAction,
    ),
)
RSIO = Wire(
    "reactive-streams-io",
    "rsio",
    _ABOUT_FRAMES_RSIO,
    rsio_frames.FRAMES,
    _fields_page,
    _extensions(),
    _ABOUT_STATES_RSIO,
    (
        (rsio_states.CLIENT, "The side that connected. It need not wait for the server's hello."),
        (rsio_states.SERVER, "The side that was connected to. In DECIDING its application may refuse the client."),
        (rsio_states.SUBSCRIBER, "A subscription at the side that asked for it."),
        (rsio_states.ANSWERED, "Whose a message is, when an id is used again behind a cancel."),
        (rsio_states.PUBLISHER, "A subscription at the side that publishes."),
    ),
    (
        rsio_states.ConnectionState,
        rsio_states.ConnectionInput,
        rsio_states.ConnectionAction,
        rsio_states.SubscriberState,
        rsio_states.SubscriberInput,
        rsio_states.SubscriberAction,
        rsio_states.AnswerState,
        rsio_states.AnswerInput,
        rsio_states.AnswerAction,
        rsio_states.PublisherState,
        rsio_states.PublisherInput,
        rsio_states.PublisherAction,
    ),
)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    write()
    print(f"written: {', '.join(pages())} in {FOLDER.relative_to(ROOT)}")
