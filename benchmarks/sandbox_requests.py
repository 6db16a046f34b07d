"""A request of every operation, made of the sandbox's OpenAPI document and of what is in the sandbox.

Each member of a path or a body has a value by its name, in `_VALUES` or in the operation's row of `_OWN`. Operations
that use something up are given one for each request, which their row of `PREPARATIONS` makes beforehand.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import quote

import aiohttp
import attrs
from yarl import URL

from benchmarks.soak.server import SoakServer
from directsuite.cli.demo import documents
from directsuite.sandbox.samples import ALICE, BOB, DOMAIN, FAX_NUMBER, INDIVIDUALS, MAILBOX_LOGIN, REFERRALS, TUSER
from directsuite.sandbox.server import load_openapi_document

Values = Mapping[str, Any]
"""Members of paths and bodies, by name."""

_DOCUMENT = load_openapi_document()
OPERATIONS: dict[str, tuple[str, str, Any]] = {
    described["operationId"]: (method.upper(), path, described)
    for path, methods in _DOCUMENT["paths"].items()
    for method, described in methods.items()
}
"""Method, path from the sandbox's root, and description of every operation, in the order of the document."""

_DRAFTS = "INBOX.Drafts"
_TO_BOB = [{"email": BOB, "type": "TO"}]
_RAW = f"From: {BOB}\r\nTo: {ALICE}\r\nSubject: load\r\nMessage-ID: <load@{DOMAIN}>\r\n\r\nAs it stands.\r\n"
_RAW_MESSAGE = {"data": base64.b64encode(_RAW.encode()).decode()}
_WIDGET = {"x": 72, "y": 300, "width": 200, "height": 60, "page": 1}
_USER = {"username": TUSER[0], "password": TUSER[1]}
_FOR_ALICE = {**_USER, "directAddr": ALICE}
_UTC = {"beginTime": "20000101000000", "endTime": "20991231235959"}
_ADA, _GRACE = (
    dict[str, Any](firstName=first_name, lastName=last_name, ssn4=ssn4, dob=dob)
    for first_name, last_name, ssn4, dob, _ in INDIVIDUALS[:2]
)

_VALUES: Values = {
    "username": ALICE,
    "password": MAILBOX_LOGIN,
    "folderName": "INBOX",
    "destFolderName": _DRAFTS,
    "rootFolderName": "INBOX",
    "subscribedFolderOnly": "false",
    "deleteForever": "true",
    "beginTime": "0",
    "endTime": "4102444799000",
    "sender": BOB,
    "subject": "Welcome to the sandbox",
    "folders": [REFERRALS],
    "messages": [_RAW_MESSAGE],
    "message": {"subject": "load", "sender": ALICE, "recipients": _TO_BOB, "body": "text", "htmlBody": False},
    "Signatures": [{"name": documents.PATIENT_FIELD}, {"name": "Witness", "widget": _WIDGET}],
    "fax_number": FAX_NUMBER,
    "offset": "0",
    "directDomain": DOMAIN,
    "directUsername": "ada",
}
_VALUES_BY_OPERATION: Mapping[str, Values] = {
    "Sign": {"name": documents.PATIENT_FIELD},
    "SignAndPull": {"name": documents.PATIENT_FIELD},
    "Forward": {"recipients": _TO_BOB},
    "SendWithTuser": _FOR_ALICE,
    "SendWithHeaderWithTuser": _FOR_ALICE,
    "GetMessageStatusWithTuser": _FOR_ALICE,
    "GetMessagesByReceivedDateUTC": _UTC,
    "SearchMessagesMetadataByReceivedDateUTC": _UTC,
    "SaveRawMessages": {"folderName": _DRAFTS},
    "login": _USER,
    "ProvisionIDProofedPatient": {**_GRACE, "directPassword": "first"},
    "GetPatientAddressByMeta": _ADA,
    "SetPatientsPasswords": {"username": "ada", "password": "second"},
}


@attrs.frozen
class Request:
    """One request, ready to be sent."""

    method: str
    url: URL
    headers: Mapping[str, str] = {}
    content: bytes = b""


@attrs.frozen
class SandboxResponse:
    """What was answered."""

    status: int
    content: bytes

    @property
    def members(self) -> dict[str, Any]:
        """The members of a JSON object; a document has none."""
        members: dict[str, Any] = json.loads(self.content) if self.content.startswith(b"{") else {}
        return members

    @property
    def is_success(self) -> bool:
        """Return True if the operation was carried out: two services refuse with HTTP 200."""
        return self.status == HTTPStatus.OK and self.members.get("success") is not False


@attrs.frozen
class Caller:
    """Makes requests and sends them. values: what the sandbox has of its own making, by the members' names."""

    _http: aiohttp.ClientSession
    _root: str
    _token: str
    _values: dict[str, Any] = attrs.Factory(dict[str, Any])
    _numbers: Iterator[int] = attrs.Factory(itertools.count)

    @classmethod
    async def create(cls, http: aiohttp.ClientSession, server: SoakServer) -> Self:
        """A caller with a document, a message, a session and a patient, for operations that leave them as they are."""
        token = (await server.call_control("GET", "environment"))["environment"]["DIRECTSUITE_TOKEN"]
        self = cls(http, server.urls["control"], token)
        values = self._values
        values["pdf"] = base64.b64encode(documents.build_consent_form(documents.Form.from_number(1)))
        values["identifier"] = (await self.call("Save"))["identifier"]
        values["smtpId"] = (await self.call("Send"))["smtpId"]
        values["smtpIds"] = [values["smtpId"]] * 2
        values["uids"] = (await self.call("GetUIDs"))["uids"][:4]
        values["message_handle"] = (await self.call("getMultipleMessageInfo"))["MessageDetail"][0]["MessageHandle"]
        values["sessionId"] = (await self.call("login"))["sessionId"]
        await self.call("ProvisionIDProofedPatient", **_ADA)
        return self

    def make_request(self, operation: str, **own: Any) -> Request:
        """A request of an operation. Raises KeyError for a member without a value."""
        method, path, described = OPERATIONS[operation]
        values = {**_VALUES, **self._values, **_VALUES_BY_OPERATION.get(operation, {}), **own}
        names = [parameter["name"] for parameter in described["parameters"]]
        url = self._root + path.format_map({name: quote(str(values[name]), safe="") for name in names})
        headers, content = {"Authorization": f"Bearer {self._token}"} if described["security"] else {}, b""
        for media_type, body in described.get("requestBody", {}).get("content", {}).items():
            headers["Content-Type"] = media_type
            is_json = media_type == "application/json"
            content = json.dumps(_fill_schema(body["schema"], values)).encode() if is_json else values["pdf"]
        return Request(method, URL(url, encoded=True), headers, content)

    async def send(self, request: Request) -> SandboxResponse:
        """Send one request."""
        url, headers = request.url, request.headers
        async with self._http.request(request.method, url, headers=headers, data=request.content or None) as answer:
            return SandboxResponse(answer.status, await answer.read())

    async def call(self, operation: str, **own: Any) -> dict[str, Any]:
        """The members of a success. Raises RuntimeError for anything else."""
        answer = await self.send(self.make_request(operation, **own))
        if not answer.is_success:
            raise RuntimeError(f"{operation} was answered with {answer.status}: {answer.content[:200]!r}")
        return answer.members

    async def make_requests(self, operation: str, callers: int) -> Iterable[Request]:
        """Requests of an operation: without end, or as many as something was made for."""
        if (row := PREPARATIONS.get(operation)) is None:
            return itertools.repeat(self.make_request(operation))
        return [self.make_request(operation, **own) for own in await row.make(self, callers * row.per_caller)]

    def make_names(self, stem: str, amount: int) -> list[str]:
        """Names that nothing has yet."""
        return [f"{stem}{next(self._numbers)}" for _ in range(amount)]


def _fill_schema(schema: Any, values: Values) -> Any:
    """A body of the members that have a value, and those that must be there, of their own members."""
    if "$ref" in schema:
        schema = _DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "items" in schema:
        return [_fill_schema(schema["items"], values)]
    members: dict[str, Any] = {}
    for part in schema.get("allOf", ()):
        members |= _fill_schema(part, values)
    for name, member in schema.get("properties", {}).items():
        if name in values:
            members[name] = values[name]
        elif name in schema.get("required", ()):
            if "$ref" not in member:
                raise KeyError(name)
            members[name] = _fill_schema(member, values)
    return members


@attrs.frozen
class Preparation:
    """What an operation uses up: its name, what makes so many of them, and how many each caller has."""

    resource: str
    make: Callable[[Caller, int], Awaitable[list[Values]]]
    per_caller: int = 5


async def _save_documents(caller: Caller, amount: int) -> list[Values]:
    saved = await asyncio.gather(*(caller.call("Save") for _ in range(amount)))
    return [{"identifier": document["identifier"]} for document in saved]


async def _deliver_messages(caller: Caller, amount: int) -> list[Values]:
    [folder] = caller.make_names("INBOX.of", 1)
    await caller.call("CreateFolder", folderName=folder)
    await caller.call("SaveRawMessages", folderName=folder, messages=[_RAW_MESSAGE] * amount)
    uids = (await caller.call("GetUIDs", folderName=folder))["uids"]
    return [{"folderName": folder, "uids": [uid]} for uid in uids]


async def _deliver_read_messages(caller: Caller, amount: int) -> list[Values]:
    messages = await _deliver_messages(caller, amount)
    uids = [uid for message in messages for uid in message["uids"]]
    await caller.call("MarkMessagesAsReadByUIDs", folderName=messages[0]["folderName"], uids=uids)
    return messages


async def _make_folder_names(caller: Caller, amount: int) -> list[Values]:
    return [{"folderName": name, "newFolderName": f"{name}moved"} for name in caller.make_names("INBOX.new", amount)]


async def _create_folders(caller: Caller, amount: int) -> list[Values]:
    folders = await _make_folder_names(caller, amount)
    await asyncio.gather(*(caller.call("CreateFolder", **folder) for folder in folders))
    return folders


async def _make_usernames(caller: Caller, amount: int) -> list[Values]:
    return [{"directUsername": name} for name in caller.make_names("patient", amount)]


async def _alternate_subscribed(_: Caller, amount: int) -> list[Values]:
    return [{"subscribed": number % 2 == 1} for number in range(amount)]


_CHANGING_OPERATIONS = ("Delete", "Flatten", "FlattenAndPull", "ClearUnsignedFields", "ClearUnsignedFieldsAndPull")
_SIGNING_OPERATIONS = ("Sign", "SignAndPull", "MultiSign", "MultiSignAndPull")
_UNREAD_OPERATIONS = ("MoveMessagesByUIDs", "DeleteMessagesByUIDs", "MarkMessagesAsReadByUIDs")
PREPARATIONS: Mapping[str, Preparation] = {
    **dict.fromkeys(_CHANGING_OPERATIONS, Preparation("a document", _save_documents, 2)),
    **dict.fromkeys(_SIGNING_OPERATIONS, Preparation("a document", _save_documents, 1)),
    **dict.fromkeys(_UNREAD_OPERATIONS, Preparation("an unread message", _deliver_messages)),
    "MarkMessagesAsUnreadByUIDs": Preparation("a read message", _deliver_read_messages),
    "SetFoldersSubscribed": Preparation("the other state in turn", _alternate_subscribed),
    "CreateFolder": Preparation("a new name", _make_folder_names, 2),
    **dict.fromkeys(("MoveFolder", "DeleteFolder"), Preparation("a folder", _create_folders, 2)),
    "ProvisionIDProofedPatient": Preparation("a new user name", _make_usernames),
}
