"""The tables of reactive-streams-io as grids, written from the specification by hand: every state, every input."""

from __future__ import annotations

# One line an input, one letter a state: the next state, "." where it stays, "!" where the connection ends.
CONNECTION_LETTERS = {
    "S": "START",
    "W": "WAIT",
    "D": "DECIDING",
    "O": "OPEN",
    "d": "DRAINING",
    "G": "CLOSING",
    "C": "CLOSED",
    "L": "LEAVING",
    "F": "FINISHING",
}
CLIENT_GRID = """
             S W L O d G F C
HELLO        G O d G G . . .
HELLO_OTHER  G C C G G . . .
HELLO_WRONG  G G G G G . . .
SIGNAL       G G G . . . . .
GOODBYE      G C C C C C C .
GOODBYE_ACK  G G G G G C C .
BROKEN       G G G G G . . .
APP_START    W . . . . . . .
APP_ACCEPT   . . . . . . . .
APP_REFUSE   . . . . . . . .
APP_DRAIN    . L . d . . . .
APP_CLOSE    . G G G G . . .
LAST_ENDED   . . . . F . . .
SILENT       . C C . . . . .
REPLY_LATE   . . . . . C C .
LOST         C C C C C C C .
"""
SERVER_GRID = """
             S W D O d G F C
HELLO        G D . G G . . .
HELLO_OTHER  G C . G G . . .
HELLO_WRONG  G G . G G . . .
SIGNAL       G G . . . . . .
GOODBYE      G C . C C C C .
GOODBYE_ACK  G G . G G C C .
BROKEN       G G C G G . . .
APP_START    W . . . . . . .
APP_ACCEPT   . . O . . . . .
APP_REFUSE   . C C . . . . .
APP_DRAIN    . C C d . . . .
APP_CLOSE    . C C G G . . .
LAST_ENDED   . . . . F . . .
SILENT       . C C . . . . .
REPLY_LATE   . . . . . C C .
LOST         C C C C C C C .
"""
ANSWER_LETTERS = {"S": "SILENT", "T": "STREAMING"}
ANSWER_GRID = """
         S T
ANSWERED T .
ENDED    . S
"""
SUBSCRIBER_LETTERS = {"F": "FREE", "P": "PENDING", "A": "ACTIVE", "C": "CANCELLED", "R": "REUSED"}
SUBSCRIBER_GRID = """
                 F P A C R
SUBSCRIBED       . A ! . A
SUBSCRIBED_BIG   . C ! . C
SUBSCRIBED_OLD   . ! ! . .
NEXT             . ! . . .
NEXT_EXCESS      . ! C . .
NEXT_BIG         . ! C . .
COMPLETE         . ! F F .
ERROR            . F F F F
OLD_ENDED        . ! ! . .
APP_SUBSCRIBE    P . . R .
APP_REQUEST      . . . . .
APP_REQUEST_BAD  . C C . C
APP_CANCEL       . C C . C
"""
PUBLISHER_LETTERS = {"F": "FREE", "A": "ACTIVE"}
PUBLISHER_GRID = """
               F A
SUBSCRIBE      A !
SUBSCRIBE_BAD  . !
REQUEST        . .
REQUEST_BAD    . F
CANCEL         . F
APP_ITEM       . .
APP_ITEM_BAD   . F
APP_COMPLETE   . F
APP_FAIL       . F
"""
