"""The sizes of batches of uids, which depend on the sizes of earlier batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.messaging.listings import TARGET_MEMORY_BYTES, Batch, Batches

KB = 1024
MB = 1024 * 1024
WINDOW = 20


def bring(batches: Batches, batch: Batch, each: int) -> None:
    batch.size = each * len(batch.uids)
    batches.record_received(batch, len(batch.uids))


def lengths(batches: Batches, sizes: list[int]) -> list[int]:
    listed: list[int] = []
    for each in sizes:
        batch = next(batches)
        listed.append(len(batch.uids))
        bring(batches, batch, each)
        batches.unread.popleft()
    return listed


@given(
    count=st.integers(0, 300),
    max_size=st.integers(1, 80),
    window=st.integers(1, 40),
    batch_bytes=st.none() | st.integers(1, 100 * KB),
    sizes=st.lists(st.integers(1, 2 * KB), min_size=1),
)
def test_every_uid_is_requested_once_in_order(
    count: int, max_size: int, window: int, batch_bytes: int | None, sizes: list[int]
) -> None:
    batches = Batches(list(range(count)), batch_size=max_size, window=window, batch_bytes=batch_bytes)
    asked: list[int] = []
    for number, batch in enumerate(batches):
        assert 1 <= len(batch.uids) <= max_size
        asked += batch.uids
        bring(batches, batch, sizes[number % len(sizes)])
        if number % 3 == 0:
            batches.unread.popleft()
    assert asked == list(range(count))


# batch_bytes, the sizes of the messages of each batch, and how many messages the batches hold
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


@pytest.mark.parametrize(("batch_bytes", "sizes", "expected"), COURSES.values(), ids=COURSES)
def test_batches_are_as_long_as_the_messages_before_let_them(
    batch_bytes: int | None, sizes: list[int], expected: list[int]
) -> None:
    batches = Batches(list(range(1000)), batch_size=50, window=WINDOW, batch_bytes=batch_bytes)
    assert lengths(batches, sizes) == expected


@given(each=st.integers(1, 8 * MB), window=st.integers(1, 40))
def test_window_of_batches_fits_in_memory_once_their_size_is_known(each: int, window: int) -> None:
    batches = Batches(list(range(50_000)), batch_size=1000, window=window)
    first = next(batches)
    first.size = each * len(first.uids)
    batches.record_received(first, len(first.uids))
    batches.unread.popleft()
    ahead = 0
    while ahead < window and batches.has_room():
        next(batches)
        ahead += 1
    assert batches.unread_bytes <= TARGET_MEMORY_BYTES
    assert ahead == window or batches.unread_bytes + each > TARGET_MEMORY_BYTES


def test_messages_of_unknown_size_count_as_large() -> None:
    batches = Batches(list(range(1000)), batch_size=50, window=WINDOW)
    ahead = 0
    while batches.has_room():
        next(batches)
        ahead += 1
    assert ahead == 8
    assert batches.unread_bytes == TARGET_MEMORY_BYTES


def test_batch_has_its_real_size_when_it_came_and_none_when_it_was_read() -> None:
    batches = Batches(list(range(1000)), batch_size=50, window=WINDOW)
    first, second = next(batches), next(batches)
    bring(batches, first, KB)
    assert batches.unread_bytes == 8 * KB + second.size
    batches.unread.popleft()
    assert batches.unread_bytes == second.size


def test_batch_whose_messages_vanished_tells_nothing() -> None:
    batches = Batches(list(range(1000)), batch_size=50, window=WINDOW)
    first = next(batches)
    first.size = 100
    batches.record_received(first, 0)
    assert len(next(batches).uids) == 8


@given(count=st.integers(1, 100), max_size=st.integers(1, 80), window=st.integers(1, 40), came=st.integers(1, 2 * MB))
def test_too_large_batch_is_cut_again_in_halves_from_its_first_uid(
    count: int, max_size: int, window: int, came: int
) -> None:
    batches = Batches(list(range(count)), batch_size=max_size, window=window)
    bring(batches, next(batches), came)
    batches.unread.popleft()
    oldest = next(batches, None)
    while oldest is not None and len(oldest.uids) > 1:
        next(batches, None)  # one behind it, which is taken back too
        oldest.size, oldest.too_large = 100, True
        assert batches.unread[0] is oldest
        assert not batches.has_room()
        assert batches.split_oversized()
        assert batches.unread_bytes == 0
        again = next(batches)
        assert again.uids == oldest.uids[: len(again.uids)]
        assert len(again.uids) <= len(oldest.uids) // 2
        assert not again.too_large
        oldest = again
    assert oldest is None or not batches.split_oversized()
