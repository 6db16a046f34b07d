"""`directsuite sign` for single PDFs: sign into one file, verify, info, flatten and clear.

Each command saves the PDF at the service, does one thing, and deletes the stored document. An interrupted command has
written nothing, and can be run again.
"""

from __future__ import annotations

import asyncio
import itertools
import mmap
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import attrs
from cyclopts import Parameter

import directsuite as ds
from directsuite.cli.command import Command
from directsuite.cli.credentials import load_settings, read_token
from directsuite.cli.errors import UsageError, quote_message, quote_service_message, rewrite_explanation, with_value
from directsuite.cli.options import Flag, SourcePaths, TokenOptions, convert_path, record, register
from directsuite.cli.output import model_to_dict, show_json, show_progress, show_table
from directsuite.cli.process import NOTHING_CHANGED, ExitStatus, echo_err, end_line
from directsuite.cli.sign import HINT_INVISIBLE, SignOptions, app, is_invisible, make_signatures, sign_into_folder
from directsuite.cli.sign_sources import (
    describe_no_pdf,
    find_source_problem,
    is_named_as_pdf,
    is_same_file,
    iter_pdfs,
    report_skipped,
)
from directsuite.core.outcome import ErrorScope, find_error_scope
from directsuite.durable.files import move_new
from directsuite.jobs.signing.problems import DocumentProblem, find_field_problem


@record
class VerifyOptions(TokenOptions):
    """Options of `sign verify`."""

    recursive: Annotated[bool, Flag] = False
    """Include subfolders."""


@record
class DocumentOutputOptions(TokenOptions):
    """Options of `sign flatten` and `sign clear`."""

    output: Annotated[Path, Parameter(converter=convert_path)]
    """The file for the result."""
    overwrite: Annotated[bool, Flag] = False
    """Replace an existing file."""


_DELETE_TIMEOUT = 5.0  # seconds; short, because a stored document that is not deleted expires
_ENCRYPT_ENTRY_PATTERN = re.compile(rb"/Encrypt[\s<]")
_RECOVERY_HINT = (
    "no file was written, and the document stored at the service expires if it could not be deleted; run the same "
    "command again"
)
_MAX_SERVER_ERRORS_IN_A_ROW = 5  # then the service is assumed to fail for every PDF
_FOLDER_ONLY_OPTIONS = ("dry_run", "again", "recursive", "concurrency", "patience")
_NO_PDF_PROBLEM = "There is no PDF in this folder."
_HINT_NOT_VALID = (
    "Possible reasons: the PDF was changed after it was signed, or the service does not trust the certificate."
)

_ChangeFunction = Callable[[ds.Signing, ds.StoredDocument, Path], Awaitable[object]]


@app.default
def sign_pdfs(sources: SourcePaths, /, *, options: SignOptions) -> int:
    """Sign PDF files and the PDFs in folders.

    After Ctrl-C, a crash or an outage, repeat the same command: it continues and signs nothing twice. It records its
    progress in a journal next to the output, OUTPUT.signing.db. Exit status 0 means that all PDFs are signed, 1 that
    some are not.
    """
    if len(sources) == 1 and sources[0].is_file() and is_named_as_pdf(options.output):
        return _sign_file(sources[0], options)
    return sign_into_folder(sources, options)


def _sign_file(source: Path, options: SignOptions) -> int:
    command = _make_command(source)

    def begin() -> Coroutine[Any, Any, int]:
        signatures = make_signatures(options)
        _validate_single_file_options(options)

        async def sign_stored(signing: ds.Signing, stored: ds.StoredDocument, output: Path) -> None:
            if options.name:
                _validate_fields(signatures, (await signing.get_doc_info(stored)).signatures)
            if len(signatures) == 1:
                await signing.sign_and_pull(stored, signatures[0], destination=output)
            else:
                await signing.multi_sign_and_pull(stored, signatures, destination=output)

        return _begin_change(command, source, options, sign_stored)

    return command.run(begin)


@register(app, "flatten", "consent.pdf --output flat.pdf", "consent.pdf --output flat.pdf --overwrite")
def flatten(source: Path, /, *, options: DocumentOutputOptions) -> int:
    """Make a PDF's form fields part of its pages, and write the result to another file.

    Parameters
    ----------
    source: Path
        A PDF.
    """
    command = _make_command(source)
    return command.run(lambda: _begin_change(command, source, options, _flatten))


@register(app, "clear", "consent.pdf --output cleared.pdf", "consent.pdf --output cleared.pdf --overwrite")
def clear(source: Path, /, *, options: DocumentOutputOptions) -> int:
    """Remove the signature fields of an unsigned PDF, and write the result to another file.

    Parameters
    ----------
    source: Path
        A PDF.
    """
    command = _make_command(source)
    return command.run(lambda: _begin_change(command, source, options, _clear))


@register(app, "verify", "signed.pdf", "signed --json")
def verify(sources: SourcePaths, /, *, options: VerifyOptions = VerifyOptions()) -> int:
    """Show the signatures of PDFs, and whether the service considers them valid.

    The stated signer is the name in the signature itself, which does not prove an identity. The service doesn't report
    the owner of the certificate; `pdfsig FILE` of poppler-utils does. Exit status 0 means that each PDF has a signature
    and that the service considers all of them valid.
    """
    command = _make_command(*sources)
    is_one = len(sources) == 1 and not sources[0].is_dir()
    return command.run(lambda: _verify_files(command, _find_pdfs(sources, options), options, is_one=is_one))


@register(app, "info", "consent.pdf", "signed.pdf --json")
def show_info(source: Path, /, *, options: TokenOptions = TokenOptions()) -> int:
    """Show the pages, fields, signatures and properties of a PDF.

    Parameters
    ----------
    source: Path
        A PDF.
    """
    command = _make_command(source)
    return command.run(lambda: _show_info(command, source, options))


def _make_command(*sources: Path) -> Command:
    pdf = with_value("the PDF", sources[0]) if len(sources) == 1 else "a PDF"
    return Command(
        resume_hint=NOTHING_CHANGED,
        recovery_hint=_RECOVERY_HINT,
        unknown_status=ExitStatus.UNAVAILABLE,  # only the temporary stored document may have changed
        option_names={"pdf": pdf, "destination": "--output"},
    )


def _validate_single_file_options(options: SignOptions) -> None:
    defaults = SignOptions(output=options.output)
    given_options = [name for name in _FOLDER_ONLY_OPTIONS if getattr(options, name) != getattr(defaults, name)]
    if given_options:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given_options)
        verb, them = ("are", "them") if len(given_options) > 1 else ("is", "it")
        raise UsageError(f"{names} {verb} only for folders. Give --output FOLDER, or omit {them}.")


def _validate_fields(signatures: Sequence[ds.Signature], fields: Sequence[ds.DocumentSignature]) -> None:
    for signature in signatures:
        problem = find_field_problem(signature, fields)
        if problem is not None:
            name = with_value("--name", signature.name)
            raise UsageError(f"{name}: the PDF {problem.predicate}{_get_field_advice(problem, fields)}.")


def _get_field_advice(problem: DocumentProblem, fields: Sequence[ds.DocumentSignature]) -> str:
    if problem is DocumentProblem.FIELD_PLACED:
        return ", or give a new name"
    if problem is DocumentProblem.FIELD_SIGNED:
        return "; give a different name"
    empty = [field.name for field in fields if field.name and not field.is_signed]
    if not empty:
        return "; it has no empty field. --widget creates one with that name"
    listed = with_value("`directsuite sign info` lists the empty fields", ", ".join(empty))
    return f"; {listed}. --widget creates a new field"


async def _flatten(signing: ds.Signing, stored: ds.StoredDocument, output: Path) -> None:
    await signing.flatten_and_pull(stored, destination=output)


async def _clear(signing: ds.Signing, stored: ds.StoredDocument, output: Path) -> None:
    await signing.clear_unsigned_fields_and_pull(stored, destination=output)


def _begin_change(
    command: Command, source: Path, options: DocumentOutputOptions | SignOptions, change: _ChangeFunction
) -> Coroutine[Any, Any, int]:
    """Return the coroutine that writes the changed PDF, completely or not at all.

    Raises UsageError if --output is a folder, the source, or an existing file without --overwrite.
    """
    if options.output.is_dir():
        raise UsageError("--output is a folder. Name a file.")
    if is_same_file(options.output, source):
        raise UsageError(f"{with_value('The file of --output', options.output)} is the source PDF. Name another file.")
    if not options.overwrite and options.output.exists():
        raise _make_exists_error(options.output)
    return _write_changed_pdf(_make_suite(command, options), source, options, change)


async def _write_changed_pdf(
    suite: ds.DirectSuite, source: Path, options: DocumentOutputOptions | SignOptions, change: _ChangeFunction
) -> int:
    output = options.output
    temporary = output.with_name(f".{secrets.token_hex(8)}.pdf")  # the same folder, for renaming
    try:
        async with suite, show_progress("working"), _store_temporarily(suite.signing, source) as stored:
            await change(suite.signing, stored, output if options.overwrite else temporary)
            if not options.overwrite and not move_new(temporary, output):  # another process has created it
                raise _make_exists_error(output)
    finally:
        temporary.unlink(missing_ok=True)
    if options.json:
        show_json({"output": str(output)})
    else:
        echo_err(f"The PDF was written to {with_value('the file of --output', output)}.")
    if isinstance(options, SignOptions) and is_invisible(options) and not options.json:
        echo_err(HINT_INVISIBLE)
    return ExitStatus.DONE


def _make_exists_error(output: Path) -> UsageError:
    return UsageError(
        f"{with_value('The file of --output', output)} exists already. Name another file, or give --overwrite."
    )


@attrs.frozen(repr=False)
class _VerificationResult:
    file: Path
    problem: str | None = None
    """The reason why the PDF could not be verified; None if it was."""
    signatures: Sequence[ds.DocumentSignature] = ()

    @property
    def rows(self) -> list[Sequence[object]]:
        if self.problem is not None or not self.signatures:
            state = "no signature" if self.problem is None else f"not verified: {self.problem}"
            return [(self.file, None, None, None, None, state)]
        return [
            (
                self.file,
                each.name,
                each.signer_name,
                _parse_time(each.signature_time),
                each.reason,
                _format_validity(each.is_valid),
            )
            for each in self.signatures
        ]


def _find_pdfs(sources: Sequence[Path], options: VerifyOptions) -> list[tuple[Path, str | None]]:
    """Return each PDF, and folder that is unreadable or has no PDFs, with its problem or None.

    Raises UsageError if the sources are only folders without PDFs.
    """
    found, skipped, is_any = list[tuple[Path, str | None]](), set[str](), False
    for source in sources:
        if source.is_dir():
            folder_pdfs = sorted(iter_pdfs(source, recursive=options.recursive, skipped=skipped))
            found += folder_pdfs or [(source, _NO_PDF_PROBLEM)]
            is_any = is_any or bool(folder_pdfs)
        else:
            found.append((source, None))
            is_any = True
    if not is_any:
        raise UsageError(describe_no_pdf(recursive=options.recursive))
    report_skipped(skipped)
    return found


async def _verify_files(
    command: Command, files: Sequence[tuple[Path, str | None]], options: VerifyOptions, *, is_one: bool
) -> int:
    """Show the signatures of the files. Return the exit status: 0 if all are valid.

    is_one: the source is a single file, so its problem is raised.
    """
    found, failures_in_a_row, are_valid = list[_VerificationResult](), 0, False
    try:
        async with (
            _make_suite(command, options) as suite,
            show_progress("verifying", unit="pieces", total=len(files)) as bar,
        ):
            for file, problem in files:
                try:
                    if problem is not None:
                        raise UsageError(problem)
                    found.append(await _verify_file(suite, file))
                    failures_in_a_row = 0
                except UsageError as error:
                    if is_one:
                        raise
                    found.append(_VerificationResult(file, str(error)))
                except ds.DirectSuiteError as error:
                    if is_one or not _is_file_error(error):
                        raise
                    message = error.message if isinstance(error, ds.ServiceError) else None
                    found.append(
                        _VerificationResult(file, f"{rewrite_explanation(error.explanation)}{quote_message(message)}")
                    )
                    failures_in_a_row = failures_in_a_row + 1 if isinstance(error, ds.ServerError) else 0
                    if failures_in_a_row == _MAX_SERVER_ERRORS_IN_A_ROW:
                        raise
                bar.advance()
    finally:  # also after a failure of the service, and after Ctrl-C
        if found:
            end_line()
            _show_results(found, options)
            are_valid = _report_problems(found, left=len(files) - len(found))
    return ExitStatus.DONE if are_valid else ExitStatus.FAILED


def _report_problems(found: Sequence[_VerificationResult], left: int) -> bool:
    """Report on stderr how many PDFs are unsigned, invalid, unverified or unprocessed. Return True if there are none.

    left: the number of PDFs that were not processed.
    """
    unsigned = sum(each.problem is None and not each.signatures for each in found)
    invalid = sum(any(signature.is_valid is False for signature in each.signatures) for each in found)
    unknown = sum(
        each.problem is not None or any(signature.is_valid is None for signature in each.signatures) for each in found
    )
    if unsigned:
        echo_err(f"PDFs without a signature: {unsigned} of {len(found)}.")
    if invalid:
        echo_err(f"PDFs with a signature that is not valid: {invalid} of {len(found)}. {_HINT_NOT_VALID}")
    if unknown:
        echo_err(f"PDFs that could not be verified: {unknown} of {len(found)}. The table shows the reasons.")
    if left:
        echo_err(f"PDFs that were not processed: {left} of {len(found) + left}.")
    return not (unsigned or invalid or unknown or left)


async def _verify_file(suite: ds.DirectSuite, file: Path) -> _VerificationResult:
    signatures = (await _read_info(suite, file)).signatures
    return _VerificationResult(file, signatures=[each for each in signatures if each.is_signed])


def _is_file_error(error: ds.DirectSuiteError) -> bool:
    """Return True if the error may concern only this file; False for HTTP 404, which a wrong URL also causes."""
    if isinstance(error, ds.ServerError):
        return error.status == HTTPStatus.INTERNAL_SERVER_ERROR
    if isinstance(error, ds.NotFoundError):
        return False
    return isinstance(error, ds.InvalidArgumentError) or find_error_scope(error) is ErrorScope.ITEM


def _show_results(found: Sequence[_VerificationResult], options: VerifyOptions) -> None:
    if options.json:
        show_json(
            [
                {
                    "file": str(each.file),
                    "signatures": [model_to_dict(signature) for signature in each.signatures],
                    "problem": each.problem,
                }
                for each in found
            ]
        )
    else:
        rows = [row for each in found for row in each.rows]
        show_table(
            ("file", "signature", "stated signer", "time", "reason", "valid"), rows, no_wrap=("file", "signature")
        )


def _parse_time(text: str | None) -> datetime | str | None:
    with suppress(ValueError):
        return None if text is None else datetime.fromisoformat(text)
    return text


def _format_validity(is_valid: bool | None) -> str:
    return "not verified: the service does not report it" if is_valid is None else "valid" if is_valid else "NOT VALID"


async def _show_info(command: Command, source: Path, options: TokenOptions) -> int:
    suite = _make_suite(command, options)
    async with suite, show_progress("reading"):
        found = await _read_info(suite, source)
    if options.json:
        show_json(model_to_dict(found))
        return ExitStatus.DONE
    rows: list[Sequence[object]] = [("Pages", len(found.pages)), *_build_page_size_rows(found.pages)]
    rows += [("Field", f"{each.name}: {each.value}" if each.value else each.name) for each in found.form_fields]
    rows += [
        (
            "Signature",
            (
                f"{each.name}: {_format_validity(each.is_valid) if each.is_signed else 'not signed'}"
                f"{_format_position(each)}"
            ),
        )
        for each in found.signatures
    ]
    rows += sorted(found.meta_data.items())
    show_table(("", "PDF"), rows)
    return ExitStatus.DONE


def _build_page_size_rows(pages: Sequence[ds.Page]) -> list[Sequence[object]]:
    pages_by_size = dict[str, list[int]]()
    for number, page in enumerate(pages, 1):
        if page.width and page.height:
            rotation = f", rotated by {page.rotate} degrees" if page.rotate else ""
            pages_by_size.setdefault(f"{page.width:g} x {page.height:g}{rotation}", []).append(number)
    if len(pages_by_size) == 1:
        return [("Page size", size) for size in pages_by_size]
    return [(f"Page {_format_ranges(numbers)}", size) for size, numbers in pages_by_size.items()]


def _format_ranges(numbers: Iterable[int]) -> str:
    runs = [[*run] for _, run in itertools.groupby(enumerate(numbers), lambda each: each[1] - each[0])]
    return ", ".join(f"{run[0][1]}-{run[-1][1]}" if len(run) > 1 else str(run[0][1]) for run in runs)


def _format_position(field: ds.DocumentSignature) -> str:
    """Return the position of a field in the form of --widget; empty if it is invisible."""
    if not field.width or not field.height or field.left is None or field.top is None:
        return ""
    page = "" if field.page_index is None else f",{field.page_index}"
    return f", at {field.left:g},{field.top:g},{field.width:g},{field.height:g}{page}"


async def _read_info(suite: ds.DirectSuite, source: Path) -> ds.DocumentInfo:
    async with _store_temporarily(suite.signing, source) as stored:
        return await suite.signing.get_doc_info(stored)


@asynccontextmanager
async def _store_temporarily(signing: ds.Signing, source: Path) -> AsyncGenerator[ds.StoredDocument]:
    """Save the PDF at the service, yield the stored document, and delete it. A failed deletion is only reported.

    Raises UsageError if the file is unusable or encrypted.
    """
    problem = await asyncio.to_thread(_find_problem, source)
    if problem is not None:
        raise UsageError(f"{with_value('The file', source)} {problem}.")
    try:
        stored = await signing.save(source)
    except ds.BadRequestError as error:
        if await asyncio.to_thread(_is_encrypted, source):
            pdf = with_value("The PDF", source)
            words = quote_service_message(error)
            raise UsageError(f"{pdf} is encrypted{words}. Use a PDF without a password.") from None
        raise
    try:
        yield stored
    finally:
        try:
            await signing.delete(stored.identifier, timeout=_DELETE_TIMEOUT)
        except ds.NotFoundError:
            pass
        except ds.DirectSuiteError:
            copy = with_value("The service's copy of the PDF", stored.identifier)
            echo_err(f"{copy} could not be deleted. It expires 4 hours after its last use.")


def _find_problem(source: Path) -> str | None:
    return "is a folder; name a PDF in it" if source.is_dir() else find_source_problem(source)


def _is_encrypted(pdf: Path) -> bool:
    with (
        suppress(OSError, ValueError),  # mmap raises ValueError for an empty file
        pdf.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return _ENCRYPT_ENTRY_PATTERN.search(content) is not None
    return False


def _make_suite(command: Command, options: TokenOptions | SignOptions | DocumentOutputOptions) -> ds.DirectSuite:
    return command.make_suite(load_settings("signing"), token=read_token(options.token_file))
