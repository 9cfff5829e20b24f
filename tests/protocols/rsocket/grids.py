"""The tables of RSocket as grids, written from the specification by hand: every state, every input."""

from __future__ import annotations

# One line an input, one letter a state: the next state, "." where the cell is ignored or does nothing.
# I IDLE, O OPEN, u OUT_DONE, n IN_DONE, C CLOSED.
STREAM_LETTERS = {"I": "IDLE", "O": "OPEN", "u": "OUT_DONE", "n": "IN_DONE", "C": "CLOSED"}
REQUESTER_GRID = """
                I O u n C
ITEM            . O u . .
ITEM_LAST       . n C . .
COMPLETE        . n C . .
EMPTY           . . . . .
ITEM_EXCESS     . C C . .
REQUEST         . . . . .
REQUEST_N       . O . n .
REQUEST_N_ZERO  . C . C .
CANCEL          . u . C .
ERROR           . C C C .
TOO_BIG         . C C C .
MALFORMED       . C C C .
APP_OPEN        O . . . .
APP_OPEN_LAST   u . . . .
APP_ITEM        . O . n .
APP_COMPLETE    . u . C .
APP_FAIL        . C C C .
APP_CANCEL      . C C C .
"""
RESPONDER_GRID = """
                I O u n C
ITEM            . O u . .
ITEM_LAST       . n C . .
COMPLETE        . n C . .
EMPTY           . . . . .
ITEM_EXCESS     . C C . .
REQUEST         . . . . .
REQUEST_N       . O . n .
REQUEST_N_ZERO  . C . C .
CANCEL          . C C C .
ERROR           . C C C .
TOO_BIG         . C C C .
MALFORMED       . C C C .
APP_OPEN        O . . . .
APP_OPEN_LAST   n . . . .
APP_ITEM        . O . n .
APP_COMPLETE    . u . C .
APP_FAIL        . C C C .
APP_CANCEL      . n C . .
"""
# S START, s SETUP_SENT, W WAIT_FIRST, D DECIDING, N RESUMING (a newcomer), O OPEN, d DRAINING, P SUSPENDED (paused),
# R RESUME_SENT, C CLOSED. A transport that is lost is LOST without resumption and SUSPEND with it. Beyond section 3:
# SETUP_SENT and DRAINING survive it too, and RESUMING stands between WAIT_FIRST and the session's own transport.
CONNECTION_LETTERS = {
    "S": "START",
    "s": "SETUP_SENT",
    "W": "WAIT_FIRST",
    "D": "DECIDING",
    "N": "RESUMING",
    "O": "OPEN",
    "d": "DRAINING",
    "P": "SUSPENDED",
    "R": "RESUME_SENT",
    "C": "CLOSED",
}
CLIENT_GRID = """
                   S s O d P R C
SETUP              . . . . . P .
RESUME             . . . . . P .
RESUME_OK          . . . . . O .
LEASE              . O . . . P .
KEEPALIVE          . O O d . P .
METADATA_PUSH      . O O d . P .
ERROR_SETUP        . C . . . P .
ERROR_CLOSE        . O d . . P .
ERROR_OTHER        . C C C . P .
EXT                . O O d . P .
REQUEST            . O O d . P .
STREAM_FRAME       . O O d . P .
APP_START          s . . . . . .
APP_ACCEPT         . . . . . . .
APP_REFUSE         . . . . . . .
APP_DRAIN          . d d . . . .
APP_CLOSE          . C C C C C .
LAST_STREAM_ENDED  . . . C . . .
SILENT             . C C C . P .
LOST               . C C C . P .
ERROR_RESUME       . C . . . C .
SUSPEND            . P P P . P .
APP_RESUME         . . . . R . .
APP_HAND_OVER      . . . . . . .
SESSION_OVER       . . . . C C .
ERROR_UNHEARD      . . . . . P .
APP_ANEW           . . . . s . .
APP_AWAIT          . . . . . . .
SETUP_OK           . . . . . . .
ENTRIES            . . . . . . .
"""
SERVER_GRID = """
                   W D N O d P C
SETUP              D . . . . . .
RESUME             N . . C . . .
RESUME_OK          C . . . . . .
LEASE              C . . . . . .
KEEPALIVE          C . . O d . .
METADATA_PUSH      C . . O d . .
ERROR_SETUP        C . . . . . .
ERROR_CLOSE        C . . d . . .
ERROR_OTHER        C . . C C . .
EXT                C . . O d . .
REQUEST            C . . O d . .
STREAM_FRAME       C . . O d . .
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
SETUP_OK           . . . . . . .
ENTRIES            . . . . . . .
"""
