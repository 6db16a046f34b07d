"""Every work of a client once, in a small size: `python -m tests.benchmarks.rehearsal NAME URL FOLDER` prints JSON."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from benchmarks.peers import get_client
from benchmarks.peers.work import CannotError
from benchmarks.server import make_scenario_url, responses

DOCUMENT, MESSAGES, ATTACHMENT, BATCHES, PER_BATCH = 200_001, 12, 1_000, 7, 5
PDF = b"%PDF-1.7\n" + bytes(99_991)


async def rehearse(name: str, url: str, folder: Path) -> dict[str, Any]:
    """Return the result of each work: a number, a digest of bytes, or the reason why the client cannot do it."""
    source, target = folder / f"{name}.pdf", folder / f"{name}.downloaded"
    await asyncio.to_thread(source.write_bytes, PDF)
    base_url = make_scenario_url(url, messages=MESSAGES, attachment=ATTACHMENT, document=DOCUMENT)
    async with get_client(name)(base_url) as client:
        return {
            "message_count": await client.message_count(),
            "metadata": client.metadata(responses.make_metadata(MESSAGES)),
            "get_messages": await client.get_messages(),
            "upload": await _try(client.upload(source)),
            "download": await client.download(target),
            "downloaded": _digest(await asyncio.to_thread(target.read_bytes)),
            "send": re.sub(r"<\d+", "<", await client.send(source)),  # without the number of the message
            "read_messages": await client.read_messages(),
            "batches": await client.batches(BATCHES, PER_BATCH),
            "sign": await _try(client.sign(PDF)),
        }


async def _try(work: Awaitable[Any]) -> Any:
    try:
        result = await work
    except CannotError as error:
        return str(error)
    return _digest(result) if isinstance(result, bytes) else result


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(rehearse(sys.argv[1], sys.argv[2], Path(sys.argv[3])))))  # noqa: T201
