"""What holds for all tests."""

from __future__ import annotations

import signal

from hypothesis import settings

# A shell ignores it for what runs in the background, and the processes that tests start would do so, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An example's wall-clock time says how busy the machine is, not whether the code is right.
settings.register_profile("directsuite", deadline=None)
settings.load_profile("directsuite")
