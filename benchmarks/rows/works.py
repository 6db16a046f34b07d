"""The work that a client does in one turn, and the process of one client.

A work returns the number of units that were done. `python -m benchmarks.rows.works ROW CLIENT SERVER FOLDER [--quick]`
does a turn of a row's work for each line of its input. Each line that it prints is a JSON object: first an empty one,
when it is ready, then the readings.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import attrs

from benchmarks.gauges import read_gauges
from benchmarks.peers import get_client
from benchmarks.peers.work import CONNECTIONS, CannotError
from benchmarks.processes import CLIENTS_CORE, pin_to_core
from benchmarks.rows.table import TABLE, MeasuredRow
from benchmarks.server import responses

_SIGNERS = 32
_HEAD, _FILLING, _END = b"%PDF-1.7\n", bytes(range(256)) * 4096, b"\n%%EOF\n"


@attrs.frozen(kw_only=True)
class WorkTask:
    """A work for one client.

    sources: files that the work reads. output: a file or folder that a turn creates, and that is removed outside the
    measurement.
    """

    options: Mapping[str, int]
    sources: Sequence[Path] = ()
    output: Path = Path()

    def remove_output(self) -> None:
        """Remove the output if there is one."""
        if self.output.is_dir():
            shutil.rmtree(self.output)
        self.output.unlink(missing_ok=True)


def make_sources(folder: Path, count: int, size: int) -> list[Path]:
    """Return files of the given size that look like PDFs. Create them when they are first used."""
    (folder := folder / f"{count} x {size}").mkdir(exist_ok=True)
    paths = [folder / f"{number}.pdf" for number in range(count)]
    for path in paths:
        if not path.exists():
            with path.open("wb") as file:
                file.write(_HEAD)
                for left in range(size - len(_HEAD) - len(_END), 0, -len(_FILLING)):
                    file.write(_FILLING[:left])
                file.write(_END)
    return paths


async def small_calls(client: Any, task: WorkTask) -> int:
    callers, each = task.options["callers"], max(1, task.options["calls"] // task.options["callers"])

    async def call() -> None:
        for _ in range(each):
            await client.message_count()

    await asyncio.gather(*(call() for _ in range(callers)))
    return each * callers


async def decode_metadata(client: Any, task: WorkTask) -> int:
    records, repeats = task.options["messages"], task.options["repeats"]
    body = responses.make_metadata(records)
    for _ in range(repeats):
        _check(client.metadata(body), records)
    return records * repeats


def _check(found: int, messages: int) -> int:
    assert found == messages, f"{found} messages of {messages}"
    return found


async def upload(client: Any, task: WorkTask) -> int:
    await client.upload(task.sources[0])
    return task.options["document"] // 1000


async def send(client: Any, task: WorkTask) -> int:
    await client.send(task.sources[0])
    return task.options["document"] // 1000


async def download(client: Any, task: WorkTask) -> int:
    size = task.options["document"]
    found = await client.download(task.output)
    assert found >= 0.99 * size, f"{found} bytes of {size}"  # the floor does not decode, so its size is rounded
    return size // 1000


async def read_messages(client: Any, task: WorkTask) -> int:
    return _check(await client.read_messages(), task.options["messages"])


async def get_messages(client: Any, task: WorkTask) -> int:
    return _check(await client.get_messages(), task.options["messages"])


async def batches(client: Any, task: WorkTask) -> int:
    count, per = task.options["batches"], task.options["per"]
    return _check(await client.batches(count, per), count * per)


async def synchronise(client: Any, task: WorkTask) -> int:
    task.output.mkdir()
    count: int = await client.synchronise(task.output, task.options["mailboxes"], task.options["messages"])
    return count


async def sign_folder(client: Any, task: WorkTask) -> int:
    task.output.mkdir()
    assert await client.sign_folder(task.sources, task.output) == len(task.sources)
    return len(task.sources)


async def sign(client: Any, task: WorkTask) -> int:
    pdf, count = task.sources[0].read_bytes(), task.options["signatures"]
    waiting = iter(range(count))

    async def signer() -> None:
        for _ in waiting:
            await client.sign(pdf)

    await asyncio.gather(*(signer() for _ in range(min(_SIGNERS, count))))
    return count


async def _serve(row: MeasuredRow, name: str, server: str, folder: Path, output: TextIO) -> None:
    """Open the client, warm it up with a small work, and do turns."""
    small, connections = row.make_quick(), row.options.get("connections", CONNECTIONS)
    client_class, work = get_client(name), globals()[row.work]

    def make_task(options: Mapping[str, Any]) -> WorkTask:
        sources = make_sources(folder, options.get("documents", 1), options["document"]) if row.reads_files else ()
        return WorkTask(options=options, sources=sources, output=folder / f"{name}.out")

    async with client_class(f"{server}/{small.scenario.to_segment()}", connections=connections) as client:
        await work(client, task := make_task(small.options))
        task.remove_output()
    task = make_task(row.options)
    async with client_class(f"{server}/{row.scenario.to_segment()}", connections=connections) as client:
        await client.message_count()
        if not row.fresh:
            await work(client, task)
        _write(output, {})
        while sys.stdin.readline():
            reading = await read_gauges(functools.partial(work, client, task), pauses=row.pauses)
            task.remove_output()
            _write(output, attrs.asdict(reading))


def _write(output: TextIO, content: dict[str, Any]) -> None:
    print(json.dumps(content), file=output, flush=True)


def main() -> None:
    """Do turns until the input ends."""
    name, client, server, folder, *options = sys.argv[1:]
    [row] = [each for each in TABLE if each.name == name]
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)  # output of a client must not mix with the readings
        pin_to_core(CLIENTS_CORE)
        try:
            asyncio.run(_serve(row.make_quick() if options else row, client, server, Path(folder), output))
        except CannotError as error:
            sys.exit(f"cannot: {error}")


if __name__ == "__main__":
    main()
