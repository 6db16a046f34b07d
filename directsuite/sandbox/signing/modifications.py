"""Judging what was changed in a document after a signature was made, within limits of time and memory.

pyHanko follows every path that leads to a changed object. Some documents have more paths than any memory can hold: 40
objects that each refer twice to the next one are enough. So each document has two attempts:

    1. in this process, with a limit on the number of objects that are looked up: enough for most documents
    2. in a separate process, which is ended when it has taken too long or too much memory

What neither attempt can judge stays unknown.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias

import msgspec
from pyhanko.pdf_utils.generic import Reference
from pyhanko.pdf_utils.reader import HistoricalResolver, PdfFileReader
from pyhanko.sign.diff_analysis import DiffResult, ModificationLevel
from pyhanko.sign.validation.pdf_embedded import EmbeddedPdfSignature

from directsuite.sandbox.signing.clear import POLICY
from directsuite.sandbox.signing.document import open_reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_LOOKUPS = 2_000
"""The number of times that objects are looked up for one document in the first attempt."""
MAX_SECONDS = 3.0
"""The time of the second attempt."""
_MAX_WAIT_SECONDS = 2.0  # for a second attempt to begin
_MAX_PROCESSES = 2
_MAX_MEMORY_BYTES = 2**30  # bytes of a process

ObjectNumber: TypeAlias = tuple[int, int]
"""The number and generation of a PDF object."""


class Modification(NamedTuple):
    """The changes after a signature was made."""

    level: str
    """pyHanko's word for the kind of changes; UNKNOWN if they could not be judged."""
    allowed: bool
    """True if the signature stays valid."""


UNKNOWN = Modification("UNKNOWN", allowed=True)


class TooManyLookupsError(Exception):
    """The first attempt has reached its limit."""


class _CountingResolver(HistoricalResolver):
    def __init__(self, limited: LimitedReader, revision: int) -> None:
        original: Any = super()  # its methods have no types
        original.__init__(limited, revision)
        self._limited = limited

    def get_object(self, ref: Reference, as_metadata_stream: bool = False) -> Any:
        self._limited.count_lookup()
        original: Any = super()
        return original.get_object(ref, as_metadata_stream)


class LimitedReader(PdfFileReader):
    """A reader that raises TooManyLookupsError if earlier revisions of the document are read too often."""

    _lookups_left = MAX_LOOKUPS

    def count_lookup(self) -> None:
        """Count one object that is looked up in a revision."""
        self._lookups_left -= 1
        if self._lookups_left < 0:
            raise TooManyLookupsError

    def get_historical_resolver(self, revision: int) -> HistoricalResolver:
        """Return a view of one revision of the document."""
        resolvers: dict[int, HistoricalResolver] = self._historical_resolver_cache
        return resolvers.setdefault(revision, _CountingResolver(self, revision))


def open_signature(opened: PdfFileReader, field: ObjectNumber, name: str = "") -> Any:
    """Return pyHanko's view of the signature in a field. Raises almost any exception for a malformed one."""
    dictionary: Any = Reference(*field, opened).get_object()
    return EmbeddedPdfSignature(opened, dictionary, name)


def judge(signature: Any) -> Modification:
    """Return the changes after this signature. Raises almost any exception for a malformed document."""
    signature.coverage = signature.evaluate_signature_coverage()
    found: Any = signature.evaluate_modifications(POLICY)
    level: Any = found.modification_level if isinstance(found, DiffResult) else ModificationLevel.OTHER
    permitted: Any = signature.docmdp_level
    allowed = level != ModificationLevel.OTHER and (permitted is None or level.value <= permitted.value)
    return Modification(str(level.name), allowed=bool(allowed))


def _judge_each(stored: BinaryIO, fields: Sequence[ObjectNumber]) -> Iterator[tuple[ObjectNumber, Modification]]:
    """Yield the fields that can be judged, the last one first: it has the fewest changes after it."""
    for field in reversed(fields):
        with suppress(Exception):  # a malformed object changes the verdict on its own signature only
            yield field, judge(open_signature(open_reader(stored), field))


class ModificationProcesses:
    """Runs second attempts: a bounded number at a time, each in a process that is ended at its limits."""

    def __init__(self) -> None:
        self._process_slots = asyncio.Semaphore(_MAX_PROCESSES)
        self._lock = threading.Lock()
        self._running = set[subprocess.Popen[bytes]]()
        self._closed = False

    async def judge(self, file: Path, fields: Sequence[ObjectNumber]) -> dict[ObjectNumber, Modification]:
        """Return the changes after the signature in each field, as far as they can be judged."""
        try:
            async with asyncio.timeout(_MAX_WAIT_SECONDS):
                await self._process_slots.acquire()
        except TimeoutError:
            return {}
        attempt = asyncio.ensure_future(asyncio.to_thread(self._run, file, fields))
        attempt.add_done_callback(lambda _: self._process_slots.release())
        return await asyncio.shield(attempt)  # a cancelled request does not end the thread

    def close(self) -> None:
        """End the processes that are running, and start no more."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()

    def _run(self, file: Path, fields: Sequence[ObjectNumber]) -> dict[ObjectNumber, Modification]:
        process = self._start()
        if process is None:
            return {}
        task = msgspec.json.encode((str(file), fields))
        try:
            written, _ = process.communicate(task, timeout=MAX_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            written, _ = process.communicate()
        finally:
            with self._lock:
                self._running.discard(process)
        judged = dict[ObjectNumber, Modification]()
        with suppress(msgspec.MsgspecError):  # the last line of a process that was killed
            for line in written.splitlines():
                field, modification = msgspec.json.decode(line, type=tuple[ObjectNumber, Modification])
                judged[field] = modification
        return judged

    def _start(self) -> subprocess.Popen[bytes] | None:
        """Return a process that has this program's libraries; None if it cannot be started."""
        command = [sys.executable, "-P", "-m", "directsuite.sandbox.signing.modifications"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_find_import_paths())}
        with self._lock, suppress(OSError):
            if not self._closed and sys.executable:
                process = subprocess.Popen(  # noqa: S603  our own module
                    command,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,  # tracebacks quote documents
                )
                self._running.add(process)
                return process
        return None


def _find_import_paths() -> list[str]:
    """Return the paths that Python searches for modules. It ignores entries that are not text."""
    entries: list[object] = [*sys.path]
    return [entry for entry in entries if isinstance(entry, str)]


def _limit_this_process() -> None:
    """Set limits that hold even if the process that started this one has gone."""
    if sys.platform == "win32":
        return
    import resource

    os.nice(10)
    seconds = int(MAX_SECONDS) + 2  # the imports before this took some
    for kind, limit in ((resource.RLIMIT_AS, _MAX_MEMORY_BYTES), (resource.RLIMIT_CPU, seconds)):
        with suppress(ValueError, OSError):  # a lower limit is set already, or the system has none of this kind
            resource.setrlimit(kind, (limit, limit))


def main() -> None:
    """Read a file's name and fields as JSON from standard input, and write a line of JSON for each judged field."""
    _limit_this_process()
    file, fields = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[str, list[ObjectNumber]])
    with Path(file).open("rb") as stored:
        for judged in _judge_each(stored, fields):
            sys.stdout.buffer.write(msgspec.json.encode(judged) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
