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

from benchmarks.soak.server import Server
from directsuite.cli.demo import documents
from directsuite.sandbox.samples import ALICE, BOB, DOMAIN, FAX_NUMBER, INDIVIDUALS, MAILBOX_LOGIN, REFERRALS, TUSER
from directsuite.sandbox.server import openapi_document

Values = Mapping[str, Any]
"""Members of paths and bodies, by name."""

_DOCUMENT = openapi_document()
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
_OWN: Mapping[str, Values] = {
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
class Answer:
    """What was answered."""

    status: int
    content: bytes

    @property
    def members(self) -> dict[str, Any]:
        """The members of a JSON object; a document has none."""
        members: dict[str, Any] = json.loads(self.content) if self.content.startswith(b"{") else {}
        return members

    @property
    def succeeded(self) -> bool:
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
    async def of(cls, http: aiohttp.ClientSession, server: Server) -> Self:
        """A caller with a document, a message, a session and a patient, for operations that leave them as they are."""
        token = (await server.control("GET", "environment"))["environment"]["DIRECTSUITE_TOKEN"]
        self = cls(http, server.urls["control"].removesuffix("/_sandbox"), token)
        values = self._values
        values["pdf"] = base64.b64encode(documents.consent_form(documents.Form.numbered(1)))
        values["identifier"] = (await self.carry_out("Save"))["identifier"]
        values["smtpId"] = (await self.carry_out("Send"))["smtpId"]
        values["smtpIds"] = [values["smtpId"]] * 2
        values["uids"] = (await self.carry_out("GetUIDs"))["uids"][:4]
        values["message_handle"] = (await self.carry_out("getMultipleMessageInfo"))["MessageDetail"][0]["MessageHandle"]
        values["sessionId"] = (await self.carry_out("login"))["sessionId"]
        await self.carry_out("ProvisionIDProofedPatient", **_ADA)
        return self

    def request(self, operation: str, **own: Any) -> Request:
        """A request of an operation. Raises KeyError for a member without a value."""
        method, path, described = OPERATIONS[operation]
        values = {**_VALUES, **self._values, **_OWN.get(operation, {}), **own}
        names = [parameter["name"] for parameter in described["parameters"]]
        url = self._root + path.format_map({name: quote(str(values[name]), safe="") for name in names})
        headers, content = {"Authorization": f"Bearer {self._token}"} if described["security"] else {}, b""
        for media_type, body in described.get("requestBody", {}).get("content", {}).items():
            headers["Content-Type"] = media_type
            is_json = media_type == "application/json"
            content = json.dumps(_filled(body["schema"], values)).encode() if is_json else values["pdf"]
        return Request(method, URL(url, encoded=True), headers, content)

    async def send(self, request: Request) -> Answer:
        """Send one request."""
        url, headers = request.url, request.headers
        async with self._http.request(request.method, url, headers=headers, data=request.content or None) as answer:
            return Answer(answer.status, await answer.read())

    async def carry_out(self, operation: str, **own: Any) -> dict[str, Any]:
        """The members of a success. Raises RuntimeError for anything else."""
        answer = await self.send(self.request(operation, **own))
        if not answer.succeeded:
            raise RuntimeError(f"{operation} was answered with {answer.status}: {answer.content[:200]!r}")
        return answer.members

    async def requests(self, operation: str, callers: int) -> Iterable[Request]:
        """Requests of an operation: without end, or as many as something was made for."""
        if (row := PREPARATIONS.get(operation)) is None:
            return itertools.repeat(self.request(operation))
        return [self.request(operation, **own) for own in await row.make(self, callers * row.each)]

    def names(self, stem: str, amount: int) -> list[str]:
        """Names that nothing has yet."""
        return [f"{stem}{next(self._numbers)}" for _ in range(amount)]


def _filled(schema: Any, values: Values) -> Any:
    """A body of the members that have a value, and those that must be there, of their own members."""
    if "$ref" in schema:
        schema = _DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "items" in schema:
        return [_filled(schema["items"], values)]
    members: dict[str, Any] = {}
    for part in schema.get("allOf", ()):
        members |= _filled(part, values)
    for name, member in schema.get("properties", {}).items():
        if name in values:
            members[name] = values[name]
        elif name in schema.get("required", ()):
            if "$ref" not in member:
                raise KeyError(name)
            members[name] = _filled(member, values)
    return members


@attrs.frozen
class Preparation:
    """What an operation uses up: its name, what makes so many of them, and how many each caller has."""

    what: str
    make: Callable[[Caller, int], Awaitable[list[Values]]]
    each: int = 5


async def _documents(caller: Caller, amount: int) -> list[Values]:
    saved = await asyncio.gather(*(caller.carry_out("Save") for _ in range(amount)))
    return [{"identifier": document["identifier"]} for document in saved]


async def _messages(caller: Caller, amount: int) -> list[Values]:
    [folder] = caller.names("INBOX.of", 1)
    await caller.carry_out("CreateFolder", folderName=folder)
    await caller.carry_out("SaveRawMessages", folderName=folder, messages=[_RAW_MESSAGE] * amount)
    uids = (await caller.carry_out("GetUIDs", folderName=folder))["uids"]
    return [{"folderName": folder, "uids": [uid]} for uid in uids]


async def _read_messages(caller: Caller, amount: int) -> list[Values]:
    messages = await _messages(caller, amount)
    uids = [uid for message in messages for uid in message["uids"]]
    await caller.carry_out("MarkMessagesAsReadByUIDs", folderName=messages[0]["folderName"], uids=uids)
    return messages


async def _folder_names(caller: Caller, amount: int) -> list[Values]:
    return [{"folderName": name, "newFolderName": f"{name}moved"} for name in caller.names("INBOX.new", amount)]


async def _folders(caller: Caller, amount: int) -> list[Values]:
    folders = await _folder_names(caller, amount)
    await asyncio.gather(*(caller.carry_out("CreateFolder", **folder) for folder in folders))
    return folders


async def _usernames(caller: Caller, amount: int) -> list[Values]:
    return [{"directUsername": name} for name in caller.names("patient", amount)]


async def _turns(_: Caller, amount: int) -> list[Values]:
    return [{"subscribed": number % 2 == 1} for number in range(amount)]


_CHANGED = ("Delete", "Flatten", "FlattenAndPull", "ClearUnsignedFields", "ClearUnsignedFieldsAndPull")
_SIGNED = ("Sign", "SignAndPull", "MultiSign", "MultiSignAndPull")
_UNREAD = ("MoveMessagesByUIDs", "DeleteMessagesByUIDs", "MarkMessagesAsReadByUIDs")
PREPARATIONS: Mapping[str, Preparation] = {
    **dict.fromkeys(_CHANGED, Preparation("a document", _documents, 2)),
    **dict.fromkeys(_SIGNED, Preparation("a document", _documents, 1)),
    **dict.fromkeys(_UNREAD, Preparation("an unread message", _messages)),
    "MarkMessagesAsUnreadByUIDs": Preparation("a read message", _read_messages),
    "SetFoldersSubscribed": Preparation("the other state in turn", _turns),
    "CreateFolder": Preparation("a new name", _folder_names, 2),
    **dict.fromkeys(("MoveFolder", "DeleteFolder"), Preparation("a folder", _folders, 2)),
    "ProvisionIDProofedPatient": Preparation("a new user name", _usernames),
}
