"""Read captures of network traffic: pcap and pcapng files, the TCP connections in them, and the frames in those.

``Capture`` finds the packets of a file (pcap.py, pcapng.py), ``segments`` reads their headers (link.py, network.py),
``Flows`` puts the bytes of each connection in order (reassembly.py), and ``Decoder`` decodes them (conversation.py,
sides.py). Packets are rows of numpy arrays; there is no object for a packet. Needs the extra ``capture``. Does not open
sockets.
"""

from __future__ import annotations

from afflux.core.errors import MissingExtra

try:
    import numpy  # noqa: F401  # an extra: everything in this package needs it
except ImportError:
    raise MissingExtra("reading captures", "capture") from None

from afflux.capture.batches import FrameBatches
from afflux.capture.decoding import Decoder
from afflux.capture.errors import CaptureError, Problem
from afflux.capture.flows import Conflict, Connection, Consumer, Flows
from afflux.capture.frames import Frames
from afflux.capture.names import Names, end_text
from afflux.capture.network import Network
from afflux.capture.output import OutputRefused, write_tables
from afflux.capture.packets import Packets
from afflux.capture.reading import Capture, is_capture
from afflux.capture.secrets import Secrets
from afflux.capture.segments import Segments, segments
from afflux.capture.tables import Analysis, analyze
from afflux.capture.units import Decoding

__all__ = [
    "Analysis",
    "Capture",
    "CaptureError",
    "Conflict",
    "Connection",
    "Consumer",
    "Decoder",
    "Decoding",
    "Flows",
    "FrameBatches",
    "Frames",
    "Names",
    "Network",
    "OutputRefused",
    "Packets",
    "Problem",
    "Secrets",
    "Segments",
    "analyze",
    "end_text",
    "is_capture",
    "segments",
    "write_tables",
]
