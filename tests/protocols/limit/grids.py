"""The tables of Limit-Stream as grids, written from the specification by hand: every state, every input."""

from __future__ import annotations

# One line an input, one letter a state: the next state, "." where it stays, "!" where the connection ends.
CONNECTION_LETTERS = {
    "S": "START",
    "D": "DECIDING",
    "O": "OPEN",
    "d": "DRAINING",
    "I": "IDLE",
    "E": "ENDED",
    "F": "FAILED",
    "C": "CLOSED",
}
CLIENT_GRID = """
                 S O d I E F C
SETUP            C C C C C C .
SETUP_BAD        C C C C C C .
SETUP_UNKNOWN    C C C C C C .
MESSAGE          C . . C C . .
END              C . . C I . .
END_LATE         C . . C I . .
ERROR            C . . . . . .
ERROR_LATE       C . . . . . .
ERROR_0          C C C C C C .
BROKEN           C C C C C C .
APP_OPEN         O . . O O O .
APP_ACCEPT       . . . . . . .
APP_REFUSE       . . . . . . .
APP_DRAIN        C d . C C C .
APP_CLOSE        C C C C C C .
SESSION_OVER     . I C . . . .
SESSION_COMPLETE . E C . . . .
SESSION_FAILED   . F C . . . .
SILENT           . . . . . . .
LOST             C C C C C C .
"""
SERVER_GRID = """
                 S D O d I E F C
SETUP            D . C C O O O .
SETUP_BAD        C . C C C C C .
SETUP_UNKNOWN    C . C C C C C .
MESSAGE          C . . . C C . .
END              C . . . C I . .
END_LATE         C . . . C I . .
ERROR            C . . . . . . .
ERROR_LATE       C . . . . . . .
ERROR_0          C . C C C C C .
BROKEN           C C C C C C C .
APP_OPEN         . . . . . . . .
APP_ACCEPT       . O . . . . . .
APP_REFUSE       . C . . . . . .
APP_DRAIN        C C d . C C C .
APP_CLOSE        C C C C C C C .
SESSION_OVER     . . I C . . . .
SESSION_COMPLETE . . E C . . . .
SESSION_FAILED   . . F C . . . .
SILENT           C C . . . . . .
LOST             C C C C C C C .
"""
SESSION_LETTERS = {"s": "START", "S": "SENDING", "R": "RECEIVING", "f": "FREE", "E": "ENDED", "F": "FAILED"}
SESSION_GRID = """
             s S R f E F
PAYLOAD      . ! . . . .
CHOOSE       . ! . . . .
END          . ! ! E . .
ERROR        . F F F . .
APP_PAYLOAD  . . . . . .
APP_CHOOSE   . . . . . .
APP_COMPLETE . . . E . .
APP_ABORT    . F F F . .
TO_SEND      S . S . . .
TO_RECEIVE   R R . . . .
TO_BOTH      f . . . . .
TO_END       E E . . . .
TO_END_PEER  E . E . . .
LOST         . F F F . .
"""
