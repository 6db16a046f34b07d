"""Judge whether changes after a signature invalidate it, with limited time and memory.

pyHanko follows every path to a changed object. The number of paths can be exponential: 40 objects that each refer twice
to the next one exhaust any memory. Therefore there are two attempts:

    1. in this process, with a limited number of object lookups, which is enough for most documents
    2. in a separate process with limited time and memory

If both fail, the modification remains UNKNOWN. Fields of a document are identified by their object numbers.
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
"""The maximum for a document in the first attempt."""
MAX_SECONDS = 3.0
"""The maximum duration of the second attempt."""
_MAX_WAIT_SECONDS = 2.0  # before the second attempt starts
_MAX_PROCESSES = 2
_MAX_MEMORY_BYTES = 2**30  # bytes of a process

ObjectNumber: TypeAlias = tuple[int, int]
"""The number and generation of a PDF object."""


class Modification(NamedTuple):
    """The judgment of the changes after a signature."""

    level: str
    """The name of pyHanko's ModificationLevel, or UNKNOWN."""
    allowed: bool
    """True if the changes do not invalidate the signature."""


UNKNOWN = Modification("UNKNOWN", allowed=True)


class TooManyLookupsError(Exception):
    """The first attempt has exceeded MAX_LOOKUPS."""


class _CountingResolver(HistoricalResolver):
    def __init__(self, limited: LimitedReader, revision: int) -> None:
        original: Any = super()  # pyHanko's methods have no types
        original.__init__(limited, revision)
        self._limited = limited

    def get_object(self, ref: Reference, as_metadata_stream: bool = False) -> Any:
        self._limited.count_lookup()
        original: Any = super()
        return original.get_object(ref, as_metadata_stream)


class LimitedReader(PdfFileReader):
    """A reader that raises TooManyLookupsError after MAX_LOOKUPS lookups in earlier revisions of the document."""

    _lookups_left = MAX_LOOKUPS

    def count_lookup(self) -> None:
        """Count a lookup in an earlier revision. Raises TooManyLookupsError after MAX_LOOKUPS."""
        self._lookups_left -= 1
        if self._lookups_left < 0:
            raise TooManyLookupsError

    def get_historical_resolver(self, revision: int) -> HistoricalResolver:
        """Return a resolver for one revision of the document, which counts its lookups."""
        resolvers: dict[int, HistoricalResolver] = self._historical_resolver_cache
        return resolvers.setdefault(revision, _CountingResolver(self, revision))


def open_signature(opened: PdfFileReader, field: ObjectNumber, name: str = "") -> Any:
    """Return pyHanko's object for the signature in a field. May raise any exception if it is malformed."""
    dictionary: Any = Reference(*field, opened).get_object()
    return EmbeddedPdfSignature(opened, dictionary, name)


def judge(signature: Any) -> Modification:
    """Judge the changes after a signature that `open_signature` has returned.

    With a LimitedReader, raises TooManyLookupsError after MAX_LOOKUPS. May raise any exception if the document is
    malformed.
    """
    signature.coverage = signature.evaluate_signature_coverage()
    found: Any = signature.evaluate_modifications(POLICY)
    level: Any = found.modification_level if isinstance(found, DiffResult) else ModificationLevel.OTHER
    permitted: Any = signature.docmdp_level
    allowed = level != ModificationLevel.OTHER and (permitted is None or level.value <= permitted.value)
    return Modification(str(level.name), allowed=bool(allowed))


def _judge_each(stored: BinaryIO, fields: Sequence[ObjectNumber]) -> Iterator[tuple[ObjectNumber, Modification]]:
    """Yield the judgments, last signature first, because it has the fewest later changes. Skip failures."""
    for field in reversed(fields):
        with suppress(Exception):  # a malformed object only affects its own signature
            yield field, judge(open_signature(open_reader(stored), field))


class ModificationProcesses:
    """Runs second attempts in a limited number of processes."""

    def __init__(self) -> None:
        self._process_slots = asyncio.Semaphore(_MAX_PROCESSES)
        self._lock = threading.Lock()
        self._running = set[subprocess.Popen[bytes]]()
        self._closed = False

    async def judge(self, file: Path, fields: Sequence[ObjectNumber]) -> dict[ObjectNumber, Modification]:
        """Return the judgments by field. Fields are missing if they are malformed or need too much time or memory.

        All are missing if no process is free for two seconds, or none can be started.
        """
        try:
            async with asyncio.timeout(_MAX_WAIT_SECONDS):
                await self._process_slots.acquire()
        except TimeoutError:
            return {}
        attempt = asyncio.ensure_future(asyncio.to_thread(self._run, file, fields))
        attempt.add_done_callback(lambda _: self._process_slots.release())
        return await asyncio.shield(attempt)  # cancelling cannot end the thread

    def close(self) -> None:
        """End the running processes, and prevent new ones."""
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
        with suppress(msgspec.MsgspecError):  # the last line of a killed process may be incomplete
            for line in written.splitlines():
                field, modification = msgspec.json.decode(line, type=tuple[ObjectNumber, Modification])
                judged[field] = modification
        return judged

    def _start(self) -> subprocess.Popen[bytes] | None:
        command = [sys.executable, "-P", "-m", "directsuite.sandbox.signing.modifications"]
        entries: list[object] = [*sys.path]  # Python ignores entries that are not strings
        paths = [entry for entry in entries if isinstance(entry, str)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        with self._lock, suppress(OSError):
            if not self._closed and sys.executable:
                process = subprocess.Popen(  # noqa: S603  this module
                    command,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,  # tracebacks quote documents
                )
                self._running.add(process)
                return process
        return None


def _limit_this_process() -> None:
    """Limit the time and memory of this process (not on Windows), because its parent may end first."""
    if sys.platform == "win32":
        return
    import resource

    os.nice(10)
    seconds = int(MAX_SECONDS) + 2  # including the time of the imports
    for kind, limit in ((resource.RLIMIT_AS, _MAX_MEMORY_BYTES), (resource.RLIMIT_CPU, seconds)):
        with suppress(ValueError, OSError):  # a lower limit exists, or it is not supported
            resource.setrlimit(kind, (limit, limit))


def main() -> None:
    """Read a file name and fields as JSON from standard input, and write each judgment as a line of JSON."""
    _limit_this_process()
    file, fields = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[str, list[ObjectNumber]])
    with Path(file).open("rb") as stored:
        for judged in _judge_each(stored, fields):
            sys.stdout.buffer.write(msgspec.json.encode(judged) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
