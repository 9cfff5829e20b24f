"""What every test may rely on, however the run was started."""

import signal

from hypothesis import settings

settings.register_profile("afflux", deadline=None)
settings.load_profile("afflux")  # a machine that is busy is not a failure

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs deaf to SIGINT, and so would be every process that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
