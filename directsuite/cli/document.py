"""`directsuite sign` for one PDF at a time: into one file, verify, info, flatten and clear.

Each saves the PDF with the service, does one thing, and deletes it there again. No journal is needed: what is broken
off has changed nothing here, and the same command begins with the source again.
"""

from __future__ import annotations

import asyncio
import mmap
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.command import Command, request_listeners
from directsuite.cli.credentials import settings_for, token
from directsuite.cli.errors import RefusedError, ending_of, naming, words_of
from directsuite.cli.options import DocumentOutputOptions, SignOptions, TokenOptions, VerifyOptions
from directsuite.cli.output import members_of, progress, show_json, show_table
from directsuite.cli.process import NOTHING_CHANGED, ExitStatus, say
from directsuite.cli.sign import INVISIBLE, is_invisible, signatures_of
from directsuite.cli.sign_sources import is_named_as_pdf, no_pdf, pdfs_in, problem_of_source, same_file
from directsuite.core.failures import Scope, scope_of
from directsuite.errors import BadRequestError, DirectSuiteError, InvalidArgumentError, NotFoundError
from directsuite.signing.models import DocumentInfo, DocumentSignature, StoredDocument
from directsuite.signing.service import Signing
from directsuite.suite import DirectSuite

_DELETING = 5.0  # seconds: what isn't deleted expires by itself
_ENCRYPTED = re.compile(rb"/Encrypt[\s<]")
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
            if options.name:
                _refuse_fields((await signing.get_doc_info(stored)).signatures, options)
            await signing.multi_sign_and_pull(stored, signatures, destination=output)

        return _writing(source, options, sign)

    return _command(source).run(begin)


def flatten(source: Path, options: DocumentOutputOptions) -> int:
    """Flatten one PDF into another file, and return the exit status."""
    return _command(source).run(lambda: _writing(source, options, _flatten))


def clear(source: Path, options: DocumentOutputOptions) -> int:
    """Remove the unsigned fields of one PDF into another file, and return the exit status."""
    return _command(source).run(lambda: _writing(source, options, _clear))


def verify(sources: Sequence[Path], options: VerifyOptions) -> int:
    """Show the signatures of PDFs, and return the exit status: done where each has some, and all are valid."""
    is_one = len(sources) == 1 and not sources[0].is_dir()
    return _command(*sources).run(lambda: _verify(_pdfs_of(sources, options), options, is_one=is_one))


def info(source: Path, options: TokenOptions) -> int:
    """Show the pages, fields and properties of a PDF, and return the exit status."""
    return _command(source).run(lambda: _info(source, options))


def _command(*sources: Path) -> Command:
    """The command on these PDFs, which names one where it is the only one."""
    pdf = naming("the PDF", sources[0]) if len(sources) == 1 else "a PDF"
    return Command(resume=NOTHING_CHANGED, options={"pdf": pdf, "destination": "--output"})


def _refuse_fields(fields: Sequence[DocumentSignature], options: SignOptions) -> None:
    """Raise RefusedError where a name of the options is that of no empty field, or with --widget that of any field.

    The service would sign invisibly, or pass over the widget.
    """
    is_there = {each.name: each.is_signed for each in fields}
    for name in options.name:
        named = naming("of the name in --name", name)
        if options.widget and name in is_there:
            raise RefusedError(
                f"the PDF has a signature field {named}, and that has a place: leave --widget out, or give a new name"
            )
        if not options.widget and is_there.get(name, True):
            raise RefusedError(
                f"the PDF has no empty signature field {named}: {_those_of(is_there)}; --widget makes one of that name"
            )


def _those_of(is_there: Mapping[str | None, bool | None]) -> str:
    """Which fields are empty, where stderr may name them."""
    empty = [name for name, is_signed in is_there.items() if name and not is_signed]
    if not empty:
        return "it has none at all"
    return naming("`directsuite sign info` lists those that it has", ", ".join(empty))


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


@attrs.frozen(repr=False)
class _Verified:
    """What the service says of the signatures of a PDF."""

    file: Path
    problem: str | None = None
    """Why it says nothing."""
    signatures: Sequence[DocumentSignature] = ()

    @property
    def rows(self) -> list[Sequence[object]]:
        """A row of the table for each signature, or one that says that there is none."""
        if self.problem is not None or not self.signatures:
            state = "no signature" if self.problem is None else f"not known: {self.problem}"
            return [(self.file, None, None, None, None, state)]
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


def _pdfs_of(sources: Sequence[Path], options: VerifyOptions) -> list[tuple[Path, str | None]]:
    """The PDFs, and those of the folders, each with its problem. Raises RefusedError where there is none."""
    found = list[tuple[Path, str | None]]()
    for source in sources:
        found += sorted(pdfs_in(source, recursive=options.recursive)) if source.is_dir() else [(source, None)]
    if not found:
        raise RefusedError(no_pdf(recursive=options.recursive))
    return found


async def _verify(files: Sequence[tuple[Path, str | None]], options: VerifyOptions, *, is_one: bool) -> int:
    """Show the signatures of the files. is_one: a single file was given, whose problem ends the command."""
    found = list[_Verified]()
    try:
        async with _suite(options) as suite, progress("verifying", unit="pieces", total=len(files)) as bar:
            for file, problem in files:
                found.append(
                    await _verified(suite, file, is_one=is_one) if problem is None else _Verified(file, problem)
                )
                bar.advance()
    finally:  # where the service fails meanwhile, and at Ctrl-C
        if found:
            _show_verified(found, options)
    unsigned, invalid, unknown = (
        sum(each.problem is None and not each.signatures for each in found),
        sum(any(signature.is_valid is False for signature in each.signatures) for each in found),
        sum(each.problem is not None for each in found),
    )
    if unsigned:
        say(f"{unsigned} of {len(found)} PDFs have no signature")
    if invalid:
        say(f"{invalid} of {len(found)} PDFs have a signature that isn't valid: {_WHY_NOT_VALID}")
    if unknown:
        say(f"of {unknown} of {len(found)} PDFs it isn't known, for the reason in the table")
    return ExitStatus.FAILED if unsigned or invalid or unknown else ExitStatus.DONE


async def _verified(suite: DirectSuite, file: Path, *, is_one: bool) -> _Verified:
    """What the service says of a file, or why it doesn't. is_one: as in `_verify`."""
    try:
        signatures = (await _read(suite, file)).signatures
    except (RefusedError, DirectSuiteError) as error:
        if is_one or not _is_about_the_file(error):
            raise
        return _Verified(file, ending_of(error, options={"pdf": naming("the PDF", file)})[1])
    return _Verified(file, signatures=[each for each in signatures if each.is_signed])


def _is_about_the_file(error: RefusedError | DirectSuiteError) -> bool:
    """Return True if another file may fare better. A wrong URL answers 404 to each."""
    if isinstance(error, RefusedError | InvalidArgumentError):
        return True
    return scope_of(error) in (Scope.ITEM, Scope.UNCERTAIN) and not isinstance(error, NotFoundError)


def _show_verified(found: Sequence[_Verified], options: VerifyOptions) -> None:
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
        (
            "Signature",
            f"{each.name}: {_in_words(each.is_valid) if each.is_signed else 'not signed'}{_place_of(each)}",
        )
        for each in found.signatures
    ]
    rows += sorted(found.meta_data.items())
    show_table(("", "PDF"), rows)
    return ExitStatus.DONE


def _place_of(field: DocumentSignature) -> str:
    """Where a field stands, as --widget takes it; empty for one that is invisible."""
    if not field.width or not field.height or field.left is None or field.top is None:
        return ""
    page = "" if field.page_index is None else f",{field.page_index}"
    return f", at {field.left:g},{field.top:g},{field.width:g},{field.height:g}{page}"


async def _read(suite: DirectSuite, source: Path) -> DocumentInfo:
    async with _stored(suite.signing, source) as stored:
        return await suite.signing.get_doc_info(stored)


@asynccontextmanager
async def _stored(signing: Signing, source: Path) -> AsyncGenerator[StoredDocument]:
    """The PDF as the service has it meanwhile. Raises RefusedError where it can't be read."""
    problem = await asyncio.to_thread(_problem_of, source)
    if problem is not None:
        raise RefusedError(f"{naming('the file', source)} {problem}")
    try:
        stored = await signing.save(source)
    except BadRequestError as error:
        if await asyncio.to_thread(_is_encrypted, source):
            pdf = naming("the PDF", source)
            raise RefusedError(f"{pdf} is encrypted{words_of(error)}: give one without a password") from None
        raise
    try:
        yield stored
    finally:
        with suppress(DirectSuiteError):
            await signing.delete(stored.identifier, timeout=_DELETING)


def _problem_of(source: Path) -> str | None:
    return "is a folder: name a PDF in it" if source.is_dir() else problem_of_source(source)


def _is_encrypted(pdf: Path) -> bool:
    """Return True if a PDF that was refused needs a password; False also where it has gone meanwhile."""
    with (
        suppress(OSError, ValueError),  # mmap takes no empty file
        pdf.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return _ENCRYPTED.search(content) is not None
    return False


def _suite(options: TokenOptions | SignOptions) -> DirectSuite:
    return DirectSuite(settings_for("signing"), token=token(options.token_file), listeners=request_listeners())
