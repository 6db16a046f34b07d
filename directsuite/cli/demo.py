"""`directsuite demo`: use all four services of a sandbox, and check every response.

Each step returns the number of its items, or raises AssertionError. Its docstring is its title in the report.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import attrs
from cyclopts import Parameter
from rich.console import Console

import directsuite as ds
from directsuite.cli.command import CommandParameter, Work
from directsuite.cli.errors import NotDoneError, create_folder, explain_file_errors
from directsuite.cli.options import convert_path, integer_parameter, make_app, record
from directsuite.cli.output import format_count, show_progress, show_table
from directsuite.cli.process import require_extra, show_line
from directsuite.core.files import run_in_thread

if TYPE_CHECKING:
    from directsuite.sandbox.server import Sandbox

app = make_app("demo", "", "--messages 20 --documents 2")

DOMAIN = "direct.example.test"
CLINIC, _RESULTS, _PATIENT = f"clinic@{DOMAIN}", f"results@{DOMAIN}", f"ada@{DOMAIN}"
PASSWORD = "sandbox"  # noqa: S105  of mailboxes that exist only during the demo
_FAX_NUMBER = "15550100199"


@record
class DemoOptions:
    """Options of `demo`."""

    output: Annotated[Path, Parameter(converter=convert_path)] = Path("demo-output")
    """The folder for the signed and unsigned PDFs and the messages. `directsuite sign` can sign its folder unsigned."""
    messages: Annotated[int, integer_parameter(gte=1, lte=10_000)] = 300
    """The number of messages to read from a mailbox."""
    documents: Annotated[int, integer_parameter(gte=1, lte=500)] = 12
    """The number of PDFs to sign."""
    faxes: Annotated[int, integer_parameter(gte=1, lte=1_000)] = 35
    """The number of faxes to list."""


@attrs.frozen(kw_only=True)
class DemoContext:
    """A sandbox, and a suite for it."""

    sandbox: Sandbox
    suite: ds.DirectSuite
    options: DemoOptions


Step = Callable[[DemoContext], Awaitable[str]]


@app.default
def demo(*, command: CommandParameter, options: DemoOptions = DemoOptions()) -> Work:
    """Use all four services of a sandbox, and check their effects.

    The demo starts its own sandbox. Exit status 0 means that every check passed.
    """
    require_extra("sandbox")
    command.resume_hint = "the same command starts again from the beginning"
    create_folder("--output", options.output, mode=0o777)
    return run_demo(options, STEPS)


@asynccontextmanager
async def open_context(options: DemoOptions) -> AsyncGenerator[DemoContext]:
    """Start a sandbox in a temporary folder, with a clinic's mailbox, and open a suite for it."""
    from directsuite.sandbox.server import Sandbox

    with tempfile.TemporaryDirectory(prefix="directsuite-demo-") as folder:
        async with Sandbox(Path(folder)) as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
            name, password = (sandbox.environment[f"DIRECTSUITE_LOGIN_{each}"] for each in ("USERNAME", "PASSWORD"))
            await sandbox.add_reseller(name, password, [DOMAIN])
            await sandbox.add_account(CLINIC, PASSWORD)
            yield DemoContext(sandbox=sandbox, suite=suite, options=options)


async def run_demo(options: DemoOptions, steps: Mapping[str, Step]) -> int:
    """Run the steps in a sandbox, and print the report. Return 1 if one failed, else 0."""
    console, began = Console(highlight=False), time.monotonic()
    async with open_context(options) as context:
        rows, problems = list[Sequence[object]](), list[str]()
        for name, step in steps.items():
            began_step = time.monotonic()
            async with show_progress(name, console=console, delay=0.0):
                items, problem = await run_step(step, context)
            seconds = round(time.monotonic() - began_step, 3)
            rows.append((name, step.__doc__, items, seconds, "yes" if problem is None else "NO"))
            problems += [] if problem is None else [f"{name} failed: {problem}"]
        show_table(("step", "what was done", "items", "seconds", "passed"), rows, right=("seconds",))
        for each in (*problems, f"Signed PDFs and messages are in {options.output.resolve()}."):
            show_line(each)
        if not problems:
            show_line(f"All checks passed, in {time.monotonic() - began:.1f} s.")
        sys.stdout.flush()
    return 1 if problems else 0


async def run_step(step: Step, context: DemoContext) -> tuple[str, str | None]:
    """Run a step. Return the number of its items, and the reason why it failed, or None."""
    items, problem = "", None
    try:
        with explain_file_errors("--output", context.options.output):
            items = await step(context)
    except Exception as error:  # noqa: BLE001  the report names the step in which any error occurred
        is_own = isinstance(error, AssertionError | ds.DirectSuiteError | NotDoneError)
        problem = str(error) if is_own else f"{type(error).__name__}: {error}"
    context.sandbox.clock.set(datetime.now(UTC))  # later signatures must not be in the future
    return items, problem


def check(condition: object, message: str) -> None:
    """Raise AssertionError unless the condition is true. message: the difference."""
    if not condition:
        raise AssertionError(message)


async def provision_patient(context: DemoContext) -> str:
    """Provision a patient once, and find the address by name, and by username after the session has expired."""
    born, registration = date(1980, 2, 29), context.suite.registration
    details: dict[str, Any] = {"first_name": "Ada", "last_name": "Example", "ssn4": "1234", "dob": born}
    individual = ds.IDProofedIndividualRESTful(**details, direct_username="ada")
    await context.sandbox.add_individual("Ada", "Example", "1234", born.isoformat())
    response = await registration.provision_id_proofed_patient(DOMAIN, individual)
    check(_is_active(response.users), "the provisioned address is not active")
    check(response.payment_confirmation and response.payment_confirmation.amount, "no payment was confirmed")
    await registration.set_patients_passwords(DOMAIN, [ds.UserPassword("ada", PASSWORD)])
    check(await context.suite.mailbox(_PATIENT, PASSWORD).get_message_count() == 0, "the mailbox is not empty")
    found = await registration.get_patient_address_by_meta(DOMAIN, ds.IDProofedIndividual(**details))
    check(_is_active(found), "the patient was not found by name and birth date")
    context.sandbox.clock.advance(timedelta(minutes=11))  # a session lasts 10 minutes
    found = await registration.get_patient_address_by_username(DOMAIN, "ada")
    check(_is_active(found), "the patient was not found by username after the session had expired")
    try:
        await registration.provision_id_proofed_patient(DOMAIN, individual)
    except ds.BadRequestError as rejection:
        check(rejection.code == "014", f"the service rejected it with the code {rejection.code}, not 014")
    else:
        raise AssertionError("the same address was provisioned twice")
    return "1 patient"


def _is_active(users: list[ds.DirectUserDetail]) -> bool:
    return [(user.username, user.user_state) for user in users] == [("ada", ds.UserStateType.ACTIVATED)]


_RECIPIENTS = (_PATIENT, "slow+30m@hospital.example.test", "slow+2h@lab.example.test", "nomdn@pharmacy.example.test")
_STATUSES = {
    # minutes after sending: the status of each recipient
    0: ("Delivered", "Waiting", "Waiting", "Waiting"),
    31: ("Delivered", "Delivered", "Waiting", "Waiting"),
    61: ("Delivered", "Delivered", "NO MDN Received", "NO MDN Received"),
    121: ("Delivered", "Delivered", "Delivered", "NO MDN Received"),
}


async def send_message(context: DemoContext) -> str:
    """Send a message, check its statuses over two hours, and compare the received attachments."""
    clinic = context.suite.mailbox(CLINIC, PASSWORD)
    parts = [("consent.pdf", _build_form(1)), ("consent-2.pdf", _build_form(2))]
    message = ds.Message(
        subject="Your visit summary",
        body="Dear patient,\n\nplease find attached the consent forms of your visit.\n",
        recipients=[ds.Recipient(each) for each in _RECIPIENTS],
        attachment_list=[
            ds.Attachment(content=raw, content_type="application/pdf", filename=name) for name, raw in parts
        ],
    )
    smtp_id, sent_at = (await clinic.send(message)).smtp_id or "", context.sandbox.clock.now()
    for minutes, expected in _STATUSES.items():
        context.sandbox.clock.set(sent_at + timedelta(minutes=minutes))
        reported = {each.to: str(each.status) for each in (await clinic.get_message_status(smtp_id)).records}
        wrong = f"after {minutes} minutes the statuses are {', '.join(reported.values())}, not {', '.join(expected)}"
        check(reported == dict(zip(_RECIPIENTS, expected, strict=True)), wrong)
    inbox = context.suite.mailbox(_PATIENT, PASSWORD)
    async with inbox.iter_messages() as listing:
        arrived = [each async for each in listing]
    check(len(arrived) == 1, f"{len(arrived)} messages arrived instead of one")
    check((arrived[0].msg_id, arrived[0].subject) == (smtp_id, message.subject), "a different message arrived")
    contents = [(each.filename, each.content) for each in arrived[0].attachments]
    check(contents == parts, "the received attachments differ from the sent ones")
    [raw] = await inbox.get_raw_messages_by_uids("INBOX", await inbox.get_uids())
    file = context.options.output / "messages" / "visit-summary.eml"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(raw.data or b"")
    return format_count(len(_RECIPIENTS), "recipient")


async def read_mailbox(context: DemoContext) -> str:
    """Read a mailbox, and compare the count, the order and every byte."""
    count, sandbox = context.options.messages, context.sandbox
    await sandbox.add_account(_RESULTS, PASSWORD)
    results = [await run_in_thread(_build_result, number) for number in range(1, count + 1)]
    raw = [message for _, message in results]
    uids = [await sandbox.deliver(_RESULTS, each) for each in raw]
    box = context.suite.mailbox(_RESULTS, PASSWORD)
    check(await box.get_uids() == uids, "the uids are not those of the delivered messages, in ascending order")
    async with box.iter_messages() as messages:
        seen = [(each.uid, [part.content for part in each.attachments]) async for each in messages]
    expected = [(uid, [values]) for uid, (values, _) in zip(uids, results, strict=True)]
    check(seen == expected, f"iter_messages returned {len(seen)} messages, which are not the {count} delivered ones")
    async with box.iter_raw() as listing:
        received = [each.data or b"" async for each in listing]
    check(received == raw, f"iter_raw returned {len(received)} messages, which are not the {count} delivered ones")
    files = [context.options.output / "mailbox" / f"{number:04d}.eml" for number in range(1, count + 1)]
    files[0].parent.mkdir(exist_ok=True)
    for file, content in zip(files, received, strict=True):
        await run_in_thread(file.write_bytes, content)
    return format_count(count, "message")


def _build_result(number: int) -> tuple[bytes, bytes]:
    message = EmailMessage(policy=SMTP)
    message["From"], message["To"] = "laboratory@hospital.example.test", _RESULTS
    message["Subject"] = f"Résultat {number:04d}"
    message["Message-ID"] = f"<result-{number}@hospital.example.test>"
    message["Date"] = "Sun, 01 Mar 2026 09:30:00 +0000"
    message.set_content(f"Résultat {number}: température 36,{number % 10} °C.\n")
    values = bytes(range(number % 256)) * (number % 150 + 1)
    message.add_attachment(values, maintype="application", subtype="octet-stream", filename="values.bin")
    return values, message.as_bytes()


async def sign_documents(context: DemoContext) -> str:
    """Sign PDFs, verify every signature with pyHanko, and delete the stored documents."""
    signing, authority = context.suite.signing, context.sandbox.authority_pem()
    signed, unsigned = context.options.output / "signed", context.options.output / "unsigned"
    for each in (signed, unsigned):
        each.mkdir(exist_ok=True)
    files = [signed / f"consent-{number:03d}.pdf" for number in range(1, context.options.documents + 1)]
    names = ("PatientSignature", "ClinicSignature")
    signatures = [
        ds.Signature(name=name, widget=ds.Widget(x=72, y=y, width=200, height=64, page=1))
        for name, y in zip(names, (560, 660), strict=True)
    ]
    for number, file in enumerate(files, start=1):
        original = await run_in_thread(_build_form, number)
        await run_in_thread((unsigned / file.name).write_bytes, original)
        stored = await signing.save(original)
        await signing.multi_sign_and_pull(stored, signatures, destination=file)
        reported = {each.name for each in (await signing.get_doc_info(stored)).signatures if each.is_signed}
        check(reported == {*names}, f"{file.name}: GetDocInfo does not report exactly the signatures that were made")
        content = await run_in_thread(file.read_bytes)
        check(content.startswith(original), f"{file.name}: the original content has changed")
        verdicts = await run_in_thread(verify_signatures, content, authority)
        check(verdicts == dict.fromkeys(names, True), f"{file.name}: pyHanko does not accept each signature")
        deleted = await signing.delete(stored)
        check(deleted.document_digest == "", f"{file.name}: the service returned a digest for the deleted document")
    return format_count(len(files), "document")


def verify_signatures(content: bytes, authority: bytes) -> dict[str, bool]:
    """Return whether each signature of a PDF is intact, valid and trusted, by its name. Blocks.

    authority: the PEM certificate to trust.
    """
    from pyhanko.keys import load_certs_from_pemder_data
    from pyhanko.pdf_utils.reader import PdfFileReader
    from pyhanko.sign.validation import validate_pdf_signature
    from pyhanko_certvalidator import ValidationContext

    load: Any = load_certs_from_pemder_data
    context = ValidationContext(trust_roots=list(load(authority)), allow_fetching=False)
    reader: Any = PdfFileReader(io.BytesIO(content))
    verdicts = {each.field_name: validate_pdf_signature(each, context) for each in reader.embedded_regular_signatures}
    return {str(name): bool(status.bottom_line) for name, status in verdicts.items()}


async def read_faxes(context: DemoContext) -> str:
    """List faxes, newest first, while a new one arrives. None is lost or repeated."""
    count, add_fax, handles = context.options.faxes, context.sandbox.add_fax, list[str | None]()
    for number in range(1, count + 1):
        handles.insert(0, await add_fax(_FAX_NUMBER, description=f"Fax {number}"))
    [newest] = (await context.suite.fax.get_single_message_info(_FAX_NUMBER, handles[0] or "")).message_detail
    check(newest.description == f"Fax {count}", "the newest fax has the wrong description")
    listed = list[str | None]()
    async with context.suite.fax.iter_messages(_FAX_NUMBER) as messages:
        async for message in messages:
            if not listed:
                await add_fax(_FAX_NUMBER, description="arrives during the listing")
            listed.append(message.message_handle)
    wrong = f"the listing of {len(listed)} records does not contain each of the {count} faxes once, newest first"
    check(listed == handles, wrong)
    return format_count(count, "fax", "faxes")


def _build_form(number: int) -> bytes:
    import pikepdf

    with pikepdf.new() as document:
        document.add_blank_page(page_size=(612, 792))
        document.docinfo["/Title"] = f"Consent form {number}"
        output = io.BytesIO()
        document.save(output, deterministic_id=True)
        return output.getvalue()


STEPS: Mapping[str, Step] = {
    "patient": provision_patient,
    "message": send_message,
    "mailbox": read_mailbox,
    "signing": sign_documents,
    "fax": read_faxes,
}
