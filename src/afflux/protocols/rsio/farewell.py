"""Send goodbye, once, and wait for the answer; end the subscriptions of both sides with the connection."""

from __future__ import annotations

from afflux.core.errors import Error
from afflux.core.limits import explained
from afflux.protocols.rsio.codes import cut
from afflux.protocols.rsio.frames import Goodbye, GoodbyeAck
from afflux.protocols.rsio.publications import Publications
from afflux.protocols.rsio.shared import Shared
from afflux.protocols.rsio.subscriptions import Subscriptions

__all__ = ["Farewell"]


class Farewell:
    """End one connection with goodbye (R-42 to R-45)."""

    __slots__ = ("_publications", "_shared", "_subscriptions", "error", "reason", "reply_by")

    def __init__(self, shared: Shared, subscriptions: Subscriptions, publications: Publications) -> None:
        self._shared = shared
        self._subscriptions = subscriptions
        self._publications = publications
        self.error: Error | None = None
        "Error of the final Closed."
        self.reason = ""
        "Reason that this side sends when it has drained."
        self.reply_by = 0.0
        "When the answer to goodbye is overdue."

    def part(self, error: Error) -> None:
        """End the subscriptions of both sides: an error here, a cancel there (R-45). Their queued output is dropped."""
        self._subscriptions.end_all(error)
        self._publications.end_all()
        self._shared.out.clear()

    def say(self, reason: str, error: Error) -> None:
        """Send goodbye as the last message; it ends the subscriptions."""
        self.part(error)
        self._goodbye(reason)

    def await_reply(self, reason: str, error: Error, final: Error | None) -> None:
        """Send goodbye, and wait for the answer; Closed will carry ``final``."""
        self.say(reason, error)
        self.error = final
        self.wait()

    def finish(self) -> None:
        """Queue goodbye after all other output: everything has ended."""
        self._goodbye(self.reason)
        self.wait()

    def wait(self) -> None:
        """Start the timeout of ``goodbye_s`` for the answer."""
        self.reply_by = self._shared.now + self._shared.limits.goodbye_s

    def answer(self, acknowledge: bool) -> None:
        """Answer goodbye (R-42)."""
        reply = GoodbyeAck(message="") if acknowledge else Goodbye(reason="")
        self._shared.out.farewell(reply.encode())

    def _goodbye(self, reason: str) -> None:
        limits = self._shared.limits
        text = cut(explained(limits, reason), limits.error_text_bytes[0])
        self._shared.out.farewell(Goodbye(reason=text).encode())
