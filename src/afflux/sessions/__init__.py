"""Describe conversations by session types, check them and run them. See docs/how-to/session-types.md.

``load`` reads a file of the language (the extra ``sessions``), ``SessionType`` has the machines of both sides,
``Monitor`` runs a machine, ``Chan`` and ``BlockingChan`` are endpoints with static types. Frames and connections do
not belong here.
"""

from afflux.sessions.blocking import Chan as BlockingChan
from afflux.sessions.chan import (
    Chan,
    Choose,
    End,
    Offer,
    Recv,
    RecvLoop,
    Send,
    SendLoop,
    SessionType,
    Steps,
    session_type,
)
from afflux.sessions.checking import check
from afflux.sessions.compiling import SessionTypes, compile_file, load, loads
from afflux.sessions.duality import dual
from afflux.sessions.errors import Problem, SessionSyntaxError, SessionTypeError, SessionViolation
from afflux.sessions.formatting import format_file
from afflux.sessions.machine import Kind, Machine, State
from afflux.sessions.monitor import Monitor, Received
from afflux.sessions.notation import Monitored, Notation
from afflux.sessions.parsing import parse
from afflux.sessions.relations import is_equal, is_subtype, why_not

__all__ = [
    "BlockingChan",
    "Chan",
    "Choose",
    "End",
    "Kind",
    "Machine",
    "Monitor",
    "Monitored",
    "Notation",
    "Offer",
    "Problem",
    "Received",
    "Recv",
    "RecvLoop",
    "Send",
    "SendLoop",
    "SessionSyntaxError",
    "SessionType",
    "SessionTypeError",
    "SessionTypes",
    "SessionViolation",
    "State",
    "Steps",
    "check",
    "compile_file",
    "dual",
    "format_file",
    "is_equal",
    "is_subtype",
    "load",
    "loads",
    "parse",
    "session_type",
    "why_not",
]
