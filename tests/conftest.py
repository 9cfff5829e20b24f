"""What every test may rely on, however the run was started."""

import gc
import signal

from hypothesis import settings

gc.disable()  # until all tests are collected, of which nothing is freed

settings.register_profile("afflux", deadline=None)
settings.load_profile("afflux")  # a machine that is busy is not a failure

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs deaf to SIGINT, and so would be every process that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Exempt everything made so far from garbage collection, so that no test walks through a million objects."""
    gc.freeze()
    gc.enable()
