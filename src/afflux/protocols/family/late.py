"""Price frames for streams that have ended: legal races are free, other frames cost glitch tokens.

Theory of operation. Each kind of ending leaves different frames in flight:

1. This side ended the stream early: whatever the peer had already sent, within its credit, is legal (SI-07). Credit
   counts items, so all fragments of one count as its last; their total is bounded by the fragments of one payload.
2. The peer ended it, or both halves are complete: credit and a cancel may cross the end, items and errors may not
   (SI-10). Late credit is free here because ``credit_frames`` bounds all credit (FC-08). One error may cross: the
   responder of a channel completes its half, and fails before it receives the requester's completion.
3. A request was answered. Only a cancel may cross the answer. Answers are the most frequent endings, so they are
   counted and not remembered.
4. This side refused a payload before its last fragment. The rest of it is dropped until the last fragment, CANCEL or
   ERROR, however many fragments that takes (FG-01).

Ids are stored in tables of ``limits.tombstones`` entries that drop the oldest: memory does not grow with the number of
ids used. The allowances of dropped ids are added up in one number, which is bounded too, so an application that cancels
ten thousand streams in a row still gets their frames in flight for free. All endings are forgotten when no stream has
ended for a connection's lifetime: no frame is in flight that long. Full tables take 200 KiB, which is much for an idle
connection.
"""

from __future__ import annotations

from typing import Any

from afflux.core.ids import Tombstones
from afflux.core.limits import Limits

__all__ = ["LateFrame", "LateFrames"]

LateFrame = str
"The name of a frame, such as REQUEST_N."

_LATE_CANCELS = 16
"Cancels that may cross the end of one stream. One is enough; more are harmless."

_LATE = 2
"Frames that may cross the end of a stream that the peer has ended: credit, and a cancel."


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
        "Streams with a refused payload whose last fragment has not arrived."
        self._answers = 0
        self._most_answers = limits.tombstones
        self._parts = 0
        "Non-last fragments that may be in flight on streams that this side canceled."
        self._most_parts = limits.fragments
        self._forgotten = 0
        "Frames that may be in flight for streams whose ids were dropped."
        self._most_forgotten = limits.tombstones * limits.cancel_race_frames
        self._fresh = False
        "A stream has ended since the last ``forget_ended``."
        self._since = 0.0
        "When ``forget_ended`` last found that, in the caller's seconds."

    def given_up(self, id: int, free: int) -> None:
        """Record that this side ended the stream: ``free`` frames may be in flight."""
        self._spare(self._given_up.add(id, free))
        self._fresh = True

    def cut_off(self, id: int) -> None:
        """Record that this side refused a payload whose last fragment has not arrived."""
        self._tails.add(id)
        self._fresh = True

    def swallow(self, id: int, last: bool) -> bool:
        """Whether a fragment belongs to a refused payload, whose record ``last`` deletes."""
        if id not in self._tails:
            return False
        if last:
            self._tails.discard(id)
        return True

    def expect_parts(self) -> None:
        """Record that this side ends a stream, or its inbound half."""
        self._parts = self._most_parts

    def take_part(self) -> bool:
        """Whether a non-last fragment for a canceled stream is free."""
        free = self._parts > 0
        self._parts -= free
        return free

    def ended(self, id: int, may_fail: bool) -> None:
        """Record that the stream completed, or that the peer ended it; ``may_fail``: an error may have crossed its
        end."""
        self._spare(min(self._ended.add(id, _LATE_CANCELS + may_fail), _LATE))
        self._fresh = True

    def _spare(self, free: int) -> None:
        self._forgotten = min(self._forgotten + free, self._most_forgotten)

    def answered(self, requests: int = 1) -> None:
        """Count answers of this side."""
        self._answers += requests
        if self._answers > self._most_answers:
            self._answers = self._most_answers

    def forget(self, id: int) -> None:
        """Delete the records of an id that is used again."""
        self._given_up.discard(id)
        self._ended.discard(id)
        self._tails.discard(id)

    def remembers(self, id: int) -> bool:
        """Whether a stream of this id has ended recently, other than by an answer."""
        return id in self._given_up or id in self._ended

    def forget_ended(self, now: float, idle_s: float) -> None:
        """Forget all endings when no stream has ended for ``idle_s`` seconds. Called periodically."""
        if self._fresh:
            self._fresh, self._since = False, now
        elif now - self._since >= idle_s:
            self._given_up.clear()
            self._ended.clear()
            self._tails.clear()
            self._forgotten = 0

    def state(self) -> list[Any]:
        """The state that ``restore`` reads."""
        return [self._given_up.state(), self._ended.state(), self._answers, self._forgotten, self._tails.state()]

    def restore(self, state: list[Any]) -> None:
        """Continue from a state."""
        self._given_up.restore(state[0])
        self._ended.restore(state[1])
        self._answers = min(state[2], self._most_answers)
        self._parts = self._most_parts
        self._forgotten = min(state[3], self._most_forgotten)
        self._tails.restore(state[4] if len(state) > 4 else [])

    def price(self, id: int, frame: LateFrame, part: bool = False) -> int:
        """Return the glitch tokens that a frame for a stream that is not live costs; 0 for a legal race. ``part``: it
        is a fragment that others follow."""
        if frame == "REQUEST_N" and self.remembers(id):
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
