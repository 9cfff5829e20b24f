"""The tables of Jmux as grids, written from the specification by hand: every state, every input."""

from __future__ import annotations

# One line an input, one letter a state: the next state, "." where it stays, "!" where it is a violation.
CONNECTION_LETTERS = {
    "S": "START",
    "W": "WAIT_HEADER",
    "L": "LEAVING",
    "O": "OPEN",
    "D": "DRAINING",
    "H": "HALF_CLOSED",
    "C": "CLOSED",
}
CLIENT_GRID = """
               S W L O D C
HEADER         ! O D ! ! .
BAD_HEADER     ! C C ! ! .
NO_OPERATION   ! ! ! . . .
PING           ! ! ! . . .
PING_ACK       ! ! ! . . .
SHUTDOWN       ! ! ! C C .
ERROR          ! ! ! C C .
SESSION        ! ! ! . . .
APP_START      W . . . . .
APP_DRAIN      . L . D . .
APP_CLOSE      . C C C C .
SESSIONS_ENDED . . C . C .
EOF            . C C C C .
SILENT         . C C C C .
IDLE           . . . . . .
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

# The parts of a session.
OUTBOUND_LETTERS = {
    "N": "NEW",
    "n": "NEW_HUNGRY",
    "O": "OPEN",
    "H": "HUNGRY",
    "f": "NEW_FINISHED",
    "F": "FINISHING",
    "D": "DONE",
}
OUTBOUND_GRID = """
          N n O H f F D
HUNGER    n n H H . . .
SATED     N N O O . . .
FINISH    f f F F . . .
LEFT      O H . . F . .
LAST_LEFT . . . . D D .
UNWANTED  D D D D D D .
"""
INBOUND_LETTERS = {"O": "OPEN", "U": "UNWANTED", "D": "DONE"}
INBOUND_GRID = """
         O U D
UNWANTED U . .
LAST     D D .
"""
ACK_LETTERS = {"N": "NONE", "W": "WANTED", "A": "ASKED", "O": "OVERDUE", "D": "DECLINED", "G": "GIVEN"}
ACK_GRID = """
        N W A O D G
WANT    W . . . . .
ASK     A A . . . .
GIVE    . . G G G .
MISS    . . O . . .
DECLINE . . D . . .
VOID    . N N N N N
"""
HANDLER_LETTERS = {"U": "UNKNOWN", "T": "TOLD", "B": "BEGUN", "R": "RETURNED"}
HANDLER_GRID = """
       U T B R
TELL   T . . .
BEGIN  . B . .
RETURN . R R .
"""
