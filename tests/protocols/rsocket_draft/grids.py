"""The connection tables of the draft as grids, written from the specification: every state, every input.

The tables of streams are RSocket's, and so are their grids.
"""

from __future__ import annotations

# S START, s SETUP_SENT, A AWAIT_OK, W WAIT_FIRST, D DECIDING, N RESUMING, O OPEN, d DRAINING,
# P SUSPENDED, R RESUME_SENT, C CLOSED; "." stays.
CONNECTION_LETTERS = {
    "S": "START",
    "s": "SETUP_SENT",
    "A": "AWAIT_OK",
    "W": "WAIT_FIRST",
    "D": "DECIDING",
    "O": "OPEN",
    "d": "DRAINING",
    "N": "RESUMING",
    "P": "SUSPENDED",
    "R": "RESUME_SENT",
    "C": "CLOSED",
}
CLIENT_GRID = """
                   S s A O d P R C
SETUP              . . C . . . . .
RESUME             . . C . . . . .
RESUME_OK          . . C . . . . .
LEASE              . O C . . . . .
KEEPALIVE          . O C . . . . .
METADATA_PUSH      . O C . . . . .
ERROR_SETUP        . C C . . . P .
ERROR_CLOSE        . O C d . . P .
ERROR_OTHER        . C C C C . P .
EXT                . O C . . . . .
REQUEST            . O C . . . . .
STREAM_FRAME       . O C . . . . .
APP_START          s . . . . . . .
APP_ACCEPT         . . . . . . . .
APP_REFUSE         . . . . . . . .
APP_DRAIN          . d . d . . . .
APP_CLOSE          . C C C C C C .
LAST_STREAM_ENDED  . . . . C . . .
SILENT             . C C C C . P .
LOST               . C C C C . P .
ERROR_RESUME       . C C . . . C .
SUSPEND            . . . P P . P .
APP_RESUME         . . . . . R . .
APP_HAND_OVER      . . . . . . . .
SESSION_OVER       . . . . . C C .
ERROR_UNHEARD      . . . . . . . .
APP_ANEW           . . . . . . . .
APP_AWAIT          . A . . . . . .
SETUP_OK           . O O . . . O .
ENTRIES            . O C . . . . .
"""
SERVER_GRID = """
                   W D N O d P C
SETUP              D . . . . . .
RESUME             N . . . . . .
RESUME_OK          C . . . . . .
LEASE              C . . . . . .
KEEPALIVE          C . . . . . .
METADATA_PUSH      C . . . . . .
ERROR_SETUP        C . . . . . .
ERROR_CLOSE        C . . d . . .
ERROR_OTHER        C . . C C . .
EXT                C . . . . . .
REQUEST            C . . . . . .
STREAM_FRAME       C . . . . . .
APP_START          . . . . . . .
APP_ACCEPT         . O . . . . .
APP_REFUSE         . C C . . . .
APP_DRAIN          C C C d . . .
APP_CLOSE          C C C C C C .
LAST_STREAM_ENDED  . . . . C . .
SILENT             C C C C C . .
LOST               C C C C C . .
ERROR_RESUME       C . . . . . .
SUSPEND            . . . P P . .
APP_RESUME         . . . . . O .
APP_HAND_OVER      . . C . . . .
SESSION_OVER       . . . . . C .
ERROR_UNHEARD      . . . . . . .
APP_ANEW           . . . . . . .
APP_AWAIT          . . . . . . .
SETUP_OK           C . . . . . .
ENTRIES            C . . . . . .
"""
