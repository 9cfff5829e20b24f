"""What every test may rely on, however the run was started."""

import faulthandler
import gc
import os
import signal
import sys
import threading

from hypothesis import settings

gc.disable()  # until all tests are collected, of which nothing is freed

_LEFT_S = 10.0
"Seconds in which a thread must end after the tests."

settings.register_profile("afflux", deadline=None, max_examples=100)  # a machine that is busy is not a failure
settings.register_profile("smoke", deadline=None, max_examples=30)
settings.register_profile("long", deadline=None, max_examples=2_000)
settings.load_profile("afflux")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs deaf to SIGINT, and so would be every process that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Exempt everything made so far from garbage collection, so that no test walks through a million objects."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Fail if a test has left a thread that would keep the process alive, and show where it is."""
    others = [each for each in threading.enumerate() if each is not threading.main_thread() and not each.daemon]
    for each in others:
        each.join(_LEFT_S)
    if left := [each.name for each in others if each.is_alive()]:
        print(f"threads of tests that have not ended: {', '.join(left)}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback()
        sys.stdout.flush()
        os._exit(1)
