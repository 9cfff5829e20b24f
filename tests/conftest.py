"""What every test may rely on, however the run was started."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs deaf to SIGINT, and so would be every process that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
