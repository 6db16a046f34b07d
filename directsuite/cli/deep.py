"""`directsuite doctor --deep`: call each operation that only reads, and report how the responses differ.

    table of requests ──► responses ──► the OpenAPI document, and what the SDK can read ──► OperationReport, …

A request is skipped if no option and no earlier response contains a value that it needs. The report contains paths and
types, but no value of a response, so that a user may send it to the maintainers of the SDK. A member's name is shown
only if the document contains it, because any other name may be a patient's.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import attrs
from cyclopts import Group, Parameter

import directsuite as ds
from directsuite.cli import options as opt
from directsuite.cli.command import make_request_listeners
from directsuite.cli.credentials import MailboxAccess
from directsuite.core.facade import Facade
from directsuite.core.operation import Operation
from directsuite.core.session import BufferedResponse
from directsuite.fax import operations as fax
from directsuite.messaging import operations as mail
from directsuite.messaging.arguments import INBOX
from directsuite.messaging.send_once import SENT_FOLDER
from directsuite.registration import operations as patients
from directsuite.sandbox.quirks import (
    FORM,
    ORDINARY_HEADERS,
    Difference,
    OperationReport,
    Role,
    find_form,
    mask_digits,
    name_json_type,
)
from directsuite.signing import operations as signing
from directsuite.wire.codec import Codec
from directsuite.wire.parsing import MismatchError, parse

_DEEP = Group("Comparison with the OpenAPI document", sort_key=1)


@opt.record
class DoctorOptions(opt.CommonOptions):
    """Options of `doctor`."""

    mailbox: opt.MailboxOption = None
    password_file: opt.PasswordFile = None
    token_file: opt.TokenFile = None
    login: opt.LoginOption = None
    login_password_file: opt.LoginPasswordFile = None
    timeout: Annotated[float, opt.seconds_parameter(gt=0, lte=600)] = 10.0
    """Seconds for each check."""
    deep: Annotated[bool, opt.Flag, Parameter(group=_DEEP)] = False
    """Call each read-only operation that the credentials allow, and report how the responses differ."""
    fax_number: Annotated[str | None, Parameter(group=_DEEP)] = None
    """Your fax number, for requests to the fax service."""
    document: Annotated[str | None, Parameter(group=_DEEP)] = None
    """The identifier of a stored document, for requests to the signing service."""
    patient: Annotated[str | None, Parameter(group=_DEEP)] = None
    """A patient's Direct address, for requests to the registration service."""
    proofing_id: Annotated[int | None, opt.integer_parameter(), Parameter(group=_DEEP)] = None
    """The id of that patient's identity-proofing record, for GetPatientAddressByMeta."""
    tuser: Annotated[str | None, Parameter(group=_DEEP)] = None
    """A T-User who acts for the mailbox, for GetMessageStatusWithTuser."""
    tuser_password_file: Annotated[Path | None, Parameter(group=_DEEP, converter=opt.convert_path)] = None
    """A file that contains only the T-User's password and that other users can't read."""
    report: Annotated[Path | None, Parameter(group=_DEEP, converter=opt.convert_path)] = None
    """Write the differences to a new file, as paths and types without values."""
    json: opt.Json = False


F = TypeVar("F", bound=Facade)

_SECOND = timedelta(seconds=1)
_RANGE = ("begin", "end")
_BY_USERNAME = "get_patient_address_by_username"
_MAX_LISTED = 10_000  # messages of a folder whose metadata are requested
_MAX_FETCHED = 100  # messages of a folder whose contents are requested
_MAX_IDS = 3  # messages that are requested by uid or Message-ID
_MISSING_NAME = "directsuite-doctor-nowhere"
REJECTION_STATUSES = {"messaging": 200, "registration": 200, "signing": 400, "fax": 400}
"""The expected HTTP status, by service, if a request names something that does not exist."""


_SOURCES: Mapping[str, str] = {
    "signing": "the URL of the signing service and a token",
    "fax": "the URL of the fax service and a token",
    "mailbox": "the URL of the messaging service, --mailbox ADDRESS and its password",
    "tuser": "--tuser USERNAME and --tuser-password-file FILE",
    "registration": "the URL of the registration service and a login",
    "document": "--document IDENTIFIER",
    "fax_number": "--fax-number NUMBER",
    "fax_handle": "a fax of that number",
    "domain": "--patient ADDRESS",
    "username": "--patient ADDRESS",
    "person": "--proofing-id ID",
    "listable": f"an {INBOX} folder of at most {_MAX_LISTED:,} messages",
    "fetchable": f"an {INBOX} folder of at most {_MAX_FETCHED} messages",
    "uids": f"a message in {INBOX}",
    "sender": f"a message with a sender in {INBOX}",
    "subject": f"a message with a subject in {INBOX}",
    "begin": f"a message with a date in {INBOX}",
    "end": f"a message with a date in {INBOX}",
    "sent_id": f"1 to {_MAX_LISTED:,} messages in {SENT_FOLDER}",
    "sent_ids": f"1 to {_MAX_LISTED:,} messages in {SENT_FOLDER}",
}
"""The sources of the facades and values that requests need, named in the reason why a request was skipped."""

Json: TypeAlias = Mapping[str, Any]
_Request = tuple[Operation[Any], str, *tuple[str, ...]]
"""An operation, the facade's method, and the names of the arguments."""

_REQUESTS: Mapping[str, Sequence[_Request]] = {
    "signing": ((signing.GET_DOC_INFO, "get_doc_info", "document"), (signing.GET_DOC, "get_doc", "document")),
    "fax": (
        (fax.GET_MULTIPLE_MESSAGE_INFO, "get_multiple_message_info", "fax_number"),
        (fax.GET_SINGLE_MESSAGE_INFO, "get_single_message_info", "fax_number", "fax_handle"),
    ),
    "mailbox": (
        (mail.GET_FOLDERS, "get_folders"),
        (mail.GET_MESSAGE_COUNT, "get_message_count"),
        (mail.GET_UNREAD_MESSAGE_COUNT, "get_unread_message_count"),
        (mail.GET_DELETED_MESSAGE_COUNT, "get_deleted_message_count"),
        (mail.GET_UIDS, "get_uids"),
        (mail.GET_MESSAGES_BY_UIDS, "get_messages_by_uids", "inbox", "uids"),
        (mail.GET_RAW_MESSAGES_BY_UIDS, "get_raw_messages_by_uids", "inbox", "uids"),
        (mail.GET_MESSAGE_METADATA, "get_message_metadata", "listable"),
        (mail.GET_MESSAGES, "get_messages", "fetchable"),
        (mail.GET_UNREAD_MESSAGES, "get_unread_messages", "fetchable"),
        (mail.GET_MESSAGES_BY_SENDER, "get_messages_by_sender", "fetchable", "sender"),
        (mail.GET_MESSAGES_BY_SUBJECT, "get_messages_by_subject", "fetchable", "subject"),
        (mail.GET_MESSAGES_BY_RECEIVED_DATE, "get_messages_by_received_date", "fetchable", *_RANGE),
        (mail.GET_MESSAGES_BY_RECEIVED_DATE_UTC, "get_messages_by_received_date_utc", "fetchable", *_RANGE),
        (mail.SEARCH_METADATA_BY_RECEIVED_DATE, "search_messages_metadata_by_received_date", "inbox", *_RANGE),
        (mail.SEARCH_METADATA_BY_RECEIVED_DATE_UTC, "search_messages_metadata_by_received_date_utc", "inbox", *_RANGE),
        (mail.GET_MESSAGE_STATUS, "get_message_status", "sent_id"),
        (mail.GET_MESSAGE_STATUS_MANY, "get_message_statuses", "sent_ids"),
    ),
    "tuser": ((mail.GET_MESSAGE_STATUS_WITH_TUSER, "get_message_status", "sent_id"),),
    "registration": (
        (patients.GET_PATIENT_ADDRESS_BY_USERNAME, _BY_USERNAME, "domain", "username"),
        (patients.GET_PATIENT_ADDRESS_BY_META, "get_patient_address_by_meta", "domain", "person"),
    ),
}
"""The requests of each facade, ordered so that earlier results contain values for later requests."""
_REQUESTS_TO_REJECT: Mapping[str, _Request] = {
    "signing": (signing.GET_DOC_INFO, "get_doc_info", "nowhere"),
    "fax": (fax.GET_SINGLE_MESSAGE_INFO, "get_single_message_info", "fax_number", "nowhere"),
    "mailbox": (mail.GET_MESSAGE_COUNT, "get_message_count", "nowhere"),
    "registration": (patients.GET_PATIENT_ADDRESS_BY_USERNAME, _BY_USERNAME, "domain", "nowhere"),
}
"""A request of each facade for something that does not exist."""


@attrs.define(kw_only=True)
class DeepExamination:
    """Calls the operations with the available credentials. tuser: a T-User who acts for the mailbox."""

    settings: ds.Settings
    specification: Specification
    options: DoctorOptions
    token: ds.Secret | ds.ClientCredentials | None = None
    login: ds.Login | None = None
    mailbox: MailboxAccess | None = None
    tuser: ds.Login | None = None
    _known: dict[str, Any] = attrs.field(factory=dict[str, Any], init=False)
    _responses: list[BufferedResponse] = attrs.field(factory=list[BufferedResponse], init=False)

    async def run(self) -> list[OperationReport]:
        """Call each read-only operation, and send requests that must be rejected. Return a report of each."""
        reports = dict[str, OperationReport]()
        async with ds.DirectSuite(
            self.settings, token=self.token, login=self.login, listeners=make_request_listeners()
        ) as suite:
            await self._learn_options(suite)
            for facade, requests in _REQUESTS.items():
                for request in requests:
                    operation, skipped = request[0], await self._call(facade, request)
                    reports[operation.name] = self.specification.report(operation, self._responses, skipped)
            for facade, request in _REQUESTS_TO_REJECT.items():
                operation, report = request[0], reports[request[0].name]
                await self._call(facade, request)
                expected = REJECTION_STATUSES[operation.service]
                if self._responses and (status := self._responses[-1].status) != expected:
                    report.differences.append(Difference("refusal status", f"is {status}, not {expected}"))
        return [*reports.values()]

    async def _learn_options(self, suite: ds.DirectSuite) -> None:
        settings, options = self.settings, self.options
        username, _, domain = (options.patient or "").partition("@")
        person = None if options.proofing_id is None else ds.IDProofedIndividual(id=options.proofing_id)
        self._learn(inbox=INBOX, nowhere=_MISSING_NAME, document=options.document, fax_number=options.fax_number)
        self._learn(username=username, domain=domain, person=person)
        for name, credential in (("signing", self.token), ("fax", self.token), ("registration", self.login)):
            if credential and getattr(settings, f"{name}_url"):
                self._learn(**{name: self._view(getattr(suite, name))})
        if settings.message_url and (access := self.mailbox):
            mailbox = self._view(suite.mailbox(access.address, access.password))
            sent = await _list_sent(mailbox)
            self._learn(mailbox=mailbox, sent_ids=sent, sent_id=sent and sent[0])
            if self.tuser:
                self._learn(tuser=self._view(suite.tuser(self.tuser.username, self.tuser.password, access.address)))

    def _learn(self, **values: Any) -> None:
        self._known |= {name: value for name, value in values.items() if value}

    def _learn_result(self, operation: Operation[Any], result: Any) -> None:
        if operation is fax.GET_MULTIPLE_MESSAGE_INFO:
            self._learn(fax_handle=next((each.message_handle for each in result.message_detail), None))
        elif operation is mail.GET_MESSAGE_COUNT:
            self._learn(listable=INBOX * (result <= _MAX_LISTED), fetchable=INBOX * (result <= _MAX_FETCHED))
        elif operation is mail.GET_UIDS:
            self._learn(uids=sorted(result)[-_MAX_IDS:])
        elif operation is mail.GET_MESSAGE_METADATA and result:
            message: ds.MessageDetail = result[-1]
            self._learn(sender=message.sender, subject=message.subject)
            if message.received_date is not None:
                with contextlib.suppress(OverflowError):  # some servers write a missing date as that of the year 1
                    self._learn(begin=message.received_date - _SECOND, end=message.received_date + _SECOND)

    def _view(self, facade: F) -> F:
        """Return a view of `facade` that doesn't retry requests, and stores the responses."""
        once = facade.with_options(timeout=self.options.timeout, retry=ds.RetryPolicy.none())
        return once.with_observer(lambda exchanged: self._responses.append(exchanged.response))

    async def _call(self, facade: str, request: _Request) -> str | None:
        """Call an operation, and store the responses. Return why it was not called, or that it was rejected.

        Return None otherwise, even if the response was incomplete or unreadable.
        """
        operation, method, *arguments = request
        self._responses.clear()
        if missing := [_SOURCES[name] for name in (facade, *arguments) if name not in self._known]:
            return f"It needs {' and '.join(dict.fromkeys(missing))}."
        try:
            result = await getattr(self._known[facade], method)(*(self._known[name] for name in arguments))
        except ds.ServiceError as error:
            if isinstance(error, ds.AuthenticationError):
                del self._known[facade]  # because some services lock an account after several wrong passwords
            return "The service rejected the request."
        except ds.DirectSuiteError:
            return None
        self._learn_result(operation, result)
        return None


async def _list_sent(mailbox: ds.Mailbox) -> list[str]:
    try:
        if await mailbox.get_message_count(SENT_FOLDER) > _MAX_LISTED:
            return []
        sent = await mailbox.get_message_metadata(SENT_FOLDER)
    except ds.DirectSuiteError:
        return []
    return [each.msg_id for each in sent if each.msg_id][-_MAX_IDS:]


_RANGES = {"int32": 2**31, "int64": 2**63}
_SHOWN_HEADER = re.compile(r"(?=.{1,40}\Z)[A-Za-z]+(-[A-Za-z]+)*")
_OTHER_NAMES = {"attachmentList": "attachments"}
"""Members that some servers send under another name, which the SDK reads."""


class Specification:
    """An OpenAPI document, by operation. codec: reads the responses."""

    def __init__(self, document: Json, codec: Codec) -> None:
        self._codec = codec
        self._schemas: Json = document["components"]["schemas"]
        self._responses: Mapping[str, Json] = {
            definition["operationId"]: definition["responses"]
            for methods in document["paths"].values()
            for method, definition in methods.items()
            if method != "parameters"
        }
        self._names = frozenset(_list_names(self._schemas))

    def report(
        self, operation: Operation[Any], responses: Sequence[BufferedResponse], skipped: str | None = None
    ) -> OperationReport:
        """Compare the responses of one call with the document.

        responses: those that were received completely. skipped: the reason why there is no result, or None.
        """
        found = set[Difference]() if responses or skipped else {Difference("response", "is missing or incomplete")}
        for each in responses:
            if each.too_large:
                found.add(Difference("$", "is larger than max_response_bytes"))
            else:
                found |= self.compare(operation.name, each.status, each.headers, each.body)
            found.update(self._list_unreadable(operation.response, each.body) if each.status == 200 else ())
        return OperationReport(
            operation=operation.name,
            status=max((each.status for each in responses), default=None),
            skipped=skipped,
            differences=sorted(each for each in found if not each.is_form),
            forms=sorted(each for each in found if each.is_form),
        )

    def _list_unreadable(self, kind: Any, body: bytes) -> Iterator[Difference]:
        if not (isinstance(kind, type) and issubclass(kind, ds.Model)):
            return
        unreadable = Counter[str]()
        try:
            self._codec.structure(kind, parse(body), unreadable)
        except MismatchError as mismatch:
            unreadable[mismatch.path] += 1
        except RecursionError:
            unreadable["$"] += 1
        for path in unreadable:
            path = re.sub(r"\[\d+\]", "[]", path)  # so that it is the same for all elements
            path = re.sub(r"\.([^.\[\]]+)", lambda member: f".{self._show_name(member[1])}", path)
            yield Difference(path, "cannot be read by the SDK")

    def compare(self, operation: str, status: int, headers: Mapping[str, str], body: bytes) -> set[Difference]:
        """Return the differences between a response and the document; empty if there are none.

        If the document doesn't have the status, the body is compared with the schema of status 200.
        """
        try:
            return set(self._compare(self._responses[operation], status, headers, body))
        except RecursionError:
            return {Difference("$", "is nested too deeply")}

    def _compare(self, responses: Json, status: int, headers: Mapping[str, str], body: bytes) -> Iterator[Difference]:
        if str(status) not in responses:
            yield Difference("status", f"is {status}, which is not among {', '.join(sorted(responses))}")
        content: Json = responses.get(str(status), responses["200"])["content"]
        media_type, definition = next(iter(content.items()))
        yield from _compare_headers(headers, media_type)
        text = body.decode("utf-8-sig", "replace")
        if not body.endswith(text.encode()):  # before the text may be a byte order mark
            yield Difference("$", "is no UTF-8 text")
        try:
            value = json.loads(text) if media_type == "application/json" else text.strip()
        except ValueError:
            yield Difference("$", "is no JSON")
        else:
            yield from self._compare_value(definition["schema"], value, "$")

    def _compare_value(self, schema: Json, value: Any, path: str) -> Iterator[Difference]:
        schema = self._flatten(schema)
        types, kind = schema["type"], name_json_type(value)
        if types and kind not in types and not (kind == "integer" and "number" in types):
            yield Difference(path, f"is {kind}, not {' or '.join(types)}")
        elif kind != "null" and value not in schema.get("enum", [value]):
            yield Difference(path, "has a value that is not listed")
        elif difference := _compare_scalar(schema, value):
            yield Difference(path, difference)
        elif kind == "array":
            for each in value:
                yield from self._compare_value(schema.get("items", {}), each, f"{path}[]")
        elif kind == "object":
            yield from self._compare_members(schema, value, path)

    def _compare_members(self, schema: Json, value: Json, path: str) -> Iterator[Difference]:
        properties: Json = schema["properties"]
        yield from (Difference(f"{path}.{name}", "is missing") for name in schema["required"] if name not in value)
        for name, member in value.items():
            if (other := _OTHER_NAMES.get(name)) in properties and other not in value:
                yield Difference(f"{path}.{name}", f"{FORM}in place of {other}")
            if name in properties:
                yield from self._compare_value(properties[name], member, f"{path}.{name}")
            elif properties:
                yield Difference(f"{path}.{self._show_name(name)}", f"is not described: {name_json_type(member)}")

    def _flatten(self, schema: Json) -> Json:
        """Return a schema with its reference, `allOf` and `anyOf` merged into it.

        No two branches of an `anyOf` in the document have the same type.
        """
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        flat: dict[str, Any] = {"properties": {}, "required": [], **schema, "type": _list_types(schema)}
        for part in map(self._flatten, (*schema.get("allOf", ()), *schema.get("anyOf", ()))):
            flat |= {
                **part,
                "type": [*flat["type"], *part["type"]],
                "properties": {**flat["properties"], **part["properties"]},
                "required": [*flat["required"], *part["required"]],
            }
        return flat

    def _show_name(self, name: str) -> str:
        return name if name in self._names else f"<a name of {len(name)} characters>"


def _compare_headers(headers: Mapping[str, str], media_type: str) -> Iterator[Difference]:
    for name in ("Date", "Content-Type"):
        if name not in headers:
            yield Difference(f"header {name}", "is missing")
    actual, _, parameters = headers.get("Content-Type", media_type).partition(";")
    if actual.strip().lower() != media_type:
        yield Difference("header Content-Type", f"is another media type than {media_type}")
    if "charset" in parameters.lower() and not re.search(r"charset=\"?(utf-8|us-ascii)\b", parameters, re.IGNORECASE):
        yield Difference("header Content-Type", "has another charset than UTF-8")
    for name in headers:
        if name.lower() not in ORDINARY_HEADERS:
            shown = name if _SHOWN_HEADER.fullmatch(name) else f"<a name of {len(name)} characters>"
            yield Difference(f"header {shown}", "is not described")


def _compare_scalar(schema: Json, value: Any) -> str:
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        return f"has another form: {mask_digits(value)}"
    if isinstance(value, str) and _find_role(schema) == "base64" and not _is_base64(value):
        return "is no base64 text"
    if isinstance(value, int) and (limit := _RANGES.get(schema.get("format", ""))) and not -limit <= value < limit:
        return f"is beyond {schema['format']}"
    form = find_form(_find_role(schema), value)
    return f"{FORM}{form}" if form else ""


def _find_role(schema: Json) -> Role | None:
    if "contentEncoding" in schema:
        return "base64"
    if "array" in schema["type"]:
        return "array"
    return "moment" if "integer" in schema["type"] and "pattern" in schema else None


def _list_types(schema: Json) -> list[str]:
    if "enum" in schema:
        return sorted({name_json_type(each) for each in schema["enum"]})
    types = schema.get("type", "object" if "properties" in schema else [])
    return [types] if isinstance(types, str) else list(types)


def _list_names(schema: Any) -> Iterator[str]:
    kind = name_json_type(schema)
    for part in schema if kind == "array" else schema.values() if kind == "object" else ():
        yield from _list_names(part)
    if kind == "object":
        yield from schema.get("properties", ())


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        return False
    return True
