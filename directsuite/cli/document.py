"""`directsuite sign` for one PDF at a time: into one file, verify, info, flatten and clear.

Each saves the PDF with the service, does one thing, and deletes it there again. No journal is needed: what is broken
off has changed nothing here, and the same command begins with the source again.
"""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.command import Command, request_listeners
from directsuite.cli.credentials import settings_for, token
from directsuite.cli.errors import RefusedError, ending_of, naming, words_of
from directsuite.cli.options import DocumentOutputOptions, SignOptions, TokenOptions
from directsuite.cli.output import members_of, progress, show_json, show_table
from directsuite.cli.process import NOTHING_CHANGED, ExitStatus, say
from directsuite.cli.sign import INVISIBLE, is_invisible, signatures_of
from directsuite.cli.sign_sources import is_named_as_pdf, same_file
from directsuite.core.failures import reason_of
from directsuite.errors import BadRequestError, DirectSuiteError, InvalidArgumentError
from directsuite.signing.models import DocumentInfo, DocumentSignature, StoredDocument
from directsuite.signing.service import Signing
from directsuite.suite import DirectSuite

_PDF = ".pdf"
_DELETING = 5.0  # seconds: what isn't deleted expires by itself
_WHY_NOT_VALID = "for instance, the PDF was changed after it was signed, or the service doesn't trust the certificate"

_Change = Callable[[Signing, StoredDocument, Path], Awaitable[object]]


def is_one_file(sources: Sequence[Path], output: Path) -> bool:
    """Return True if `sign` is asked for one file, not a folder: one source that is a file, and --output some.pdf."""
    return len(sources) == 1 and sources[0].is_file() and is_named_as_pdf(output)


def sign_one(source: Path, options: SignOptions) -> int:
    """Sign one PDF into one file, and return the exit status."""

    def begin() -> Coroutine[Any, Any, int]:
        signatures = signatures_of(options)
        if options.dry_run or options.again:
            raise RefusedError("--dry-run and --again are for folders: give --output FOLDER, or leave them out")

        async def sign(signing: Signing, stored: StoredDocument, output: Path) -> None:
            """Sign the stored PDF into a file, as its options say. Raises RefusedError."""
            if not options.widget:
                await _refuse_unknown_fields(signing, stored, options.name)
            await signing.multi_sign_and_pull(stored, signatures, destination=output)

        return _writing(source, options, sign)

    return _command(source).run(begin)


def flatten(source: Path, options: DocumentOutputOptions) -> int:
    """Flatten one PDF into another file, and return the exit status."""
    return _command(source).run(lambda: _writing(source, options, _flatten))


def clear(source: Path, options: DocumentOutputOptions) -> int:
    """Remove the unsigned fields of one PDF into another file, and return the exit status."""
    return _command(source).run(lambda: _writing(source, options, _clear))


def verify(sources: Sequence[Path], options: TokenOptions) -> int:
    """Show the signatures of PDFs, and return the exit status: done where each has some, and all are valid."""
    is_one = len(sources) == 1 and not sources[0].is_dir()
    return _command(*sources).run(lambda: _verify(list(_pdfs_of(sources)), options, is_one=is_one))


def info(source: Path, options: TokenOptions) -> int:
    """Show the pages, fields and properties of a PDF, and return the exit status."""
    return _command(source).run(lambda: _info(source, options))


def _command(*sources: Path) -> Command:
    """The command on these PDFs, which names one where it is the only one."""
    pdf = naming("the PDF", sources[0]) if len(sources) == 1 else "a PDF"
    return Command(resume=NOTHING_CHANGED, options={"pdf": pdf, "destination": "--output"})


async def _refuse_unknown_fields(signing: Signing, stored: StoredDocument, names: Sequence[str]) -> None:
    """Raise RefusedError where the PDF lacks an empty field of one of the names: its signature would be invisible."""
    if not names:
        return
    fields = {each.name for each in (await signing.get_doc_info(stored)).signatures if not each.is_signed}
    for name in names:
        if name not in fields:
            raise RefusedError(
                f"the PDF has no empty signature field {naming('of the name in --name', name)}: `directsuite sign "
                "info` lists those that it has; --widget makes a new one of that name"
            )


async def _flatten(signing: Signing, stored: StoredDocument, output: Path) -> None:
    await signing.flatten_and_pull(stored, destination=output)


async def _clear(signing: Signing, stored: StoredDocument, output: Path) -> None:
    await signing.clear_unsigned_fields_and_pull(stored, destination=output)


def _writing(source: Path, options: DocumentOutputOptions | SignOptions, change: _Change) -> Coroutine[Any, Any, int]:
    """Have the service change a PDF, and write it to a file, whole or not at all. Raises RefusedError."""
    output = naming("the file of --output", options.output)
    if options.output.is_dir():
        raise RefusedError("--output is a folder: name a file")
    if same_file(options.output, source):
        raise RefusedError(f"{output} is the PDF itself: name another")
    if options.output.exists() and not options.overwrite:
        raise RefusedError(f"{output} is there already: name another, or give --overwrite")
    return _write(_suite(options), source, options, change)


async def _write(
    suite: DirectSuite, source: Path, options: DocumentOutputOptions | SignOptions, change: _Change
) -> int:
    async with suite, progress("working"), _stored(suite.signing, source) as stored:
        await change(suite.signing, stored, options.output)
    if options.json:
        show_json({"output": str(options.output)})
    else:
        say(f"written to {naming('the file of --output', options.output)}")
    if isinstance(options, SignOptions) and is_invisible(options) and not options.json:
        say(INVISIBLE)
    return ExitStatus.DONE


@attrs.frozen(kw_only=True, repr=False)
class _Verified:
    """What the service says of the signatures of a PDF."""

    file: Path
    signatures: Sequence[DocumentSignature] = ()
    problem: str | None = None
    """Why it says nothing."""

    @property
    def rows(self) -> list[Sequence[object]]:
        """A row of the table for each signature, or one that says that there is none."""
        if self.problem is not None or not self.signatures:
            return [(self.file, None, None, None, None, "no signature" if self.problem is None else "not known")]
        return [
            (
                self.file,
                each.name,
                each.signer_name,
                _moment(each.signature_time),
                each.reason,
                _in_words(each.is_valid),
            )
            for each in self.signatures
        ]


def _pdfs_of(sources: Sequence[Path]) -> Iterator[Path]:
    """The PDFs, and those of the folders. Raises RefusedError where there is none, OSError."""
    for source in sources:
        if not source.is_dir():
            yield source
            continue
        pdfs = sorted(each for each in source.iterdir() if each.suffix.lower() == _PDF and each.is_file())
        if not pdfs:
            raise RefusedError(f"{naming('the folder', source)} has no PDF: give another")
        yield from pdfs


async def _verify(files: Sequence[Path], options: TokenOptions, *, is_one: bool) -> int:
    """Show the signatures of the files. is_one: a single file was given, whose problem ends the command."""
    suite = _suite(options)
    found = list[_Verified]()
    async with suite, progress("verifying", unit="pieces", total=len(files)) as bar:
        for number, file in enumerate(files, start=1):
            try:
                signatures = (await _read(suite, file)).signatures
            except (RefusedError, InvalidArgumentError, BadRequestError) as error:
                if is_one:
                    raise
                _, problem = ending_of(error, options={"pdf": naming("the PDF", file)})
                found.append(_Verified(file=file, problem=problem))
                say(f"number {number}: {problem}")
            else:
                found.append(_Verified(file=file, signatures=[each for each in signatures if each.is_signed]))
            bar.advance()
    if options.json:
        show_json(
            [
                {
                    "file": str(each.file),
                    "signatures": [members_of(signature) for signature in each.signatures],
                    "problem": each.problem,
                }
                for each in found
            ]
        )
    else:
        rows = [row for each in found for row in each.rows]
        show_table(("file", "signature", "stated signer", "time", "reason", "valid"), rows, whole=("file",))
    unsigned = sum(each.problem is None and not each.signatures for each in found)
    invalid = sum(any(signature.is_valid is False for signature in each.signatures) for each in found)
    if unsigned:
        say(f"{unsigned} of {len(found)} PDFs have no signature")
    if invalid:
        say(f"{invalid} of {len(found)} PDFs have a signature that isn't valid: {_WHY_NOT_VALID}")
    is_unknown = any(each.problem is not None for each in found)
    return ExitStatus.FAILED if unsigned or invalid or is_unknown else ExitStatus.DONE


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
    try:
        stored = await signing.save(source)
    except BadRequestError as error:
        if await asyncio.to_thread(_is_encrypted, source):
            pdf = naming("the PDF", source)
            raise RefusedError(f"{pdf} is encrypted{words_of(error)}: save a copy of it without a password") from None
        raise
    try:
        yield stored
    finally:
        with suppress(DirectSuiteError):
            await signing.delete(stored.identifier, timeout=_DELETING)


def _is_encrypted(pdf: Path) -> bool:
    with pdf.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"/Encrypt") >= 0


def _suite(options: TokenOptions | SignOptions) -> DirectSuite:
    return DirectSuite(settings_for("signing"), token=token(options.token_file), listeners=request_listeners())
