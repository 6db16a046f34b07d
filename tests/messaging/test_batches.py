"""The sizes of batches of uids, which depend on the sizes of earlier batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.messaging.listings import TARGET_MEMORY_BYTES, Batch, Batches

KB = 1024
MB = 1024 * 1024
WINDOW = 20


def receive(batches: Batches, batch: Batch, message_bytes: int) -> None:
    """Record that a batch was received and read. message_bytes: the size of each message."""
    batch.size = message_bytes * len(batch.uids)
    batches.record_received(batch, len(batch.uids))
    batches.unread.popleft()


def request_ahead(batches: Batches, window: int) -> int:
    """Request batches until the window or the memory is full. Return their number."""
    count = 0
    while count < window and batches.has_room():
        next(batches)
        count += 1
    return count


COURSES: dict[str, tuple[int | None, list[int], list[int]]] = {
    "small": (None, [KB] * 4, [8, 50, 50, 50]),
    "large": (None, [MB] * 3, [8, 3, 3]),
    "larger than a share": (None, [4 * MB] * 3, [8, 1, 1]),
    "large after small": (None, [KB, MB, MB], [8, 50, 3]),
    "small after large": (None, [2 * MB, KB, KB, KB, KB, KB, KB], [8, 1, 3, 6, 12, 25, 50]),
    "small share": (10 * KB, [KB] * 2, [8, 10]),
    "share of a byte": (1, [KB] * 3, [8, 1, 1]),
    "large share": (100 * MB, [MB] * 2, [8, 50]),
}
"""batch_bytes, the size of each message of each batch, and the number of messages per batch."""


@pytest.mark.parametrize(("batch_bytes", "sizes", "expected"), COURSES.values(), ids=COURSES)
def test_length_of_a_batch_depends_on_the_sizes_of_earlier_messages(
    batch_bytes: int | None, sizes: list[int], expected: list[int]
) -> None:
    batches, lengths = Batches(list(range(1000)), batch_size=50, window=WINDOW, batch_bytes=batch_bytes), list[int]()
    for message_bytes in sizes:
        batch = next(batches)
        lengths.append(len(batch.uids))
        receive(batches, batch, message_bytes)
    assert lengths == expected


@given(message_bytes=st.integers(1, 8 * MB), window=st.integers(1, 40))
def test_window_of_batches_fits_in_memory_once_their_size_is_known(message_bytes: int, window: int) -> None:
    batches = Batches(list(range(50_000)), batch_size=1000, window=window)
    receive(batches, next(batches), message_bytes)
    count = request_ahead(batches, window)
    assert batches.unread_bytes <= TARGET_MEMORY_BYTES
    assert count == window or batches.unread_bytes + message_bytes > TARGET_MEMORY_BYTES


def test_messages_of_unknown_size_count_as_large() -> None:
    batches = Batches(list(range(1000)), batch_size=50, window=WINDOW)
    assert request_ahead(batches, WINDOW) == 8
    assert batches.unread_bytes == TARGET_MEMORY_BYTES
