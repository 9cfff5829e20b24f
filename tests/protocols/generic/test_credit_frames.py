"""Each member of the RSocket family encodes REQUEST_N by its layout as the declaration of the frame does."""

from __future__ import annotations

from typing import Any

import pytest

from afflux.protocols.reactivesocket import frames as reactivesocket_frames
from afflux.protocols.reactivesocket import member as reactivesocket
from afflux.protocols.rsocket import frames as rsocket_frames
from afflux.protocols.rsocket import member as rsocket
from afflux.protocols.rsocket_draft import frames as draft_frames
from afflux.protocols.rsocket_draft import member as draft

WIRES: list[tuple[Any, Any]] = [
    (rsocket, rsocket_frames),
    (reactivesocket, reactivesocket_frames),
    (draft, draft_frames),
]


@pytest.mark.parametrize(("stream", "n"), [(1, 1), (2, 256), (77, 65_536), (0x7FFFFFFF, 0x7FFFFFFF)])
@pytest.mark.parametrize(("member", "frames"), WIRES, ids=["rsocket", "reactivesocket", "rsocket-draft"])
def test_credit_has_the_bytes_of_its_declaration(member: Any, frames: Any, stream: int, n: int) -> None:
    layout = member.LAYOUT
    assert layout.credit(stream, n) == frames.RequestN(stream=stream, n=n).encode(prefixed=True)
    assert layout.is_grant(layout.credit(stream, n))
