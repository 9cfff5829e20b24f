"""Judge frames for streams that are over: which are a legal race, and what the others cost.

Theory of operation. Three endings leave different frames under way:

1. This side gave the stream up: whatever the peer had already sent, within its credit, is no fault (SI-07). Credit
   counts items, so all fragments of one count as its last; in all there may be as many more as one payload may have.
2. The peer ended it, or both halves are complete: credit and a cancel may cross the end, items and errors may not
   (SI-10). Late credit is free here because ``credit_frames`` bounds all credit there is (FC-08). One error may:
   the responder of a channel has completed its half, and fails before it hears that the requester has too.
3. A request was answered. Only a cancel may cross the answer. Answers are most of all endings, so they are counted
   and not remembered.
4. This side refused a payload before its last fragment. The rest of it is dropped until the last fragment, CANCEL or
   ERROR, however many fragments that takes (FG-01).

Ids are remembered in tables of ``limits.tombstones``, oldest out: there is no state for each id that ever was. What
forgotten ids had to spare is counted in one number, which has a bound too, so whoever gives up ten thousand streams at
once still gets what was under way for them. All is forgotten when no stream has ended for a connection's lifetime:
nothing is under way for so long. Full tables take 200 KiB, which is much for a connection that is idle.
"""

from __future__ import annotations

from typing import Any

from afflux.core.ids import Tombstones
from afflux.core.limits import Limits

__all__ = ["LateFrame", "LateFrames"]

LateFrame = str
"The name of a frame, such as REQUEST_N."

_LATE_CANCELS = 16
"Cancels that may cross the end of one stream; one is enough, more harm nobody."

_LATE = 2
"Frames that cross the end of a stream that the peer has ended: credit, and a cancel."


class LateFrames:
    """The endings of one connection's streams."""

    __slots__ = (
        "_answers",
        "_ended",
        "_forgotten",
        "_fresh",
        "_given_up",
        "_most_answers",
        "_most_forgotten",
        "_most_parts",
        "_parts",
        "_since",
        "_tails",
    )

    def __init__(self, limits: Limits) -> None:
        self._given_up = Tombstones(limits.tombstones)
        self._ended = Tombstones(limits.tombstones)
        self._tails = Tombstones(limits.tombstones)
        "Streams with a refused payload whose last fragment has not come."
        self._answers = 0
        self._most_answers = limits.tombstones
        self._parts = 0
        "Fragments, other than last ones, that may be under way on streams that this side gave up."
        self._most_parts = limits.fragments
        self._forgotten = 0
        "Frames that may be under way for streams that are no longer remembered."
        self._most_forgotten = limits.tombstones * limits.cancel_race_frames
        self._fresh = False
        "A stream has ended since the last look."
        self._since = 0.0
        "When that was seen last, in the caller's seconds."

    def given_up(self, id: int, free: int) -> None:
        """This side ended the stream: ``free`` frames may be under way."""
        self._spare(self._given_up.add(id, free))
        self._fresh = True

    def cut_off(self, id: int) -> None:
        """This side refused a payload whose last fragment is still to come."""
        self._tails.add(id)
        self._fresh = True

    def swallow(self, id: int, last: bool) -> bool:
        """Whether a fragment belongs to a payload that was cut off. ``last`` ends it."""
        if id not in self._tails:
            return False
        if last:
            self._tails.discard(id)
        return True

    def expect_parts(self) -> None:
        """This side gives up a stream, or its inbound half."""
        self._parts = self._most_parts

    def take_part(self) -> bool:
        """A fragment, other than a last one, came for what was given up: whether it is free."""
        free = self._parts > 0
        self._parts -= free
        return free

    def ended(self, id: int, may_fail: bool) -> None:
        """The stream ended in order, or by the peer's wish; ``may_fail``: an error may have crossed its end."""
        self._spare(min(self._ended.add(id, _LATE_CANCELS + may_fail), _LATE))
        self._fresh = True

    def _spare(self, free: int) -> None:
        self._forgotten = min(self._forgotten + free, self._most_forgotten)

    def answered(self, requests: int = 1) -> None:
        """This side answered so many requests."""
        self._answers = min(self._answers + requests, self._most_answers)

    def forget(self, id: int) -> None:
        """The id is used again."""
        self._given_up.discard(id)
        self._ended.discard(id)
        self._tails.discard(id)

    def knows(self, id: int) -> bool:
        """Whether a stream of this id has ended a moment ago, in another way than by an answer."""
        return id in self._given_up or id in self._ended

    def forget_ended(self, now: float, idle_s: float) -> None:
        """Forget all endings when no stream has ended for ``idle_s`` seconds. Called from time to time."""
        if self._fresh:
            self._fresh, self._since = False, now
        elif now - self._since >= idle_s:
            self._given_up.clear()
            self._ended.clear()
            self._tails.clear()
            self._forgotten = 0

    def state(self) -> list[Any]:
        """What ``restore`` takes."""
        return [self._given_up.state(), self._ended.state(), self._answers, self._forgotten, self._tails.state()]

    def restore(self, state: list[Any]) -> None:
        """Go on from a state."""
        self._given_up.restore(state[0])
        self._ended.restore(state[1])
        self._answers = min(state[2], self._most_answers)
        self._parts = self._most_parts
        self._forgotten = min(state[3], self._most_forgotten)
        self._tails.restore(state[4] if len(state) > 4 else [])

    def price(self, id: int, frame: LateFrame, part: bool = False) -> int:
        """What a frame for a stream that is not live costs in glitch tokens; 0 for a legal race. ``part``: it is a
        fragment that others follow."""
        if frame == "REQUEST_N" and self.knows(id):
            return 0
        if (part and id in self._given_up and self.take_part()) or self._given_up.spend(id):
            return 0
        if id in self._ended:
            if frame != "CANCEL" and not (frame == "ERROR" and self._ended.free(id) > _LATE_CANCELS):
                return 10
            if self._ended.spend(id):
                return 0
        elif self._forgotten:
            if not (part and self.take_part()):
                self._forgotten -= 1
            return 0
        if frame == "CANCEL" and self._answers:
            self._answers -= 1
            return 0
        return 1
