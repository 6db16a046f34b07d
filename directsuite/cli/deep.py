"""`directsuite doctor --deep`: every reading operation that the credentials allow, and how its answer differs.

Each answer is held to the OpenAPI document and to the SDK's own reading. What is said and written to a report are paths
and types, no values: a report may be sent to whoever maintains the SDK.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import attrs

from directsuite._version import __version__
from directsuite.cli.command import request_listeners
from directsuite.cli.conformance import Difference, Specification
from directsuite.cli.credentials import MailboxAccess
from directsuite.cli.doctor_checks import Finding
from directsuite.cli.options import DoctorOptions
from directsuite.core.call import Exchanged
from directsuite.core.facade import Facade
from directsuite.core.operation import Operation, Semantics
from directsuite.core.retry import RetryPolicy
from directsuite.durable.files import create
from directsuite.errors import DirectSuiteError, ServiceError
from directsuite.fax import operations as fax
from directsuite.messaging import operations as messaging
from directsuite.messaging.arguments import INBOX
from directsuite.messaging.models import MessageDetail
from directsuite.messaging.send_once import SENT
from directsuite.messaging.service import Mailbox
from directsuite.registration import operations as registration
from directsuite.registration.models import IDProofedIndividual, Login
from directsuite.secret import Secret
from directsuite.settings import Settings
from directsuite.signing import operations as signing
from directsuite.suite import DirectSuite
from directsuite.wire.codec import Codec
from directsuite.wire.models import Model
from directsuite.wire.parsing import MismatchError

F = TypeVar("F", bound=Facade)
T = TypeVar("T")

_MOST_LISTED = 10_000  # messages of a folder whose metadata are asked for
_MOST_FETCHED = 100  # messages of a folder whose contents are asked for
_A_FEW = 3
_NOWHERE = "directsuite-doctor-nowhere"
"""What no service has: a folder, a document, a fax and a username."""
REFUSAL_STATUSES = {"messaging": 200, "registration": 200, "signing": 400, "fax": 400}
"""The HTTP status, by service, of a refusal to read what doesn't exist."""
_SECOND = timedelta(seconds=1)


@attrs.frozen(kw_only=True)
class OperationReport:
    """One operation: how its answer differs, or why it was not asked for."""

    operation: str
    status: int | None = None
    """Of HTTP, the first that is not 200 where there were several; None where there was no answer."""
    differences: Sequence[Difference] = ()
    forms: Sequence[Difference] = ()
    """The forms that the document allows and the sandbox doesn't send."""
    skipped: str = ""


def reading_operations() -> list[str]:
    """The names of all operations that only read, in the order of the specification."""
    tables = (signing, fax, messaging, registration)
    each: list[Any] = [value for table in tables for value in vars(table).values()]
    return [value.name for value in each if isinstance(value, Operation) and value.semantics is Semantics.SAFE]


@attrs.define(eq=False)
class DeepExamination:
    """Asks for what can be read with the credentials that there are, each answer once."""

    settings: Settings
    specification: Specification
    options: DoctorOptions
    token: Secret | Finding
    login: Login | Finding
    mailbox: MailboxAccess | Finding
    tuser: Login | None = None
    """Acts for the mailbox."""
    reports: dict[str, OperationReport] = attrs.field(factory=dict[str, OperationReport], init=False)

    async def run(self) -> list[OperationReport]:
        """A report of each reading operation, in the order of the specification."""
        settings, options = self.settings, self.options
        token = None if isinstance(self.token, Finding) else self.token
        login = None if isinstance(self.login, Finding) else self.login
        async with DirectSuite(settings, token=token, login=login, listeners=request_listeners()) as suite:
            if settings.signing_url and token is not None and options.document:
                await self._signing(suite, options.document)
            if settings.fax_url and token is not None and options.fax_number:
                await self._fax(suite, options.fax_number)
            if settings.message_url and not isinstance(self.mailbox, Finding):
                await self._messaging(suite.mailbox(self.mailbox.address, self.mailbox.password))
                await self._status(suite, self.mailbox)
            if settings.registration_url and login is not None and options.patient:
                await self._registration(suite, options.patient)
        return [
            self.reports.get(name, OperationReport(operation=name, skipped=_why(name))) for name in reading_operations()
        ]

    async def _signing(self, suite: DirectSuite, document: str) -> None:
        await self._ask(signing.GET_DOC_INFO, suite.signing, lambda service: service.get_doc_info(document))
        await self._ask(signing.GET_DOC, suite.signing, lambda service: service.get_doc(document))
        await self._ask_in_vain(signing.GET_DOC_INFO, suite.signing, lambda service: service.get_doc_info(_NOWHERE))

    async def _fax(self, suite: DirectSuite, number: str) -> None:
        several = await self._ask(
            fax.GET_MULTIPLE_MESSAGE_INFO, suite.fax, lambda service: service.get_multiple_message_info(number)
        )
        handle = next((each.message_handle for each in (several.message_detail if several else ())), None)
        if handle is not None:
            await self._ask(
                fax.GET_SINGLE_MESSAGE_INFO, suite.fax, lambda service: service.get_single_message_info(number, handle)
            )
            await self._ask_in_vain(
                fax.GET_SINGLE_MESSAGE_INFO,
                suite.fax,
                lambda service: service.get_single_message_info(number, _NOWHERE),
            )

    async def _registration(self, suite: DirectSuite, address: str) -> None:
        username, _, domain = address.partition("@")
        await self._ask(
            registration.GET_PATIENT_ADDRESS_BY_USERNAME,
            suite.registration,
            lambda service: service.get_patient_address_by_username(domain, username),
        )
        await self._ask_in_vain(
            registration.GET_PATIENT_ADDRESS_BY_USERNAME,
            suite.registration,
            lambda service: service.get_patient_address_by_username(domain, _NOWHERE),
        )
        if self.options.proofing_id is not None:
            person = IDProofedIndividual(id=self.options.proofing_id)
            await self._ask(
                registration.GET_PATIENT_ADDRESS_BY_META,
                suite.registration,
                lambda service: service.get_patient_address_by_meta(domain, person),
            )

    async def _messaging(self, box: Mailbox) -> None:
        await self._ask(messaging.GET_FOLDERS, box, lambda box: box.get_folders())
        count = await self._ask(messaging.GET_MESSAGE_COUNT, box, lambda box: box.get_message_count())
        await self._ask_in_vain(messaging.GET_MESSAGE_COUNT, box, lambda box: box.get_message_count(_NOWHERE))
        await self._ask(messaging.GET_UNREAD_MESSAGE_COUNT, box, lambda box: box.get_unread_message_count())
        await self._ask(messaging.GET_DELETED_MESSAGE_COUNT, box, lambda box: box.get_deleted_message_count())
        uids = await self._ask(messaging.GET_UIDS, box, lambda box: box.get_uids())
        newest = sorted(uids or ())[-_A_FEW:]
        if newest:
            await self._ask(messaging.GET_MESSAGES_BY_UIDS, box, lambda box: box.get_messages_by_uids(INBOX, newest))
            await self._ask(
                messaging.GET_RAW_MESSAGES_BY_UIDS, box, lambda box: box.get_raw_messages_by_uids(INBOX, newest)
            )
        if count is None or count > _MOST_LISTED:
            return
        metadata = await self._ask(messaging.GET_MESSAGE_METADATA, box, lambda box: box.get_message_metadata())
        if count <= _MOST_FETCHED:
            await self._ask(messaging.GET_MESSAGES, box, lambda box: box.get_messages())
            await self._ask(messaging.GET_UNREAD_MESSAGES, box, lambda box: box.get_unread_messages())
            for message in (metadata or ())[-1:]:
                await self._like(box, message)

    async def _like(self, box: Mailbox, message: MessageDetail) -> None:
        """Ask for messages by what one of them has."""
        if message.sender:
            sender = message.sender
            await self._ask(
                messaging.GET_MESSAGES_BY_SENDER, box, lambda box: box.get_messages_by_sender(INBOX, sender)
            )
        if message.subject:
            subject = message.subject
            await self._ask(
                messaging.GET_MESSAGES_BY_SUBJECT, box, lambda box: box.get_messages_by_subject(INBOX, subject)
            )
        if message.received_date is not None:
            begin, end = message.received_date - _SECOND, message.received_date + _SECOND
            await self._ask(
                messaging.GET_MESSAGES_BY_RECEIVED_DATE,
                box,
                lambda box: box.get_messages_by_received_date(INBOX, begin, end),
            )
            await self._ask(
                messaging.GET_MESSAGES_BY_RECEIVED_DATE_UTC,
                box,
                lambda box: box.get_messages_by_received_date_utc(INBOX, begin, end),
            )
            await self._ask(
                messaging.SEARCH_METADATA_BY_RECEIVED_DATE,
                box,
                lambda box: box.search_messages_metadata_by_received_date(INBOX, begin, end),
            )
            await self._ask(
                messaging.SEARCH_METADATA_BY_RECEIVED_DATE_UTC,
                box,
                lambda box: box.search_messages_metadata_by_received_date_utc(INBOX, begin, end),
            )

    async def _status(self, suite: DirectSuite, access: MailboxAccess) -> None:
        box = suite.mailbox(access.address, access.password)
        cautious = box.with_options(timeout=self.options.timeout)
        try:
            if await cautious.get_message_count(SENT) > _MOST_LISTED:
                return
            sent = await cautious.get_message_metadata(SENT)
        except DirectSuiteError:
            return
        smtp_ids = [each.msg_id for each in sent if each.msg_id][-_A_FEW:]
        if smtp_ids:
            await self._ask(messaging.GET_MESSAGE_STATUS, box, lambda box: box.get_message_status(smtp_ids[0]))
            await self._ask(messaging.GET_MESSAGE_STATUS_MANY, box, lambda box: box.get_message_statuses(smtp_ids))
            if self.tuser is not None:
                tuser = suite.tuser(self.tuser.username, self.tuser.password, access.address)
                await self._ask(
                    messaging.GET_MESSAGE_STATUS_WITH_TUSER,
                    tuser,
                    lambda tuser: tuser.get_message_status(smtp_ids[0]),
                )

    async def _ask_in_vain(self, operation: Operation[Any], facade: F, call: Callable[[F], Awaitable[object]]) -> None:
        """Have the service refuse to read what doesn't exist, and compare the HTTP status of the refusal."""
        exchanges = list[Exchanged]()
        once = facade.with_options(timeout=self.options.timeout, retry=RetryPolicy.none())
        with contextlib.suppress(DirectSuiteError):
            await call(once.observed(exchanges.append))
        report, expected = self.reports.get(operation.name), REFUSAL_STATUSES[operation.service]
        if report is not None and exchanges and (status := exchanges[-1].answer.status) != expected:
            refused = Difference("refusal status", f"is {status}, not {expected}")
            self.reports[operation.name] = attrs.evolve(report, differences=[*report.differences, refused])

    async def _ask(self, operation: Operation[Any], facade: F, call: Callable[[F], Awaitable[T]]) -> T | None:
        """What a call gives, or None where it fails; each of its answers is held to what it should be."""
        exchanges, value = list[Exchanged](), None
        once = facade.with_options(timeout=self.options.timeout, retry=RetryPolicy.none())
        skipped = ""
        try:
            value = await call(once.observed(exchanges.append))
        except ServiceError:
            pass  # its answer is there
        except DirectSuiteError:
            skipped = "" if exchanges else "no answer came"
        answers, differences = [each.answer for each in exchanges], set[Difference]()
        for answer in answers:
            differences |= {
                *self.specification.differences(operation.name, answer.status, answer.headers, answer.body),
                *(self._read(operation, answer.body) if answer.status == 200 else ()),
            }
        statuses = [answer.status for answer in answers]
        status = next((each for each in statuses if each != 200), 200 if statuses else None)
        self.reports[operation.name] = OperationReport(
            operation=operation.name,
            status=status,
            differences=sorted(each for each in differences if not each.is_form),
            forms=sorted(each for each in differences if each.is_form),
            skipped=skipped,
        )
        return value

    def _read(self, operation: Operation[Any], body: bytes) -> list[Difference]:
        """What the SDK's own reading makes of an answer."""
        kind: Any = operation.response
        if not (isinstance(kind, type) and issubclass(kind, Model)):
            return []
        codec, report = Codec(self.settings.converter), Counter[str]()
        try:
            model = codec.structure(kind, codec.parse_for(kind, body), report)
        except MismatchError as mismatch:
            path = self.specification.shown(mismatch.path)
            return [Difference(path, f"can't be read by the SDK, for which it should be {mismatch.expected}")]
        except RecursionError:
            return [Difference("$", "can't be read by the SDK: it is nested too deeply")]
        what = "can't be read by the SDK, which skips it"
        skipped = [Difference(self.specification.shown(path), what) for path in report]
        return [*skipped, *self.specification.lost(json.loads(body), json.loads(codec.encode(model)))]


def _why(operation: str) -> str:
    """Why an operation was not asked for."""
    if operation in {signing.GET_DOC.name, signing.GET_DOC_INFO.name}:
        return "give --document IDENTIFIER, and a token"
    if operation in {fax.GET_SINGLE_MESSAGE_INFO.name, fax.GET_MULTIPLE_MESSAGE_INFO.name}:
        return "give --fax-number NUMBER, and a token; a number without faxes has none to read"
    if operation == registration.GET_PATIENT_ADDRESS_BY_USERNAME.name:
        return "give --patient ADDRESS, and a login"
    if operation in {each.name for each in (messaging.GET_MESSAGE_STATUS, messaging.GET_MESSAGE_STATUS_MANY)}:
        return f"it needs a mailbox with 1 to {_MOST_LISTED:,} messages in {SENT}"
    if operation == registration.GET_PATIENT_ADDRESS_BY_META.name:
        return "give --patient ADDRESS, --proofing-id ID, and a login"
    if operation == messaging.GET_MESSAGE_STATUS_WITH_TUSER.name:
        return f"give --tuser USERNAME and --tuser-password-file FILE; it needs a mailbox with a message in {SENT}"
    return (
        f"it needs --mailbox ADDRESS, with 1 to {_MOST_FETCHED} messages in INBOX (for metadata {_MOST_LISTED:,}), and "
        "the answers of the operations before it"
    )


def as_json(reports: Sequence[OperationReport]) -> dict[str, Any]:
    """The report, as it is printed and written."""
    return {
        "directsuite": __version__,
        "operations": [
            {
                "operation": each.operation,
                "status": each.status,
                "skipped": each.skipped or None,
                "differences": [attrs.asdict(difference) for difference in each.differences],
                "forms": [attrs.asdict(form) for form in each.forms],
            }
            for each in reports
        ],
    }


def write_report(options: DoctorOptions, reports: Sequence[OperationReport]) -> None:
    """Write the report into the file of --report, which must not exist yet. Raises OSError."""
    if options.report is not None:
        with create(options.report) as file:
            file.write(json.dumps(as_json(reports), indent=2).encode() + b"\n")
