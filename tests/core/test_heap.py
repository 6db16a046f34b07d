"""Large bodies, again and again: once a suite was opened, the system needn't find their pages anew."""

from __future__ import annotations

import platform
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.process

_FAULTS = """
    import resource

    {first}

    def burst():
        bodies = [b"x" * 300_000 for _ in range(20)]

    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    for _ in range(3):
        burst()
    before = faults()
    for _ in range(20):
        burst()
    print(faults() - before)
"""


def _faults(first: str) -> int:
    """Pages that 20 bursts of 20 bodies of 300 KB needed, in a process of their own; they have 29,300 together."""
    program = textwrap.dedent(_FAULTS).format(first=first)
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library's heap has rules of its own")
def test_pages_of_large_bodies_are_used_again() -> None:
    assert _faults("") > 10_000  # else there is nothing to mend
    assert _faults("from directsuite.core.session import tune_malloc; tune_malloc()") < 1_000
