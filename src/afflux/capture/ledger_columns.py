"""Name the columns of the tables that the kernels of the ledger read and write, and the numbers in them."""

from __future__ import annotations

from typing import Final

from afflux.core.meanings import Act, Broken, StreamKind

# Columns of a connection, after those of slots.py. Pairs are by side: 0 the server, 1 the client.
RULES: Final = 3
"A bit for each case (Broken) that is looked for."
TRAITS: Final = 4
"The bits of TRAIT_…."
BEGUN: Final = 5
"It has sent its first frame."
WHOLE: Final = 7
"Its bytes are known from the first one."
GAPS: Final = 9
"Frames of the connection are missing: what they may have changed proves nothing."
LATER: Final = 10
"It continues a former connection."
LEASES: Final = 11
LARGEST: Final = 12
"The largest stream id that it has opened."
RATION: Final = 14
"What it may send on each new stream; -1 for no bound."
BUSY: Final = 16
"How long it has sent items one after the other, in ns: the time between two counts if it would not be a stall."
LEFT: Final = 18
"Requests that its lease permits."
UNTIL: Final = 20
"When its lease expires."
GRACE: Final = 22
"Requests that the lease before the last one still permitted: they may have been on their way."
WITHOUT: Final = 24
"Since when it has no lease; -1 if it has one."
WAITED: Final = 26
"When a lease ended such a wait; -1 if none did."
FRAMES: Final = 28
STREAMS: Final = 29
WRONG: Final = 30
"Broken rules."
LAST_TYPE: Final = 31
"The type of the last frame about leases, and where it is: what a wait for a lease began after."
LAST_SIDE: Final = 32
LAST_AT: Final = 33
LAST_ITEM: Final = 34
"When it has sent the last item; -1 for none."
LOST: Final = 36
"When frames of it were lost for the last time; NEVER for never."
DARK: Final = 38
"Its frames are not seen: OVER_DARK, the next one cannot be found; ABSENT, the capture has no packet of it."
SEEN: Final = 40
"What the column MISSED of the last frame has."
ANNOUNCED: Final = 41
"The side that has announced its end first, plus 1; 0 for none."
CONN_WIDTH: Final = 42

NEVER: Final = -2
OVER_DARK: Final = 1
ABSENT: Final = 2

IDS: Final = 1
"Stream ids are odd or even by side, and 0 is the connection."
ODD: Final = 2
ORDERED: Final = 4
OWN: Final = 8
ONE: Final = 16
CREDIT: Final = 32
OCTETS: Final = 64
FREE_ITEM: Final = 128
TOGETHER: Final = 256
SERVER_FIRST: Final = 512
"The first frame of the server is declared as well."

# Columns of results.
CREDIT_WIDTH: Final = 8
"Connection, stream, sender of the items, event, number granted, granted, used, frame."
STALL_WIDTH: Final = 11
"Connection, stream, sender of the items, start, stop, cause, after: type, side, position; type that ended it, route."
WRONG_WIDTH: Final = 5
"Frame, case, kind of the stream or -1, two numbers."
GRANTS: Final = 0
EMPTY: Final = 1
END: Final = 2
PEER: Final = 0
TRANSPORT: Final = 1
PRODUCER: Final = 2
LEASE_WAIT: Final = 3
LOCAL: Final = 4
UNSURE: Final = 5
COMPLETED: Final = 0
FAILED: Final = 1
CANCELLED: Final = 2
CONNECTION: Final = 3
OPEN: Final = 4
UNSEEN: Final = 5
GRACE_NS: Final = 1_000_000_000
"How long after its expiry a lease may still be used: the request may have been on its way."

A_OPEN: Final = int(Act.OPEN)
A_ITEM: Final = int(Act.ITEM)
A_BARE: Final = int(Act.BARE)
A_FOLLOWS: Final = int(Act.FOLLOWS)
A_GRANT: Final = int(Act.GRANT)
A_COMPLETE: Final = int(Act.COMPLETE)
A_ERROR: Final = int(Act.ERROR)
A_CANCEL: Final = int(Act.CANCEL)
A_LEASE: Final = int(Act.LEASE)
A_LEASES: Final = int(Act.LEASES)
A_FIRST: Final = int(Act.FIRST)
A_LATER: Final = int(Act.LATER)
A_CLIENT: Final = int(Act.CLIENT)
A_SERVER: Final = int(Act.SERVER)
A_CONNECTION: Final = int(Act.CONNECTION)
A_ASKER: Final = int(Act.ASKER)
A_ANSWERER: Final = int(Act.ANSWERER)
A_ZERO: Final = int(Act.ZERO)
A_RATION: Final = int(Act.RATION)
A_ACCEPT: Final = int(Act.ACCEPT)
A_ABORT: Final = int(Act.ABORT)
A_PART: Final = int(Act.PART)
A_LEAVE: Final = int(Act.LEAVE)
A_SKIP: Final = -1
"The frame could not be read."
A_LOST: Final = -2
"Bytes of the frame are missing."
A_OVER: Final = -3
"The frames after it cannot be found."

B_CREDIT: Final = int(Broken.CREDIT)
B_UNKNOWN: Final = int(Broken.UNKNOWN)
B_ENDED: Final = int(Broken.ENDED)
B_DONE: Final = int(Broken.DONE)
B_ZERO: Final = int(Broken.ZERO)
B_PARITY: Final = int(Broken.PARITY)
B_REUSED: Final = int(Broken.REUSED)
B_LIVE: Final = int(Broken.LIVE)
B_FIRST: Final = int(Broken.FIRST)
B_SETUP: Final = int(Broken.SETUP)
B_LEASE: Final = int(Broken.LEASE)
B_SIDE: Final = int(Broken.SIDE)
B_DIRECTION: Final = int(Broken.DIRECTION)
B_STREAM: Final = int(Broken.STREAM)

K_REQUEST: Final = int(StreamKind.REQUEST)
K_FIRE: Final = int(StreamKind.FIRE)
K_STREAM: Final = int(StreamKind.STREAM)
K_SUBSCRIPTION: Final = int(StreamKind.SUBSCRIPTION)
K_CHANNEL: Final = int(StreamKind.CHANNEL)
K_PUSH: Final = int(StreamKind.PUSH)
K_SESSION: Final = int(StreamKind.SESSION)
K_UNKNOWN: Final = int(StreamKind.UNKNOWN)

# Columns of the frames.
TIME: Final = 0
CONNS: Final = 1
SIDE: Final = 2
ACTS: Final = 3
TYPE: Final = 4
STREAM_ID: Final = 5
NUMBER: Final = 6
ITEM_COUNT: Final = 7
SIZE: Final = 8
CODES: Final = 9
AT: Final = 10
LETTER: Final = 11
NEW_KIND: Final = 12
NEW_ROUTE: Final = 13
MILLIS: Final = 14
HELD: Final = 15
"How long the direction from the server, and in the next column that from the client, could not send; see window.py."
MISSED: Final = 17
"""1 if the receiver has acknowledged more than the capture has so far; 2 if the capture has no packet of the server, 4
if it has none of the client."""
DOUBTED: Final = 7
"All of these: for a connection whose packets are not in the order of time, of which nothing can be concluded."
FRAME_WIDTH: Final = 18
