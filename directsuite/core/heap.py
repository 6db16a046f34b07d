"""Memory that large bodies took is kept for the next ones, where the C library would give it back each time.

glibc maps each block beyond a threshold anew, and gives back what is free at the heap's end beyond twice that; the
threshold is 128 KB, and then the largest mapped block that was ever freed (mallopt(3)). Dozens of documents of some
100 KB under way at a time would have the system find nearly every page of theirs again: a quarter of their CPU time.
The price: what a burst took may stay with the process, as it does on glibc by itself from the second burst on.
"""

from __future__ import annotations

_LARGEST = 4 * 1024 * 1024
"""Bytes of the largest block that comes from the heap."""


def keep_heap() -> None:
    """Have blocks of up to 4 MB come from the heap. Elsewhere than on glibc it does nothing; it touches one page."""
    bytes(_LARGEST)
