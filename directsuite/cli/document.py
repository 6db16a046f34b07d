"""`directsuite sign` for single PDFs: sign into one file, verify, info, flatten and clear.

Each command saves the PDF at the service, does one thing, and deletes the stored document. An interrupted command has
written nothing, and can be run again.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import attrs
from cyclopts import Parameter

import directsuite as ds
from directsuite.cli import sign_sources
from directsuite.cli.command import Command, CommandParameter, Work
from directsuite.cli.credentials import load_settings, read_token
from directsuite.cli.errors import (
    UsageError,
    explain_file_errors,
    quote_message,
    require_writable_folder,
    with_value,
)
from directsuite.cli.options import Flag, SourcePaths, TokenOptions, convert_path, record, register
from directsuite.cli.output import format_count, show_effect, show_json, show_progress, show_table
from directsuite.cli.process import ExitStatus, echo_err, end_line
from directsuite.cli.sign import HINT_INVISIBLE, SignOptions, app, is_invisible, make_signatures, sign_into_folder
from directsuite.cli.usage import explain_misspelt_command
from directsuite.core.files import move_new, run_in_thread
from directsuite.core.outcome import ErrorScope, find_error_scope
from directsuite.jobs.signing.workflow import DocumentProblem, find_field_problem

PdfPath = Annotated[Path, Parameter(help="A PDF.")]


@record
class _VerifyOptions(TokenOptions):
    recursive: Annotated[bool, Flag] = False
    """Include subfolders."""


@record
class _OutputOptions(TokenOptions):
    output: Annotated[Path, Parameter(converter=convert_path)]
    """The file for the result."""
    overwrite: Annotated[bool, Flag] = False
    """Replace an existing file."""


_DELETE_TIMEOUT = 5.0  # seconds; short, because a stored document that is not deleted expires
_RECOVERY_HINT = (
    "no file was written, and the document stored at the service expires if it could not be deleted; run the same "
    "command again"
)
_MAX_SERVER_ERRORS_IN_A_ROW = 5  # then the service is assumed to fail for every PDF
_NO_PDF = "There is no PDF in this folder."
_NO_NAME = "no name"
_FOLDER_ONLY_OPTIONS = ("dry_run", "again", "recursive", "concurrency", "patience")
_FIELD_ADVICE = {
    DocumentProblem.FIELD_PLACED: ", or give a new name",
    DocumentProblem.FIELD_SIGNED: "; give a different name",
}

_ChangeFunction = Callable[[ds.Signing, ds.StoredDocument, Path], Awaitable[object]]


@app.default
def sign_pdfs(sources: SourcePaths, /, *, command: CommandParameter, options: SignOptions) -> Work:
    """Sign PDF files and the PDFs in folders.

    After Ctrl-C, a crash or an outage, repeat the same command: it continues and signs nothing twice. It records its
    progress in a journal next to the output, OUTPUT.signing.db. Exit status 0 means that all PDFs are signed, 1 that
    some are not, or that there are none.
    """
    if misspelt := explain_misspelt_command(app, str(sources[0])):
        raise UsageError(f"{misspelt}.")
    if len(sources) != 1 or not sources[0].is_file() or not sign_sources.is_named_as_pdf(options.output):
        return sign_into_folder(command, sources, options)
    signatures = make_signatures(options)
    defaults = SignOptions(output=options.output)
    given = [name for name in _FOLDER_ONLY_OPTIONS if getattr(options, name) != getattr(defaults, name)]
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"Options that are only for folders: {names}. Omit them, or give --output FOLDER.")

    async def sign_stored(signing: ds.Signing, stored: ds.StoredDocument, output: Path) -> None:
        if options.name:
            _validate_fields(signatures, (await signing.get_doc_info(stored)).signatures)
        if len(signatures) == 1:
            await signing.sign_and_pull(stored, signatures[0], destination=output)
        else:
            await signing.multi_sign_and_pull(stored, signatures, destination=output)

    return _change_pdf(command, sources[0], options, sign_stored)


@register(app, "flatten", "consent.pdf --output flat.pdf", "consent.pdf --output flat.pdf --overwrite")
def flatten(source: PdfPath, /, *, command: CommandParameter, options: _OutputOptions) -> Work:
    """Make a PDF's form fields part of its pages, and write the result to another file."""
    return _change_pdf(
        command, source, options, lambda signing, stored, output: signing.flatten_and_pull(stored, destination=output)
    )


@register(app, "clear", "consent.pdf --output cleared.pdf", "consent.pdf --output cleared.pdf --overwrite")
def clear(source: PdfPath, /, *, command: CommandParameter, options: _OutputOptions) -> Work:
    """Remove the signature fields of an unsigned PDF, and write the result to another file."""
    return _change_pdf(
        command,
        source,
        options,
        lambda signing, stored, output: signing.clear_unsigned_fields_and_pull(stored, destination=output),
    )


@register(app, "verify", "signed.pdf", "signed --json")
def verify(sources: SourcePaths, /, *, command: CommandParameter, options: _VerifyOptions = _VerifyOptions()) -> Work:
    """Show the signatures of PDFs, and whether the service considers them valid.

    The stated signer is the name in the signature itself, which does not prove an identity. The service doesn't report
    the owner of the certificate; `pdfsig FILE` of poppler-utils does. Exit status 0 means that each PDF has a signature
    and that the service considers all of them valid.
    """
    found, skipped = list[tuple[Path, str | None]](), set[str]()
    for source in sources:
        if source.is_dir():
            pdfs = sorted(sign_sources.iter_pdfs(source, recursive=options.recursive, skipped=skipped))
            found += pdfs or [(source, _NO_PDF)]
        else:
            found.append((source, None))
    if all(problem is _NO_PDF for _, problem in found):
        raise UsageError(sign_sources.describe_no_pdf(sources, recursive=options.recursive))
    sign_sources.report_skipped(skipped)
    suite = _make_suite(command, options, *sources)
    return _verify_files(suite, found, options, is_one=len(sources) == 1 and not sources[0].is_dir())


@register(app, "info", "consent.pdf", "signed.pdf --json")
def show_info(source: PdfPath, /, *, command: CommandParameter, options: TokenOptions = TokenOptions()) -> Work:
    """Show the pages, fields, signatures and properties of a PDF."""
    return _show_info(_make_suite(command, options, source), source, options)


def _validate_fields(signatures: Sequence[ds.Signature], fields: Sequence[ds.DocumentSignature]) -> None:
    for signature in signatures:
        problem = find_field_problem(signature, fields)
        if problem is None:
            continue
        advice = _FIELD_ADVICE.get(problem)
        if advice is None:
            empty = ", ".join(field.name for field in fields if field.name and not field.is_signed)
            listed = with_value("`directsuite sign info` lists the empty fields", empty)
            advice = f"; {listed}: give one of them, or --widget" if empty else "; it has no empty field: give --widget"
            advice += " to create a field (`directsuite sign --help`)"
        raise UsageError(f"{with_value('--name', signature.name)}: the PDF {problem.predicate}{advice}.")


def _change_pdf(command: Command, source: Path, options: _OutputOptions | SignOptions, change: _ChangeFunction) -> Work:
    """Return the coroutine that writes the changed PDF, completely or not at all."""
    output = options.output
    if output.is_dir():
        raise UsageError(f"{with_value('--output', output)} is a folder. Name a file.")
    if sign_sources.is_same_file(output, source):
        raise UsageError(f"{with_value('The file of --output', output)} is the source PDF. Name another file.")
    exists_error = UsageError(
        f"{with_value('The file of --output', output)} exists already. Name another file, or give --overwrite."
    )
    if not options.overwrite and output.exists():
        raise exists_error
    require_writable_folder("--output", output)
    suite = _make_suite(command, options, source)
    temporary = output.with_name(f".{secrets.token_hex(8)}.pdf")  # the same folder, for renaming

    async def write_changed() -> None:
        try:
            async with suite, show_progress("working"), _store_temporarily(suite.signing, source) as stored:
                with explain_file_errors("--output", output):
                    await change(suite.signing, stored, output if options.overwrite else temporary)
                    if not options.overwrite and not move_new(temporary, output):  # another process has created it
                        raise exists_error
        finally:
            temporary.unlink(missing_ok=True)
        if options.json:
            show_effect(lambda: show_json({"output": str(output)}), "The PDF was written to the file of --output")
        else:
            echo_err(f"The PDF was written to {with_value('the file of --output', output)}.")
            if isinstance(options, SignOptions) and is_invisible(options):
                echo_err(HINT_INVISIBLE)

    return write_changed()


@attrs.frozen(repr=False)
class _VerificationResult:
    file: Path
    signatures: Sequence[ds.DocumentSignature] = ()
    problem: str | None = None
    """The reason why the PDF could not be verified; None if it was."""

    def make_rows(self) -> list[Sequence[object]]:
        if self.problem is not None or not self.signatures:
            state = "no signature" if self.problem is None else f"not verified: {self.problem}"
            return [(self.file, None, None, None, None, state)]
        rows = list[Sequence[object]]()
        for each in self.signatures:
            signed_at: datetime | str | None = each.signature_time
            with suppress(TypeError, ValueError):
                signed_at = datetime.fromisoformat(each.signature_time or "")
            rows.append((self.file, each.name, each.signer_name, signed_at, each.reason, _describe(each)))
        return rows


async def _verify_files(
    suite: ds.DirectSuite, files: Sequence[tuple[Path, str | None]], options: _VerifyOptions, *, is_one: bool
) -> int:
    """Show the signatures of the files. is_one: the source is a single file, so its problem is raised."""
    found, failures_in_a_row, are_valid = list[_VerificationResult](), 0, False
    try:
        async with suite, show_progress("verifying", unit="pieces", total=len(files)) as bar:
            for file, problem in files:
                try:
                    if problem is not None:
                        raise UsageError(problem)
                    signatures = (await _read_info(suite, file)).signatures
                    found.append(_VerificationResult(file, signatures=[each for each in signatures if each.is_signed]))
                    failures_in_a_row = 0
                except UsageError as error:
                    if is_one:
                        raise
                    found.append(_VerificationResult(file, problem=str(error)))
                except ds.DirectSuiteError as error:
                    if is_one or not _is_file_error(error):
                        raise
                    message = quote_message(error.message if isinstance(error, ds.ServiceError) else None)
                    found.append(_VerificationResult(file, problem=f"{error.explanation}{message}"))
                    failures_in_a_row = failures_in_a_row + 1 if isinstance(error, ds.ServerError) else 0
                    if failures_in_a_row == _MAX_SERVER_ERRORS_IN_A_ROW:
                        raise
                bar.advance()
    finally:  # also after a failure of the service, and after Ctrl-C
        if found:
            end_line()
            if options.json:
                show_json(found)
            else:
                titles = ("file", "signature", "stated signer", "time", "reason", "valid")
                show_table(titles, [row for each in found for row in each.make_rows()], no_wrap=("file", "signature"))
            are_valid = _report_problems(found, left=len(files) - len(found))
    return ExitStatus.DONE if are_valid else ExitStatus.FAILED


def _report_problems(found: Sequence[_VerificationResult], left: int) -> bool:
    """Report on stderr the numbers of unsigned, invalid, unverified and unprocessed PDFs. Return True for none."""
    unsigned = sum(each.problem is None and not each.signatures for each in found)
    invalid = sum(any(signature.is_valid is False for signature in each.signatures) for each in found)
    unknown = sum(
        each.problem is not None or any(signature.is_valid is None for signature in each.signatures) for each in found
    )
    if unsigned:
        echo_err(f"PDFs without a signature: {unsigned} of {len(found)}.")
    if invalid:
        echo_err(
            f"PDFs with a signature that is not valid: {invalid} of {len(found)}. Possible reasons: the PDF was "
            "changed after it was signed, or the service does not trust the certificate."
        )
    if unknown:
        echo_err(f"PDFs that could not be verified: {unknown} of {len(found)}. The table shows the reasons.")
    if left:
        echo_err(f"PDFs that were not processed: {left} of {len(found) + left}.")
    return not (unsigned or invalid or unknown or left)


def _is_file_error(error: ds.DirectSuiteError) -> bool:
    """Return True if the error may concern only this file; False for HTTP 404, which a wrong URL also causes."""
    if isinstance(error, ds.ServerError):
        return error.status == HTTPStatus.INTERNAL_SERVER_ERROR
    if isinstance(error, ds.NotFoundError):
        return False
    return isinstance(error, ds.InvalidArgumentError) or find_error_scope(error) is ErrorScope.ITEM


def _describe(signature: ds.DocumentSignature) -> str:
    states = {None: "not verified: the service does not report it", True: "valid", False: "NOT VALID"}
    return states[signature.is_valid] if signature.is_signed else "not signed"


async def _show_info(suite: ds.DirectSuite, source: Path, options: TokenOptions) -> None:
    async with suite, show_progress("reading"):
        found = await _read_info(suite, source)
    if options.json:
        show_json(found)
        return
    sizes = Counter(
        f"{page.width:g} x {page.height:g}{f', rotated by {page.rotate} degrees' if page.rotate else ''}"
        for page in found.pages
        if page.width and page.height
    )
    rows: list[Sequence[object]] = [("Pages", len(found.pages))]
    rows += [
        ("Page size", f"{size}: {format_count(count, 'page')}" if len(sizes) > 1 else size)
        for size, count in sizes.items()
    ]
    rows += [
        ("Field", f"{each.name or _NO_NAME}{f': {each.value}' if each.value else ''}") for each in found.form_fields
    ]
    rows += [
        ("Signature", f"{each.name or _NO_NAME}: {_describe(each)}{_format_position(each)}")
        for each in found.signatures
    ]
    show_table(("", "PDF"), [*rows, *sorted(found.meta_data.items())])


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
    """Save the PDF at the service, yield the stored document, and delete it. A failed deletion is only reported."""
    problem = await run_in_thread(lambda: sign_sources.find_source_problem(source, allows_folder=False))
    if problem is not None:
        raise UsageError(f"{with_value('The file', source)} {problem}.")
    stored = await signing.save(source)
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


def _make_suite(
    command: Command, options: TokenOptions | SignOptions | _OutputOptions, *sources: Path
) -> ds.DirectSuite:
    """Make the suite, and describe the command's errors. sources: the PDFs."""
    pdf = with_value("the PDF", sources[0]) if len(sources) == 1 else "a PDF"
    command.recovery_hint = _RECOVERY_HINT
    command.unknown_status = ExitStatus.UNAVAILABLE  # only the temporary stored document may have changed
    command.option_names = {"pdf": pdf, "destination": "--output"}
    command.advice = {ds.BadRequestError: "check the options, and that the PDF is complete and needs no password"}
    return command.make_suite(load_settings("signing"), token=read_token(options.token_file))
