"""The cases of docs/hostile.md that apply to Jmux, Limit-Stream, ReactiveSocket, reactive-streams-io and the
extensible draft of RSocket.

A line: the row, whom it is for, and what it may cost in memory ("-": nothing beyond the connection's own). The letters
are those of the limits: H ``first_frame_bytes``, F ``frame_bytes``, P ``payload_bytes``, C ``connection_bytes``, O
``outbound_high_bytes``. RSocket's rows are in test_rsocket.py; rows about the application alone are everybody's.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ROWS", "TAGS", "Row", "rows_of"]

TAGS = {"jmux": "JM", "limit": "LS", "reactivesocket": "RS0", "rsio": "RIO", "rsocket-draft": "RSX"}
"What the catalogue calls a protocol."

_TEXT = """
FR-01 LS,RSX 6             FR-02 LS,RSX 3             FR-13 LS F
FR-11 RSX F             FR-12 RSX F
FR-03 RS0 4            FR-05 all F            FR-06 all C            FR-08 all C
FR-09 all H            FR-17 RS0 F            FR-22 JM 4             FR-23 JM 4
FR-25 RIO 10           FR-26 RIO 10           FR-28 all C            FR-29 all C
HS-01 RS0,RIO,LS,RSX 16Ki  HS-02 RS0,LS,RSX H         HS-03 RS0,LS,RSX H            HS-04 RS0,RSX H
HS-12 RS0,LS,RSX 16          HS-18 RS0 H            HS-19 JM 8             HS-20 JM 8
HS-21 JM 8             HS-22 JM O             HS-23 RIO H            HS-25 RIO C
HS-27 all 16Ki         HS-28 all 16Ki
SI-01 RS0,RSX -            SI-03 RS0,RSX -            SI-07 RS0,RSX tombstones   SI-11 RS0 -
SI-16 RS0,LS,RSX 512-each     SI-17 RS0 -            SI-18 JM 4             SI-19 JM -
SI-24 LS -             SI-25 LS -             SI-27 LS -             SI-28 LS -
SI-22 JM 128x512       SI-23 JM -             SI-29 RIO -            SI-31 RIO 4Ki
FC-08 RS0,RSX 8            FC-09 RS0,RIO,RSX O        FC-12 RS0 -            FC-13 JM 4
FC-14 JM 4             FC-17 JM ration        FC-18 JM 4Mi           FC-19 JM 2xration
FC-20 RIO P            FC-21 RIO -            FC-23 RIO P
FG-14 LS F             FG-19 LS F             FG-15 RS0 F            FG-16 RS0 F
LE-04 RS0 -            LE-10 RS0 -
TM-01 all -            TM-03 all -
KA-01 RS0,RSX F            KA-02 RS0,RSX O            KA-03 RS0,RSX F            KA-08 JM 1000x4
KA-10 JM -
FL-01 RS0,LS,RSX S-handlers FL-03 RS0,RSX C            FL-06 RS0,LS,RSX C            FL-07 JM 128-handlers
FL-08 JM 128x2Ki
SL-01 all O            SL-02 all F            SL-03 all O            SL-05 all C
TR-15 all C
AU-03 all 1Mi          AU-05 all -            AU-06 all -
JA-01 JM -             JA-02 JM -             JA-03 JM -             JA-04 JM -
JA-06 JM -             JA-07 JM -             JA-09 JM -             JA-11 JM -
JA-12 JM -
EX-01 RSX F             EX-02 RSX F             EX-03 RSX F             EX-04 RSX C
EX-05 RSX -             EX-06 RSX -             EX-07 RSX -
"""


@dataclass(frozen=True)
class Row:
    """One case of the catalogue."""

    name: str
    tags: tuple[str, ...]
    memory: str

    def concerns(self, protocol: str) -> bool:
        """Whether a protocol has to keep it."""
        return "all" in self.tags or TAGS[protocol] in self.tags


def _read(text: str) -> dict[str, Row]:
    words = text.split()
    triples = zip(words[::3], words[1::3], words[2::3], strict=True)
    return {name: Row(name, tuple(tags.split(",")), memory) for name, tags, memory in triples}


ROWS = _read(_TEXT)


def rows_of(protocol: str) -> list[Row]:
    """The rows that a protocol has to keep."""
    return [row for row in ROWS.values() if row.concerns(protocol)]
