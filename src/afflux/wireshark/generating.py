"""Write the dissector: the declarations of all frames as tables in Lua, and the code that reads them (runtime.lua).

What is not in a declaration, such as the rule that an unknown type breaks, is asked of the protocol's own decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, Final

from afflux.core.fields import Fixed, Flag, Flagged, Kind, Rest, Sized, TypeWord, UInt, Varying
from afflux.core.frame import Field, Frame
from afflux.core.limits import REASONS, Limits
from afflux.protocols.jmux import frames as jmux
from afflux.protocols.jmux.states import inputs_from
from afflux.protocols.registry import PROTOCOLS, frames_of
from afflux.protocols.rsio import frames as rsio
from afflux.protocols.rsio import kinds
from afflux.protocols.rsocket.frames import FLAG_METADATA
from afflux.protocols.rsocket.metadata.mime import mime_name
from afflux.protocols.rsocket_draft import frames as draft
from afflux.protocols.rsocket_draft.entries import MOST_ENTRIES, NAMES, OWN_SIZE, Ending, Entry, Point
from afflux.protocols.rsocket_draft.fields import Chain, Mime
from afflux.wireshark.lua import lua

__all__ = ["PREFIXED", "script"]

_COLUMNS: Final[Mapping[str, tuple[str, str]]] = {
    "dir": ("string", "> from the client, < from the server"),
    "type": ("string", "The name of the frame"),
    "flags": ("string", "The letters of the flags that are set"),
    "length": ("uint64", "Bytes of the frame, without its length"),
    "stream": ("uint64", "The stream; 0 is the connection"),
    "n": ("uint64", "Items granted"),
    "code": ("uint64", "The error code"),
    "metadata": ("bytes", "The metadata"),
    "metadata_len": ("uint64", "Bytes of metadata"),
    "data": ("bytes", "The data"),
    "data_len": ("uint64", "Bytes of data"),
    "error.rule": ("string", "The rule that the frame breaks"),
    "error.reason": ("string", "Why the bytes are not a frame"),
}
"The fields of every protocol: their types in Wireshark, and their descriptions."
PREFIXED: Final = ("rsocket", "rsocket-draft", "reactivesocket", "limit")
"The protocols whose frames have a length."
_UNKNOWN: Final = {"rsocket": 0x30, "rsocket-draft": 0x30, "limit": 0x30, "reactivesocket": 0x0300}
"A type that no frame has."


def script(version: str) -> str:
    """Return the dissector as the text of a Lua script.

    Args:
        version: the version of afflux, for the head of the script.
    """
    head = (
        f"-- Wireshark dissector of reactive streams, written by afflux {version} (afflux wireshark).\n"
        "-- Copy it into the folder of personal Lua plugins, or start: wireshark -X lua_script:afflux.lua\n\n"
    )
    tables = {name: _protocol(name) for name in sorted(PROTOCOLS) if name in (*PREFIXED, "jmux", "rsio")}
    runtime = files("afflux.wireshark").joinpath("runtime.lua").read_text(encoding="utf-8")
    return f"{head}local PROTOCOLS = {lua(tables)}\n\n{runtime}"


def _protocol(name: str) -> dict[str, Any]:
    declared: dict[str, dict[str, str]] = {key: {"type": kind, "doc": doc} for key, (kind, doc) in _COLUMNS.items()}
    for frame in frames_of(name):
        for field in frame.FIELDS:
            declared.setdefault(_key(field), {"type": _type(field.kind), "doc": ""})
    entry = PROTOCOLS[name]
    made: dict[str, Any] = {"title": name, "declared": declared, "subprotocol": entry.subprotocol}
    made["codes"] = dict(entry.meanings.codes) if entry.meanings is not None else {}
    if name in PREFIXED:
        return made | _prefixed(name)
    return made | (_jmux(declared) if name == "jmux" else _rsio())


def _key(field: Field) -> str:
    """Return the field of Wireshark that shows a declared field."""
    return field.kind.column or field.name


def _type(kind: Kind) -> str:
    if isinstance(kind, Chain):
        return "string"  # the names of the extensions
    if kind.python in ("int", "tuple[int, ...]"):
        return "uint64"
    return "string" if kind.python == "str" or kind.secret else "bytes"


# -- frames -------------------------------------------------------------------------------------------------------


def _frame(frame: type[Frame]) -> dict[str, Any]:
    flags = [{"letter": flag.letter, "bit": flag.bit} for flag, _ in frame.FLAGS]
    return {"name": frame.NAME, "flags": flags, "runs": _runs(frame)}


def _runs(frame: type[Frame]) -> list[dict[str, Any]]:
    """Return the fields in wire order; adjacent ones of fixed size are read together, as the codec reads them."""
    runs: list[dict[str, Any]] = []
    for field in frame.LAYOUT:
        if isinstance(field.kind, Fixed):
            if not runs or runs[-1]["read"] != "fixed":
                runs.append({"read": "fixed", "size": 0, "fields": []})
            run = runs[-1]
            if isinstance(field.kind, UInt):
                run["fields"].append(_number(field, field.kind, run["size"]))
            run["size"] += field.kind.size
            run["last"] = field.name
        elif not isinstance(field.kind, Flag):
            runs.append({"name": field.name, "key": _key(field), "column": field.kind.column, **_varying(field.kind)})
    return runs


def _number(field: Field, kind: UInt, at: int) -> dict[str, Any]:
    made: dict[str, Any] = {"key": _key(field), "at": at, "size": kind.size, "bits": kind.bits}
    if kind.at_most == 0:
        made["zero"] = kind.rule
    return made


def _varying(kind: Kind) -> dict[str, Any]:
    """Return how a field is read.

    Raises:
        TypeError: the kind is unknown.
    """
    limits = Limits.trusted()
    match kind:
        case Sized():
            same = {"bits": kind.bits, "text": kind.text, "inclusive": kind.inclusive, "secret": kind.secret}
            return {"read": "sized", "flag": kind.flag and kind.flag.bit, **same}
        case Rest():
            return {"read": "rest"}
        case Flagged() | Chain():
            return {"read": type(kind).__name__.lower(), "flag": kind.flag.bit}
        case Mime():
            return {"read": "mime", "flag": kind.flag and kind.flag.bit}
        case kinds.Text():  # Rule numbers are rsio's.
            bound = getattr(limits, kind.bound)
            return {"read": "text", "most": bound + 1 if kind.exact else bound[1], "exact": kind.exact and "R-6"}
        case kinds.WireKind():
            return {"read": type(kind).__name__.lower()}
    raise TypeError(f"no reader for {kind!r}")


# -- protocols ------------------------------------------------------------------------------------------------------


def _prefixed(name: str) -> dict[str, Any]:
    declared = frames_of(name)
    record = _record_of(name)
    prefix, word = declared[0].PREFIX, declared[0].WORD
    at = {field.name: offset for field, offset in _offsets(declared[0])}
    stream = next(field.kind for field in declared[0].FIELDS if field.name == "stream")
    frames: dict[int, dict[str, Any]] = {}
    for frame in declared:
        made = _frame(frame) | {"point": int(getattr(frame, "POINT", Point.STREAM))}
        if frame is draft.ExtChain:
            made |= _chain_only()
            frames.setdefault(frame.TYPE, {})["variant"] = made
            continue
        variant = frames.get(frame.TYPE, {}).get("variant")
        frames[frame.TYPE] = made | _closed(frame, record) | ({"variant": variant} if variant else {})
    unknown = (_UNKNOWN[name] << word.shift).to_bytes(word.size, "big").rjust(at["type"] + word.size, b"\0")
    made = {
        "prefix": {"width": prefix.width, "own": prefix.own, "mask": prefix.reserved or None},
        "word": {"at": at["type"], "size": word.size, "shift": word.shift, "digits": 4 if word.size == 4 else 2},
        "stream": {"at": at["stream"], "bits": getattr(stream, "bits", 32)},
        "header": _header(record),
        "first": {frame.NAME: frame.TYPE for frame in declared if frame.NAME in ("SETUP", "RESUME")},
        "frames": frames,
        "rules": {
            "size": _size_rule(name),
            "short": record(b"")["error"]["rule"],
            "unknown": record(unknown.ljust(8, b"\0"))["error"]["rule"],
            "malformed": declared[0].malformed("", bytes(16), 0, 16).rule,
        },
    }
    return made | ({"chain": _chain()} if name == "rsocket-draft" else {})


Record = Callable[[bytes], dict[str, Any]]


def _record_of(name: str) -> Record:
    """Return the function that makes the record of a frame without a length."""
    make = PROTOCOLS[name].dissector
    if make is None:
        raise TypeError(f"{name} has no dissector")
    return lambda data: make(True, "none").bare(data)


def _offsets(frame: type[Frame]) -> list[tuple[Field, int]]:
    """Return the fields of the header with their offsets; the type word is called ``type``."""
    found, at = [], 0
    for field in frame.LAYOUT:
        if not isinstance(field.kind, Fixed):
            if isinstance(field.kind, Varying):
                break
            continue
        name = "type" if isinstance(field.kind, TypeWord) else field.name
        found.append((Field(name, field.kind, None), at))
        at += field.kind.size
    return found


def _header(record: Record) -> int:
    """Return the bytes of the shortest frame that has a type."""
    return next(size for size in range(64) if record(bytes(size))["type"] is not None)


def _size_rule(name: str) -> str:
    """Return the rule of a frame's length: that of a frame which is cut off."""
    make = PROTOCOLS[name].dissector
    if make is None:
        raise TypeError(f"{name} has no dissector")
    side = make(True, "none")
    side.feed(b"\0")
    return str(side.end()[0]["error"]["rule"])


def _closed(frame: type[Frame], record: Record) -> dict[str, Any]:
    """Return the rule that bytes after the last field break, if there is one."""
    if frame.OPEN_ENDED or any(isinstance(field.kind, Varying) for field in frame.LAYOUT):
        return {}
    whole = frame(**{field.name: getattr(field.kind, "at_least", 0) for field in frame.FIELDS})
    error = record(whole.encode() + b"\0")["error"]
    return {} if error is None else {"closed": error["rule"], "follow": error["reason"].replace("1", "%d")}


def _chain_only() -> dict[str, Any]:
    """Return what is particular to EXT with a chain: its flag, and what it must not have."""
    whole = draft.ExtChain(extensions=(Entry("a", ignorable=True),)).encode()
    metadata = FLAG_METADATA
    marked = whole[:4] + (int.from_bytes(whole[4:6], "big") | metadata).to_bytes(2, "big") + whole[6:]
    rest, wrong = draft.record(whole + b"\0")["error"], draft.record(marked)["error"]
    return {
        "flag": draft.FLAG_CHAIN,
        "closed": rest["rule"],
        "follow": rest["reason"].replace("1", "%d"),
        "forbidden": {"flag": metadata, **wrong},
    }


def _chain() -> dict[str, Any]:
    """Return what reading chains and MIME types needs. Rule numbers are draft's."""
    words = {Ending.OPEN: "open", Ending.LIST: "list", Ending.TOKEN: "token", Ending.COMPACT: "compact"}
    words[Ending.TOKEN_AND_LIST] = "both"
    sizes = {
        f"{int(point)}:{number}": [words[size] if isinstance(size, Ending) else size for size in both]
        for (point, number), both in OWN_SIZE.items()
    }
    unsupported = draft.Setup.not_understood("", bytes(16), 0, 16).rule
    return {
        "names": dict(enumerate(NAMES)),
        "numbers": {name: number for number, name in enumerate(NAMES)},
        "mimes": {number: mime_name(number) for number in range(0x80)},
        "most": MOST_ENTRIES,
        "sizes": sizes,
        "rules": {"unsupported": unsupported, "open": "R-14"},
    }


def _jmux(declared: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return what reading Jmux needs. Rule numbers are Jmux's."""
    declared["ration"] = {"type": "uint64", "doc": "Bytes that are granted"}
    frames: dict[int, dict[str, Any]] = {}
    meanings: dict[str, dict[int, tuple[str, str]]] = {"client": {}, "server": {}}
    for first in range(256):
        kind = jmux.kind_of(first)
        if kind is not None:
            sized = any(isinstance(field.kind, Sized) for field in kind.FIELDS)
            frames[first] = _frame(kind) | {"sized": sized, "shifts": kind is jmux.IncrementRation}
        for side in meanings:
            meaning = inputs_from(side == "client")[first]
            if isinstance(meaning, tuple):
                meanings[side][first] = meaning
    return {
        "frames": frames,
        "magic": jmux.MAGIC.decode("ascii"),
        "step": jmux.STEPS_256,
        "connection": {"client": _connection_header(True), "server": _connection_header(False)},
        "meanings": meanings,
        "rules": {"unknown": "R-9", "malformed": "truncated", "header": "R-3"},
    }


def _connection_header(client: bool) -> dict[str, Any]:
    """Return the header of a side, and which versions and reserved bytes it may have together."""
    kind = jmux.ClientConnectionHeader if client else jmux.ServerConnectionHeader
    pairs = ((version, reserved) for version in range(256) for reserved in range(256))
    right = {
        version * 256 + reserved: True
        for version, reserved in pairs
        if not jmux.wrong_header(jmux.MAGIC + bytes((version, 0, 0, reserved)), client)
    }
    return {"frame": _frame(kind), "size": jmux.HEADER_BYTES, "right": right}


def _rsio() -> dict[str, Any]:
    """Return what reading reactive-streams-io needs. Rule numbers are rsio's."""
    limits = Limits.trusted()
    frames = {
        code: _frame(kind) | {"sets": kind is rsio.Subscribed, "forgets": kind in (rsio.OnComplete, rsio.OnError)}
        for code, kind in rsio.FRAMES.items()
    }
    return {
        "frames": frames,
        "most": limits.payload_bytes,
        "ids": limits.extension_ids,
        "varint": REASONS["varint_bytes"],
        "too_large": REASONS["payload_bytes"],
        "too_many": REASONS["extension_ids"],
        "rules": {"unknown": "R-17", "varint": "R-4", "length": "R-7", "elements": "R-39", "malformed": "R-7"},
    }
