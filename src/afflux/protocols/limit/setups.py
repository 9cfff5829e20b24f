"""Decide about SETUP: whether it names a channel, which steps that has, and why it is refused."""

from __future__ import annotations

from typing import cast

from afflux.core.limits import REASONS
from afflux.core.texts import public_text
from afflux.protocols.limit.frames import Setup
from afflux.protocols.limit.sessions import Sessions
from afflux.protocols.limit.shared import Shared
from afflux.protocols.limit.states import ConnectionInput
from afflux.protocols.limit.steps import Steps

__all__ = ["Setups"]

_I = ConnectionInput


class Setups:
    """The SETUPs of one connection."""

    __slots__ = ("_opening", "_sessions", "_shared", "decide", "established", "refusal")

    def __init__(self, shared: Shared, sessions: Sessions, decide: bool) -> None:
        self._shared = shared
        self._sessions = sessions
        self.decide = decide
        "The application decides about the first SETUP."
        self.established = False
        "Established was returned."
        self._opening: tuple[Steps, Setup] | None = None
        "The session of the SETUP that arrived last, until it begins."
        self.refusal = ""
        "Why the SETUP that arrived last is refused."

    def judge(self, setup: Setup) -> ConnectionInput:
        """Classify a SETUP; find its channel."""
        name, most = setup.metadata, self._shared.limits.connection_metadata_bytes
        if setup.stream or not name:
            return _I.SETUP_BAD
        try:
            channel = name.decode()
        except UnicodeDecodeError:
            return _I.SETUP_BAD
        self.refusal, found = "", False
        if len(name) > most:
            self.refusal = REASONS["connection_metadata_bytes"]
        elif len(self._sessions.handlers) >= self._sessions.most_handlers:
            self.refusal = REASONS["streams"]
        else:
            found = self._choose_steps(channel, setup)
        return _I.SETUP if found else _I.SETUP_UNKNOWN

    def _choose_steps(self, channel: str, setup: Setup) -> bool:
        """Find the steps of a channel; return whether it has some."""
        try:
            steps = self._sessions.steps_of(channel)
        except Exception as error:
            self.refusal = public_text(error)
            return False
        if steps is None:
            self.refusal = "unknown channel"
            return False
        self._opening = steps, setup
        return True

    def begin(self) -> None:
        """Begin the session of the SETUP that arrived last."""
        opening, self._opening = cast("tuple[Steps, Setup]", self._opening), None
        self._sessions.begin(*opening)
