"""The tables of ReactiveSocket as grids, compared with the specification by hand: every state, every input.

Inputs that only RSocket has, such as those of resumption, change nothing anywhere.
"""

from __future__ import annotations

# One line an input, one letter a state: the next state, "." where it stays.
CONNECTION_LETTERS = {
    "S": "START",
    "s": "SETUP_SENT",
    "W": "WAIT_FIRST",
    "D": "DECIDING",
    "O": "OPEN",
    "d": "DRAINING",
    "C": "CLOSED",
}
STREAM_LETTERS = {"I": "IDLE", "O": "OPEN", "u": "OUT_DONE", "n": "IN_DONE", "C": "CLOSED"}
CLIENT_GRID = """
                  S s O d C
SETUP             . . . . .
RESUME            . . . . .
RESUME_OK         . . . . .
LEASE             . O . . .
KEEPALIVE         . O . . .
METADATA_PUSH     . O . . .
ERROR_SETUP       . C . . .
ERROR_CLOSE       . . . . .
ERROR_OTHER       . C C C .
EXT               . . . . .
REQUEST           . O . . .
STREAM_FRAME      . O . . .
APP_START         s . . . .
APP_ACCEPT        . . . . .
APP_REFUSE        . . . . .
APP_DRAIN         . d d . .
APP_CLOSE         . C C C .
LAST_STREAM_ENDED . . . C .
SILENT            . C C C .
LOST              . C C C .
ERROR_RESUME      . . . . .
SUSPEND           . . . . .
APP_RESUME        . . . . .
APP_HAND_OVER     . . . . .
SESSION_OVER      . . . . .
ERROR_UNHEARD     . . . . .
APP_ANEW          . . . . .
APP_AWAIT         . . . . .
SETUP_OK          . . . . .
ENTRIES           . . . . .
"""
SERVER_GRID = """
                  W D O d C
SETUP             D . . . .
RESUME            . . . . .
RESUME_OK         . . . . .
LEASE             C . . . .
KEEPALIVE         C . . . .
METADATA_PUSH     C . . . .
ERROR_SETUP       C . . . .
ERROR_CLOSE       . . . . .
ERROR_OTHER       C . C C .
EXT               C . . . .
REQUEST           C . . . .
STREAM_FRAME      C . . . .
APP_START         . . . . .
APP_ACCEPT        . O . . .
APP_REFUSE        . C . . .
APP_DRAIN         C C d . .
APP_CLOSE         C C C C .
LAST_STREAM_ENDED . . . C .
SILENT            C C C C .
LOST              C C C C .
ERROR_RESUME      . . . . .
SUSPEND           . . . . .
APP_RESUME        . . . . .
APP_HAND_OVER     . . . . .
SESSION_OVER      . . . . .
ERROR_UNHEARD     . . . . .
APP_ANEW          . . . . .
APP_AWAIT         . . . . .
SETUP_OK          . . . . .
ENTRIES           . . . . .
"""
REQUESTER_GRID = """
               I O u C
ITEM           . . . .
ITEM_LAST      . C C .
COMPLETE       . C C .
EMPTY          . . . .
ITEM_EXCESS    . C C .
REQUEST        . . . .
REQUEST_N      . . . .
REQUEST_N_ZERO . . . .
CANCEL         . . . .
ERROR          . C C .
TOO_BIG        . C C .
MALFORMED      . C C .
APP_OPEN       O . . .
APP_OPEN_LAST  u . . .
APP_ITEM       . . . .
APP_COMPLETE   . u . .
APP_FAIL       . C C .
APP_CANCEL     . C C .
"""
RESPONDER_GRID = """
               I O n C
ITEM           . . . .
ITEM_LAST      . n . .
COMPLETE       . n . .
EMPTY          . . . .
ITEM_EXCESS    . C . .
REQUEST        . . . .
REQUEST_N      . . . .
REQUEST_N_ZERO . . . .
CANCEL         . C C .
ERROR          . . . .
TOO_BIG        . C C .
MALFORMED      . C C .
APP_OPEN       O . . .
APP_OPEN_LAST  n . . .
APP_ITEM       . . . .
APP_COMPLETE   . C C .
APP_FAIL       . C C .
APP_CANCEL     . n . .
"""
HALF_REQUESTER_GRID = """
               I O u n C
ITEM           . . . . .
ITEM_LAST      . n C . .
COMPLETE       . n C . .
EMPTY          . . . . .
ITEM_EXCESS    . C C . .
REQUEST        . . . . .
REQUEST_N      . . . . .
REQUEST_N_ZERO . . . . .
CANCEL         . u . C .
ERROR          . C C C .
TOO_BIG        . C C C .
MALFORMED      . C C C .
APP_OPEN       O . . . .
APP_OPEN_LAST  u . . . .
APP_ITEM       . . . . .
APP_COMPLETE   . u . C .
APP_FAIL       . C C C .
APP_CANCEL     . C C C .
"""
HALF_RESPONDER_GRID = """
               I O u n C
ITEM           . . . . .
ITEM_LAST      . n C . .
COMPLETE       . n C . .
EMPTY          . . . . .
ITEM_EXCESS    . C C . .
REQUEST        . . . . .
REQUEST_N      . . . . .
REQUEST_N_ZERO . . . . .
CANCEL         . C C C .
ERROR          . C C C .
TOO_BIG        . C C C .
MALFORMED      . C C C .
APP_OPEN       O . . . .
APP_OPEN_LAST  n . . . .
APP_ITEM       . . . . .
APP_COMPLETE   . u . C .
APP_FAIL       . C C C .
APP_CANCEL     . n C . .
"""
