"""``python -m tests.capture.building`` compiles the kernels of captures, so that processes of tests find them in
numba's cache: each of those that start together would compile them, which takes half a minute of a core. No-op without
numba. Contains no tests."""

from __future__ import annotations

from afflux.capture import ledger_kernels, window
from afflux.capture.compiling import build

if __name__ == "__main__":
    build(ledger_kernels.apply)
    build(ledger_kernels.close)
    build(window.follow)
