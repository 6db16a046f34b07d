"""What is counted while it runs: this process's memory, sockets, tasks, and objects of the client's core."""

from __future__ import annotations

import asyncio
import csv
import ctypes
import gc
import os
import platform
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from directsuite.core.call import Call
from directsuite.core.credentials import Credential
from directsuite.core.session import ResponseStream
from directsuite.core.upload import RequestPayload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from benchmarks.soak.tally import Tally

MEGABYTE = 1_000_000
INTERVAL = 5.0  # seconds between samples
_PEAK_INTERVAL = 0.25  # seconds between looks at the sockets, whose peak each sample tells
_LOOP_SOCKETS = 2  # sockets by which the event loop wakes itself
_LIBC = ctypes.CDLL(None)
_PAGE = os.sysconf("SC_PAGE_SIZE")
_COUNTED_TYPES: tuple[type[Any], ...] = (Call, ResponseStream, RequestPayload, Credential)


@attrs.frozen(kw_only=True)
class Sample:
    """One row. quiet: taken between two epochs, with nothing under way.

    milliseconds: since the beginning. rss, server_rss: resident memory, in bytes. sockets_peak: the most since the row
    before. held: bytes that the C library has given out and not got back, without what lies free between them; 0 where
    it can't tell. blocks: of memory that Python's objects take. objects: all that the garbage collector tracks. calls
    to cancelled: since the beginning.
    """

    quiet: int
    milliseconds: int
    rss: int
    server_rss: int
    sockets: int
    sockets_peak: int
    descriptors: int
    tasks: int
    held: int
    blocks: int
    objects: int
    live_calls: int
    live_incoming: int
    live_outgoing: int
    live_credentials: int
    calls: int
    attempts: int
    retries: int
    failed: int
    left_unknown: int
    cancelled: int

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self.milliseconds / 1000


class SampleRecorder:
    """Takes samples and writes each to a file at once: nothing of them stays in the memory that is measured."""

    def __init__(self, file: TextIO, tally: Tally, server: int) -> None:
        self._file = file
        self._writer = csv.DictWriter(file, [field.name for field in attrs.fields(Sample)])
        self._writer.writeheader()
        self._tally = tally
        self._server = server
        self._began = time.monotonic()
        self._peak = 0

    async def run(self) -> None:
        """Sample every five seconds, for ever."""
        due = time.monotonic() + INTERVAL
        while True:
            await asyncio.sleep(_PEAK_INTERVAL)
            self._peak = max(self._peak, count_open_sockets())
            if time.monotonic() >= due:
                due += INTERVAL
                self.take_sample(quiet=False)

    def take_sample(self, *, quiet: bool) -> Sample:
        """One row, now. A quiet one has the garbage collected first, so that what lives is what is held."""
        if quiet:
            gc.collect()
        blocks = sys.getallocatedblocks()
        alive, objects = _count_live_objects()
        sockets = count_open_sockets()
        sample = Sample(
            quiet=int(quiet),
            milliseconds=round(1000 * (time.monotonic() - self._began)),
            rss=read_resident_bytes(os.getpid()),
            server_rss=read_resident_bytes(self._server),
            sockets=sockets,
            sockets_peak=max(self._peak, sockets),
            descriptors=count_open_descriptors(),
            tasks=len(asyncio.all_tasks()),
            held=read_allocated_bytes(),
            blocks=blocks,
            objects=objects,
            live_calls=alive[Call],
            live_incoming=alive[ResponseStream],
            live_outgoing=alive[RequestPayload],
            live_credentials=alive[Credential],
            calls=self._tally.calls.total(),
            attempts=self._tally.attempts,
            retries=self._tally.retries,
            failed=self._tally.failed,
            left_unknown=self._tally.left_unknown,
            cancelled=self._tally.cancelled,
        )
        self._peak = 0
        self._writer.writerow(attrs.asdict(sample))
        self._file.flush()
        return sample


def read_samples(path: Path) -> list[Sample]:
    """The rows of a file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [Sample(**{name: int(text) for name, text in row.items()}) for row in csv.DictReader(file)]


def read_resident_bytes(process: int) -> int:
    """Resident memory of a process, in bytes; 0 where there is none of this number."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except FileNotFoundError:
        return 0


class _Figures(ctypes.Structure):
    """The C library's own figures (mallinfo2(3)), of all its arenas; blocks mapped by themselves are in hblkhd."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    )

    hblkhd: int
    uordblks: int


def read_allocated_bytes() -> int:
    """Bytes that the C library has given out and not got back; 0 where it is another than glibc 2.33 or later."""
    if platform.libc_ver()[0] != "glibc" or not hasattr(_LIBC, "mallinfo2"):
        return 0
    _LIBC.mallinfo2.restype = _Figures
    figures: _Figures = _LIBC.mallinfo2()
    return figures.uordblks + figures.hblkhd


def count_open_sockets() -> int:
    """How many internet sockets this process has open, save the event loop's own pair."""
    return max(0, sum(target.startswith("socket:") for target in _list_descriptor_targets()) - _LOOP_SOCKETS)


def count_open_descriptors() -> int:
    """How many file descriptors this process has open."""
    return sum(1 for _ in _list_descriptor_targets())


def _list_descriptor_targets() -> Iterator[str]:
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            yield str(descriptor.readlink())
        except FileNotFoundError:  # the one by which the folder was read
            continue


def _count_live_objects() -> tuple[Counter[type[Any]], int]:
    tracked = gc.get_objects()
    alive: Counter[type[Any]] = Counter()
    for each in tracked:
        if type(each) in _COUNTED_TYPES:
            alive[type(each)] += 1
    return alive, len(tracked)
