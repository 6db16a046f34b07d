"""`directsuite sign` for one PDF at a time: into one file, verify, info, flatten and clear.

Each saves the PDF with the service, does one thing, and deletes it there again. No journal is needed: what is broken
off has changed nothing here, and the same command begins with the source again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from directsuite.cli.command import Command, request_listeners
from directsuite.cli.credentials import settings_for, token
from directsuite.cli.errors import RefusedError, naming
from directsuite.cli.options import DocumentOutputOptions, SignOptions, TokenOptions
from directsuite.cli.output import members_of, progress, show_json, show_table
from directsuite.cli.process import NOTHING_CHANGED, ExitStatus, say
from directsuite.cli.sign import INVISIBLE, is_invisible, signatures_of
from directsuite.core.failures import reason_of
from directsuite.errors import DirectSuiteError
from directsuite.signing.models import DocumentInfo, DocumentSignature, StoredDocument
from directsuite.signing.service import Signing
from directsuite.suite import DirectSuite

_PDF = ".pdf"
_DELETING = 5.0  # seconds: what isn't deleted expires by itself

_Change = Callable[[Signing, StoredDocument, Path], Awaitable[object]]


def is_one_file(sources: Sequence[Path], output: Path) -> bool:
    """Return True if `sign` is asked for one file, not a folder: one source that is a file, and --output some.pdf."""
    return len(sources) == 1 and sources[0].is_file() and output.suffix.lower() == _PDF and not output.is_dir()


def sign_one(source: Path, options: SignOptions) -> int:
    """Sign one PDF into one file, and return the exit status."""

    def begin() -> Coroutine[Any, Any, int]:
        signatures = signatures_of(options)
        if options.dry_run or options.again:
            raise RefusedError("--dry-run and --again are for folders: give --output FOLDER, or leave them out")

        async def sign(signing: Signing, stored: StoredDocument, output: Path) -> None:
            """Sign the stored PDF into a file, as its options say."""
            await signing.multi_sign_and_pull(stored, signatures, destination=output)

        return _writing(source, options, sign)

    return _command().run(begin)


def flatten(source: Path, options: DocumentOutputOptions) -> int:
    """Flatten one PDF into another file, and return the exit status."""
    return _command().run(lambda: _writing(source, options, _flatten))


def clear(source: Path, options: DocumentOutputOptions) -> int:
    """Remove the unsigned fields of one PDF into another file, and return the exit status."""
    return _command().run(lambda: _writing(source, options, _clear))


def verify(sources: Sequence[Path], options: TokenOptions) -> int:
    """Show the signatures of PDFs, and return the exit status: done where each has some, and all are valid."""
    return _command().run(lambda: _verify(sources, options))


def info(source: Path, options: TokenOptions) -> int:
    """Show the pages, fields and properties of a PDF, and return the exit status."""
    return _command().run(lambda: _info(source, options))


def _command() -> Command:
    return Command(resume=NOTHING_CHANGED, options={"pdf": "the PDF", "destination": "--output"})


async def _flatten(signing: Signing, stored: StoredDocument, output: Path) -> None:
    await signing.flatten_and_pull(stored, destination=output)


async def _clear(signing: Signing, stored: StoredDocument, output: Path) -> None:
    await signing.clear_unsigned_fields_and_pull(stored, destination=output)


def _writing(source: Path, options: DocumentOutputOptions | SignOptions, change: _Change) -> Coroutine[Any, Any, int]:
    """Have the service change a PDF, and write it to a file, whole or not at all. Raises RefusedError."""
    if options.output.is_dir():
        raise RefusedError("--output is a folder: name a file")
    if options.output.exists() and not options.overwrite:
        raise RefusedError("the file of --output is there already: name another, or give --overwrite")
    return _write(_suite(options), source, options, change)


async def _write(
    suite: DirectSuite, source: Path, options: DocumentOutputOptions | SignOptions, change: _Change
) -> int:
    async with suite, progress("working"), _stored(suite.signing, source) as stored:
        await change(suite.signing, stored, options.output)
    if options.json:
        show_json({"output": str(options.output)})
    else:
        say(f"written to {options.output.name}")
    if isinstance(options, SignOptions) and is_invisible(options) and not options.json:
        say(INVISIBLE)
    return ExitStatus.DONE


async def _verify(sources: Sequence[Path], options: TokenOptions) -> int:
    suite = _suite(options)
    found = list[tuple[str, list[DocumentSignature]]]()
    async with suite, progress("verifying", unit="pieces", total=len(sources)) as bar:
        for source in sources:
            found.append((str(source), [each for each in (await _read(suite, source)).signatures if each.is_signed]))
            bar.advance()
    if options.json:
        show_json([{"file": file, "signatures": [members_of(each) for each in signed]} for file, signed in found])
    else:
        show_table(
            ("file", "signature", "signer", "time", "reason", "valid"),
            [
                (file, each.name, each.signer_name, _moment(each.signature_time), each.reason, _in_words(each.is_valid))
                for file, signed in found
                for each in signed
            ],
            whole=("file",),
        )
    unsigned = sum(not signed for _, signed in found)
    invalid = sum(any(each.is_valid is False for each in signed) for _, signed in found)
    if unsigned:
        say(f"{unsigned} of {len(found)} PDFs have no signature")
    if invalid:
        say(f"{invalid} of {len(found)} PDFs have a signature that isn't valid")
    return ExitStatus.FAILED if unsigned or invalid else ExitStatus.DONE


def _moment(text: str | None) -> datetime | str | None:
    """A time of a signature, which some services write in forms of their own."""
    with suppress(ValueError):
        return None if text is None else datetime.fromisoformat(text)
    return text


def _in_words(is_valid: bool | None) -> str:
    return "" if is_valid is None else "valid" if is_valid else "NOT VALID"


async def _info(source: Path, options: TokenOptions) -> int:
    suite = _suite(options)
    async with suite, progress("reading"):
        found = await _read(suite, source)
    if options.json:
        show_json(members_of(found))
        return ExitStatus.DONE
    pages = [f"{each.width:g} x {each.height:g}" for each in found.pages if each.width and each.height]
    rows: list[Sequence[object]] = [("Pages", len(found.pages))]
    rows += [("Page size", size) for size in dict.fromkeys(pages)]
    rows += [("Field", f"{each.name}: {each.value}" if each.value else each.name) for each in found.form_fields]
    rows += [
        ("Signature", f"{each.name}: {_in_words(each.is_valid) if each.is_signed else 'not signed'}")
        for each in found.signatures
    ]
    rows += sorted(found.meta_data.items())
    show_table(("", "PDF"), rows)
    return ExitStatus.DONE


async def _read(suite: DirectSuite, source: Path) -> DocumentInfo:
    async with _stored(suite.signing, source) as stored:
        return await suite.signing.get_doc_info(stored)


@asynccontextmanager
async def _stored(signing: Signing, source: Path) -> AsyncGenerator[StoredDocument]:
    """The PDF as the service has it meanwhile. Raises RefusedError where it can't be read."""
    try:
        with source.open("rb"):
            pass
    except OSError as error:
        raise RefusedError(f"{naming('the PDF', source)} can't be read, {reason_of(error)}: give another") from None
    stored = await signing.save(source)
    try:
        yield stored
    finally:
        with suppress(DirectSuiteError):
            await signing.delete(stored.identifier, timeout=_DELETING)


def _suite(options: TokenOptions | SignOptions) -> DirectSuite:
    return DirectSuite(settings_for("signing"), token=token(options.token_file), listeners=request_listeners())
