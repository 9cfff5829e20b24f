"""Define what a protocol declares about the meaning of its frames, for an observer who only sees them pass.

Each protocol's package has one table in its ``meanings.py``: for each frame, its letter in a stream's history and what
it does. The observer (capture/ledger.py) counts items and credit with it, and finds frames that were not allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any, Final

__all__ = ["Act", "Broken", "Meaning", "Meanings", "Rule", "StreamKind"]


class StreamKind(IntEnum):
    """The kind of a stream, which is the verb that opens it."""

    REQUEST = 0
    "One item is returned, which needs no credit."
    FIRE = 1
    "Nothing is returned."
    STREAM = 2
    "Items are returned."
    CHANNEL = 3
    "Items in both directions, with credit for each."
    PUSH = 4
    "A message to the other side, which is no stream."
    SESSION = 5
    "Messages in both directions."
    SUBSCRIPTION = 6
    "Items are returned."
    UNKNOWN = 7
    "The capture does not have its first frame."


class Act(IntFlag):
    """What a frame does. Each bit is one statement about the frame."""

    NOTHING = 0
    OPEN = 1
    "Opens a stream; its sender is the requester. On an open stream of the same sender it is an item."
    ITEM = 2
    "Carries an item, or a part of one; with FIRST, only if it has data."
    BARE = 4
    "With COMPLETE, it carries an item only if it has data or metadata, except in the answer to a request."
    FOLLOWS = 8
    "What it carries continues in the sender's next frame of the stream."
    GRANT = 16
    "Grants credit to the receiver."
    COMPLETE = 32
    "The sender's direction has ended."
    ERROR = 64
    "The stream has failed."
    CANCEL = 128
    "The sender wants no more."
    LEASE = 256
    "Permits requests for some time."
    LEASES = 512
    "Requests need a lease on this connection, in both directions."
    FIRST = 1024
    "May be the first frame of its sender."
    LATER = 2048
    "Continues a former connection: its streams were opened there."
    CLIENT = 4096
    "Only the client sends it."
    SERVER = 8192
    "Only the server sends it."
    CONNECTION = 16384
    "Is about the connection: it has no stream."
    ASKER = 32768
    "Only the requester of a stream sends it; where each side has its own ids, this says whose id it is."
    ANSWERER = 65536
    "Only the responder of a stream sends it."
    ZERO = 131072
    "May grant 0."
    RATION = 262144
    "Sets what its receiver may send on each new stream."
    ACCEPT = 524288
    "Confirms that a stream was opened: what came before belongs to the former stream of the id."
    ABORT = 1048576
    "With CANCEL: the sender has ended the stream, whichever side it is."
    PART = 2097152
    "Continues what its sender has begun with FOLLOWS, even without ITEM."
    LEAVE = 4194304
    "Announces the end of the connection."


class Broken(IntEnum):
    """What an observer can prove to be wrong with a frame that can be read."""

    CREDIT = 0
    "An item without credit."
    UNKNOWN = 1
    "A frame on a stream that never began."
    ENDED = 2
    "A frame on a stream that its sender had ended."
    DONE = 3
    "An item after the end of its sender's direction."
    ZERO = 4
    "A grant of 0."
    PARITY = 5
    "A stream id of the other side."
    REUSED = 6
    "A stream id that was used before."
    LIVE = 7
    "A stream id that is in use."
    FIRST = 8
    "The first frame is another than the protocol's."
    SETUP = 9
    "A second first frame."
    LEASE = 10
    "A request without a lease, or beyond it."
    SIDE = 11
    "A frame of the other side."
    DIRECTION = 12
    "A frame that this side does not send on a stream of this kind."
    STREAM = 13
    "A frame about the connection on a stream."


Rule = tuple[str, str]
"The number of a rule, and what would have been right."


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of one type of frame."""

    letter: str
    "Its letter in the history of a stream, in lower case; the requester's frames are shown in upper case."
    acts: Act = Act.NOTHING
    "What it does."
    kind: StreamKind = StreamKind.UNKNOWN
    "The kind of the stream that it opens."
    flags: Mapping[str, Act] = field(default_factory=dict)
    "What it does in addition if the flag of this letter is set."
    amount: str = ""
    "The field with what it grants, if that is not the column ``n``."
    count: str = ""
    "The field with the number of its items, if that is not 1."
    time: str = ""
    "The field with the milliseconds for which a lease is good."


@dataclass(frozen=True, slots=True)
class Meanings:
    """The meanings of the frames of one protocol."""

    frames: Mapping[str, Meaning]
    "By the name of the frame."
    rules: Mapping[Broken, Rule]
    "The rule for each case that the protocol forbids; the observer does not look for the others."
    readable: Mapping[str, str] = field(default_factory=dict)
    "What would have been right where a frame cannot be read, by the number of the rule."
    route: Callable[[bytes | None, Mapping[str, Any]], str | None] = lambda *_: None
    "Returns the name that the opening frame asks for, from its metadata and its other fields; None for none."
    routed: bool = False
    "Requests have routes in their metadata, of the type that the setup names."
    odd: bool | None = None
    "Whether the client's stream ids are odd; None if ids do not show the side."
    ordered: bool = False
    "The ids of a side increase, until they begin again."
    own_ids: bool = False
    "Each side's ids are its own: a stream is known by its id and its requester."
    one: bool = False
    "A connection has one stream at a time; the stream id is something else."
    credit: bool = True
    "Items need credit."
    octets: bool = False
    "Credit counts bytes of data, not items."
    free: bool = False
    "The first item of a channel, in the frame that opens it, needs no credit."
    together: bool = False
    "The responder's end is the end of the stream."
    codes: Mapping[int, str] = field(default_factory=dict)
    "The names of error codes."


LATEST: Final = (1 << 31) - 1024
"Ids above this may begin again."
