"""Every kind of source is sent completely or not at all."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pybase64
import pytest

import directsuite as ds
from directsuite.core.files import PIECE_BYTES
from tests.core import responses
from tests.core.scripted_server import Exchange, ScriptedServer
from tests.core.scripted_suite import ALICE, PASSWORD, TWO_ATTEMPTS_POLICY, catch_error, expect_error, open_suite

from .samples import PDF, Pipe, make_message, stream


class OnlyRead:
    """An object that only has `read`."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def read(self, size: int, /) -> bytes:
        return self._content.read(size)


class AsyncReader:
    """An object with an async `read`."""

    async def read(self, _size: int, /) -> bytes:
        return PDF


class SeeksSilently(OnlyRead):
    """A file whose `seek` returns None."""

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._content.tell()

    def seek(self, *where: int) -> None:
        self._content.seek(*where)


def on_disk(folder: Path) -> Path:
    path = folder / "a.pdf"
    path.write_bytes(PDF)
    return path


SOURCES: dict[str, tuple[Callable[[Path], Any], bool]] = {
    "bytes": (lambda _: PDF, True),
    "bytearray": (lambda _: bytearray(PDF), True),
    "small memoryview": (lambda _: memoryview(PDF), True),
    "path": (on_disk, True),
    "text of a path": (lambda folder: str(on_disk(folder)), True),
    "file object": (lambda _: io.BytesIO(PDF), True),
    "pipe": (lambda _: Pipe(PDF), False),
    "buffered pipe": (lambda _: io.BufferedReader(Pipe(PDF)), False),
    "only read": (lambda _: OnlyRead(PDF), False),
    "seek that returns None": (lambda _: SeeksSilently(PDF), False),
    "stream": (lambda _: stream(PDF), False),
    "stream of small pieces": (lambda _: stream(PDF, 997), False),
    "stream of one piece": (lambda _: stream(PDF, len(PDF)), False),
}


@pytest.mark.exhaustive(limit=5)
@pytest.mark.parametrize("kind", SOURCES)
async def test_source_arrives_complete(server: ScriptedServer, tmp_path: Path, kind: str) -> None:
    make, sized = SOURCES[kind]
    async with open_suite(server) as suite:
        await suite.signing.save(make(tmp_path))
    assert pybase64.b64decode(server.requests[0].body, validate=True) == PDF
    assert ("content-length" in server.requests[0].headers) == sized


@pytest.mark.exhaustive(limit=5)
@pytest.mark.parametrize(
    "kind", sorted(SOURCES.keys() - {"seek that returns None"})
)  # its size is unknown, but it can seek
async def test_replayable_source_is_sent_again(server: ScriptedServer, tmp_path: Path, kind: str) -> None:
    make, again = SOURCES[kind]
    server.enqueue(responses.reset)
    async with open_suite(server) as suite:
        if again:
            await suite.signing.save(make(tmp_path))
            assert pybase64.b64decode(server.requests[1].body) == PDF
        else:
            assert (await catch_error(suite.signing.save(make(tmp_path)))).attempts == 1


async def test_file_is_sent_from_its_position_and_stays_open(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    file = io.BytesIO(b"before" + PDF)
    file.seek(6)
    server.enqueue(responses.reset)
    await suite.signing.save(file)
    assert [pybase64.b64decode(request.body) for request in server.requests] == [PDF, PDF]
    assert not file.closed


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("size", [1, 1000, PIECE_BYTES, PIECE_BYTES + 1, 500_009])
async def test_size_given_is_the_length_announced(server: ScriptedServer, suite: ds.DirectSuite, size: int) -> None:
    content = b"%PDF-" + os.urandom(size)
    await suite.signing.save(stream(content), size=len(content))
    assert int(server.requests[0].headers["content-length"]) == len(server.requests[0].body)
    assert pybase64.b64decode(server.requests[0].body) == content


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize("pieces", [1, 1000, PIECE_BYTES, 10**7])
@pytest.mark.parametrize("off", [-1, -200_000, 1, 3, 200_000])
async def test_source_of_another_size_never_completes_its_request(
    server: ScriptedServer, suite: ds.DirectSuite, off: int, pieces: int
) -> None:
    content = PDF if pieces > 1 else PDF[:200]
    size = max(len(content) - off, 9)
    if size == len(content):
        pytest.skip("no other size")
    error = await catch_error(suite.signing.save(stream(content, pieces), size=size))
    assert (type(error), error.outcome) == (ds.TransportError, ds.Outcome.FAILED)
    assert len(server.requests) <= 1
    assert all(request.body == b"" for request in server.requests)  # the body is incomplete


NOT_PDF: dict[str, Callable[[], Any]] = {
    "bytes": lambda: b"GIF89a" + bytes(2000),
    "late magic": lambda: bytes(1024) + b"%PDF-1.7",
    "file object": lambda: io.BytesIO(b"GIF89a"),
    "file object that stands behind": lambda: _standing(PDF, 10),
    "pipe": lambda: Pipe(b"GIF89a" + bytes(500_000)),
    "stream": lambda: stream(b"GIF89a" + bytes(500_000)),
    "stream of bytes": lambda: stream(bytes(1020) + b"%PDF-1.7", 1),
    "spent stream": lambda: stream(b""),
}


def _standing(content: bytes, position: int) -> io.BytesIO:
    file = io.BytesIO(content)
    file.seek(position)
    return file


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize("kind", NOT_PDF)
async def test_invalid_pdf_is_rejected_before_anything_is_sent(server: ScriptedServer, kind: str) -> None:
    async with open_suite(server) as suite:
        error = await expect_error(ds.InvalidArgumentError, suite.signing.save(NOT_PDF[kind]()))
    assert error.parameter == "pdf"
    assert server.requests == []


async def test_magic_may_stand_anywhere_in_the_first_kb_of_a_stream(server: ScriptedServer) -> None:
    content = bytes(1019) + b"%PDF-1.7"
    async with open_suite(server) as suite:
        await suite.signing.save(stream(content, 10))
    assert pybase64.b64decode(server.requests[0].body) == content


async def test_source_that_fails_before_its_first_byte_has_sent_nothing(server: ScriptedServer) -> None:
    async def broken() -> AsyncGenerator[bytes]:
        async for piece in stream(PDF):
            if piece.startswith(b"%PDF"):
                raise ValueError("of the user's")
            yield piece

    reported: list[ds.Event] = []
    async with open_suite(server, listeners=[reported.append]) as suite:
        with pytest.raises(ValueError, match="of the user's"):
            await suite.signing.save(broken())
    assert [event.outcome for event in reported if isinstance(event, ds.AttemptFailed)] == [ds.Outcome.NOT_SENT]
    assert server.requests == []


CLOSED_FILE = io.BytesIO(PDF)
CLOSED_FILE.close()
REJECTED: list[tuple[Any, Any, str]] = [
    (CLOSED_FILE, None, "pdf"),
    (io.StringIO("%PDF-"), None, "pdf"),
    (5, None, "pdf"),
    (AsyncReader(), None, "pdf"),
    (io.BufferedWriter(io.BytesIO()), None, "pdf"),
    (None, None, "pdf"),
    (PDF, 3, "size"),
    (io.BytesIO(PDF), 3, "size"),
    (stream(PDF), -1, "size"),
    (stream(PDF), 2.5, "size"),
]


@pytest.mark.exhaustive(limit=5)
@pytest.mark.parametrize(("source", "size", "parameter"), REJECTED)
async def test_invalid_source_is_rejected(server: ScriptedServer, source: Any, size: Any, parameter: str) -> None:
    async with open_suite(server) as suite:
        error = await expect_error(ds.InvalidArgumentError, suite.signing.save(source, size=size))
    assert error.parameter == parameter
    assert server.requests == []


async def test_attachments_of_files_and_streams_arrive_complete(server: ScriptedServer, tmp_path: Path) -> None:
    file = on_disk(tmp_path).open("rb")
    attachments = [
        ds.Attachment.from_path(on_disk(tmp_path)),
        ds.Attachment.from_file(file),
        ds.Attachment.from_file(Pipe(PDF), filename="b.xml", size=len(PDF)),
        ds.Attachment.from_stream(stream(PDF), filename="c", size=len(PDF)),
        ds.Attachment(content=PDF, content_type="a/b", filename="d"),
    ]
    async with open_suite(server, retry=TWO_ATTEMPTS_POLICY) as suite:
        await suite.mailbox(ALICE, PASSWORD).send(make_message(*attachments))
    entries = server.requests[0].document["message"]["attachmentList"]
    assert [pybase64.b64decode(entry["content"]) for entry in entries] == [PDF] * 5
    assert [entry["filename"] for entry in entries] == ["a.pdf", "a.pdf", "b.xml", "c", "d"]
    assert entries[1]["contentType"] == "application/pdf"
    assert "content-length" in server.requests[0].headers
    assert not file.closed
    file.close()


async def test_stream_that_was_sent_is_not_sent_again_as_an_empty_one(server: ScriptedServer) -> None:
    letter = make_message(ds.Attachment.from_stream(stream(PDF), filename="a"))
    async with open_suite(server) as suite:
        await suite.mailbox(ALICE, PASSWORD).send(letter)
        await expect_error(ds.InvalidArgumentError, suite.mailbox(ALICE, PASSWORD).send(letter))
    assert len(server.requests) == 1


async def test_attachment_shows_nothing_of_its_source() -> None:
    shown = repr(ds.Attachment.from_file(io.BytesIO(PDF), filename="Zaphod.pdf"))
    assert "Zaphod" not in shown
    assert ds.Attachment.from_stream(stream(PDF), filename="a") != ds.Attachment.from_stream(stream(PDF), filename="a")


async def test_file_that_is_removed_before_another_attempt_is_missing(server: ScriptedServer, tmp_path: Path) -> None:
    path = tmp_path / "Ada Example.pdf"
    path.write_bytes(b"%PDF-1.7\n" + bytes(2 * PIECE_BYTES))

    async def remove(exchange: Exchange) -> None:
        await exchange.read()
        path.unlink()
        await responses.respond({}, 503, **{"Retry-After": "0"})(exchange)

    server.enqueue(remove)
    async with open_suite(server, retry=TWO_ATTEMPTS_POLICY) as suite:
        error = await expect_error(ds.MissingFileError, suite.signing.save(path))
    assert (error.filename, error.outcome) == (str(path), ds.Outcome.FAILED)
    assert "Ada" not in str(error)


async def test_missing_and_unreadable_files_are_os_errors(server: ScriptedServer, tmp_path: Path) -> None:
    paths = tmp_path / "Ada Example.pdf", Path(__file__) / "a.pdf", tmp_path / "loop"
    paths[2].symlink_to(paths[2])
    async with open_suite(server) as suite:
        missing, below_a_file, unreadable = [await catch_error(suite.signing.save(path)) for path in paths]
    assert [type(error) for error in (missing, below_a_file)] == [ds.MissingFileError] * 2
    assert issubclass(ds.MissingFileError, FileNotFoundError)
    assert type(unreadable) is ds.UnreadableFileError
    errors: list[ds.UnreadableFileError] = [
        error for error in (missing, below_a_file, unreadable) if isinstance(error, ds.UnreadableFileError)
    ]
    errors += [error.copy() for error in errors]
    assert [error.errno for error in errors] == [errno.ENOENT, errno.ENOENT, errno.ELOOP] * 2
    assert [error.filename for error in errors] == [str(path) for path in paths] * 2
    assert "Ada" not in repr(errors)
    assert {str(missing), str(below_a_file)} == {"pdf: the file does not exist: check the path, which is in .filename"}
    assert server.requests == []
