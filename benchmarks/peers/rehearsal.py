"""Every work once, small, by one client: what it can do, and whether it gives what the others give.

python -m benchmarks.peers.rehearsal NAME URL FOLDER     prints it as JSON; url: what `benchmarks.server.served` gives
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from pathlib import Path

from benchmarks.peers import CannotError, get_client
from benchmarks.peers.files import read_bytes
from benchmarks.server import make_scenario_url, responses

DOCUMENT = 200_001
MESSAGES = 12
ATTACHMENT = 1_000
BATCHES = 7
MESSAGES_PER_BATCH = 5
PDF = b"%PDF-1.7\n" + bytes(99_991)
_NUMBER = re.compile(r"<\d+")  # of a Message-ID: the server counts

Result = int | str


async def rehearse(name: str, url: str, folder: Path) -> dict[str, Result]:
    """What each work gave: a number, a digest of bytes, or the reason why the client can't do it."""
    source = folder / f"{name}.pdf"
    target = folder / f"{name}.downloaded"
    await asyncio.to_thread(source.write_bytes, PDF)
    given: dict[str, Result] = {}
    base_url = make_scenario_url(url, messages=MESSAGES, attachment=ATTACHMENT, document=DOCUMENT)
    async with get_client(name)(base_url) as opened:
        given["message_count"] = await opened.message_count()
        given["metadata"] = opened.metadata(responses.make_metadata(MESSAGES))
        given["messages"] = opened.messages(responses.make_messages(MESSAGES, ATTACHMENT))
        try:
            given["upload"] = await opened.upload(source)
        except CannotError as error:
            given["upload"] = str(error)
        given["download"] = await opened.download(target)
        given["downloaded"] = _compute_digest(read_bytes(target))
        given["send"] = _NUMBER.sub("<", await opened.send(source))
        given["read_messages"] = await opened.read_messages()
        given["batches"] = await opened.batches(BATCHES, MESSAGES_PER_BATCH)
        try:
            given["sign"] = _compute_digest(await opened.sign(PDF))
        except CannotError as error:
            given["sign"] = str(error)
    return given


def _compute_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main(arguments: list[str]) -> None:
    """Rehearse with the client, the server and the folder that are named."""
    name, url, folder = arguments
    print(json.dumps(asyncio.run(rehearse(name, url, Path(folder)))))


if __name__ == "__main__":
    main(sys.argv[1:])
