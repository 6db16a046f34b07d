"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# An example's wall-clock time says how busy the machine is, not whether the code is right.
settings.register_profile("directsuite", deadline=None)
settings.load_profile("directsuite")
