"""The tables of Jmux as grids, written from the specification by hand: every state, every input."""

from __future__ import annotations

# One line an input, one letter a state: the next state, "." where it stays, "!" where it is a violation.
CONNECTION_LETTERS = {"S": "START", "W": "WAIT_HEADER", "O": "OPEN", "D": "DRAINING", "H": "HALF_CLOSED", "C": "CLOSED"}
CLIENT_GRID = """
               S W O D C
HEADER         ! O ! ! .
BAD_HEADER     ! C ! ! .
NO_OPERATION   ! ! . . .
PING           ! ! . . .
PING_ACK       ! ! . . .
SHUTDOWN       ! ! C C .
ERROR          ! ! C C .
SESSION        ! ! . . .
APP_START      W . . . .
APP_DRAIN      . . D . .
APP_CLOSE      . C C C .
SESSIONS_ENDED . . . C .
EOF            . C C C .
SILENT         . C C C .
IDLE           . . . . .
"""
SERVER_GRID = """
               W O D H C
HEADER         O ! ! . .
BAD_HEADER     C ! ! . .
NO_OPERATION   ! . . . .
PING           ! . . . .
PING_ACK       ! . . . .
SHUTDOWN       ! ! ! . .
ERROR          ! C C . .
SESSION        ! . . . .
APP_START      . . . . .
APP_DRAIN      C D . . .
APP_CLOSE      C C C C .
SESSIONS_ENDED . . C C .
EOF            C H H C .
SILENT         C C C C .
IDLE           . C . . .
"""
SESSION_LETTERS = {
    "F": "FREE",
    "O": "OPEN",
    "U": "OUT_FIN",
    "I": "IN_FIN",
    "B": "BOTH_FIN",
    "A": "ABORTED",
    "D": "ACK_DUE",
    "C": "CLOSED",
    "E": "CLOSED_EARLY",
    "f": "ABORTED_FIN",
}
CLIENT_SESSION_GRID = """
                   F O U I B A D
DATA_OPEN          ! ! ! ! ! ! !
DATA_OPEN_EOF      ! ! ! ! ! ! !
DATA               ! . . ! ! . !
DATA_EOF           ! I B ! ! . !
DATA_EOF_CLOSE     ! F F ! ! F !
DATA_EOF_CLOSE_ACK ! F D ! ! F !
CLOSE              ! ! ! F F F !
CLOSE_ACK          ! ! ! F D F !
ABORT              ! F F F F F !
INCREMENT          ! . . . . . !
ACKNOWLEDGMENT     ! ! ! ! ! ! !
APP_OPEN           O . . . . . .
APP_OPEN_EOF       U . . . . . .
APP_DATA           . . . . . . .
APP_EOF            . U . B . . .
APP_EOF_DROP       . . . . . . .
APP_DROP           . . . . . . .
APP_ABORT          . A A A A . F
APP_ACK            . . . . . . F
"""
SERVER_SESSION_GRID = """
                   F O U I C E A f
DATA_OPEN          O ! ! ! O ! ! O
DATA_OPEN_EOF      I ! ! ! I ! ! I
DATA               ! . . ! ! . . .
DATA_EOF           ! I C ! ! C f .
DATA_EOF_CLOSE     ! ! ! ! ! ! ! !
DATA_EOF_CLOSE_ACK ! ! ! ! ! ! ! !
CLOSE              ! ! ! ! ! ! ! !
CLOSE_ACK          ! ! ! ! ! ! ! !
ABORT              ! F F F F F F F
INCREMENT          ! . . . . . . .
ACKNOWLEDGMENT     ! ! . ! . . ! !
APP_OPEN           . . . . . . . .
APP_OPEN_EOF       . . . . . . . .
APP_DATA           . . . . . . . .
APP_EOF            . U . C . . . .
APP_EOF_DROP       . E . C . . . .
APP_DROP           . . E . . . . .
APP_ABORT          . A E f . . . .
APP_ACK            . . . . . . . .
"""
