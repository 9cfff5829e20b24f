"""Define three examples for every command. They end its ``--help``, and a test runs each of them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["EXAMPLES", "epilog"]

_WIDTH: Final = 76
"Columns of an example in a help of 80, which indents it by four."
_WORD: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|\S)+""")

EXAMPLES: dict[str, tuple[str, str, str]] = {
    "afflux": (
        "afflux serve tcp://127.0.0.1:7000 --demo",
        "afflux request tcp://127.0.0.1:7000 -d hello",
        "afflux doctor",
    ),
    "serve": (
        "afflux serve tcp://127.0.0.1:7000 --demo",
        "afflux serve tcp://127.0.0.1:7001 --file README.md",
        "afflux serve tcp://127.0.0.1:0 --handler afflux.demo.responder:Responder --journal build/journal --keep 24h",
    ),
    "request": (
        "afflux request tcp://127.0.0.1:7000 -d hello",
        """afflux request tcp://127.0.0.1:7000 --stream -d '{"count": 100, "size": 16}' --credit 8 --graph""",
        """afflux request tcp://127.0.0.1:7000 --stream -r flights -d '{"count": 5}' -o table""",
    ),
    "relay": (
        """afflux relay --from tcp://127.0.0.1:7000 -r flights -d '{"count": 1000}' --journal build/flights """
        "--listen tcp://127.0.0.1:7100",
        "afflux relay --from rsio+tcp://127.0.0.1:7010 -d count:1000:16 --journal build/count "
        "--listen tcp://127.0.0.1:7101",
        "afflux relay --from tcp://127.0.0.1:7000 -r flights --key /carrier --shards 4 --journal build/carriers "
        "--listen tcp://127.0.0.1:7102",
    ),
    "bench": (
        "afflux bench tcp://127.0.0.1:7000 -n 20000 -m 64",
        "afflux bench tcp://127.0.0.1:7000 --rate 500 -D 2s --fail-if 'p99>1s' --fail-if 'errors>0'",
        "afflux bench tcp://127.0.0.1:7000 --stream --items 1000 --credit 1,8,64,unbounded -n 5",
    ),
    "decode": (
        "afflux decode --framing none --hex 00000005200000000003",
        "afflux decode --payload text --hex '00 00 0e 00 00 00 01 11 00 00 00 00 70 69 6e 67'",
        """afflux decode --strict --where "type == SETUP or error" capture.pcapng""",
    ),
    "inspect": (
        "afflux inspect capture.pcapng",
        "afflux inspect --stall 1s --limit 3 -o json capture.pcapng",
        "afflux inspect -d 7000=rsocket --table connections -o csv capture.pcapng",
    ),
    "capture": (
        "afflux capture --listen tcp://127.0.0.1:7050 --to tcp://127.0.0.1:7000 -w capture.pcapng",
        "afflux capture --listen auto+tcp://127.0.0.1:0 --to tcp://127.0.0.1:7000 --write build.pcapng",
        "afflux capture --listen unix:///srv/demo.sock --to tcp://127.0.0.1:7000 -w sockets.pcapng",
    ),
    "wireshark": (
        "afflux wireshark -o afflux.lua",
        "afflux wireshark --output build/afflux.lua",
        "afflux wireshark -o -",
    ),
    "check": (
        "afflux check sum.lstr",
        "afflux check sum.lstr --emit python",
        "afflux check sum.lstr --against client.bin server.bin --protocol rsocket",
    ),
    "demo": (
        "afflux demo --rows 20000",
        "afflux demo --rows 50000 --batch 10000 --no-crash --out build/demo",
        "afflux demo --live --rows 20000",
    ),
    "journal": (
        "afflux journal build/journal",
        "afflux journal build/journal -o json",
        "afflux journal build/journal --release billing",
    ),
    "spark": (
        "afflux spark tail tcp://127.0.0.1:7100 -r flights --out build/flights --available-now",
        """afflux spark tail tcp://127.0.0.1:7100 -r flights --out build/carriers --available-now -O format=json """
        "--schema 'carrier STRING, dep_delay INT' --partition-by carrier",
        "afflux spark tail tcp://127.0.0.1:7100 -r flights --out build/slices --available-now --max-rows 500 "
        "--master local[2]",
    ),
    "spark decode": (
        "afflux spark decode capture.pcapng --out build/tables",
        "afflux spark decode . --out build/streams --master none --tables streams,stalls --stall 1s",
        """afflux spark decode '*.pcapng' --out build/grants --where 'type == REQUEST_N' --partition-by protocol """
        "--master local[2]",
    ),
    "shell": (
        "afflux shell tcp://127.0.0.1:7000",
        "afflux shell tcp://127.0.0.1:7000 -o json",
        "afflux shell tcp://127.0.0.1:7000 --dmt application/json --history build/history",
    ),
    "doctor": (
        "afflux doctor",
        "afflux doctor -o json",
        "afflux doctor --journal build/journal",
    ),
}


def epilog(command: str) -> str:
    """Return the examples as a help paragraph that is not wrapped."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for example in EXAMPLES[command] for line in _folded(example))


def _folded(example: str) -> list[str]:
    """Split an example that is too wide before its options. The lines can be pasted into a shell."""
    lines, rest = [""], _WORD.findall(example)
    while rest:
        end = next((at for at, word in enumerate(rest) if at and word.startswith("-")), len(rest))
        part, rest = " ".join(rest[:end]), rest[end:]
        if lines[-1] and len(lines[-1]) + len(part) + 1 > _WIDTH - 2 * bool(rest):
            lines[-1] += " \\"
            lines.append(f"    {part}")
        else:
            lines[-1] += f" {part}" if lines[-1] else part
    return lines
