"""Make responses differ from the specification, by a profile or as a report of `directsuite doctor --deep` describes.

Profiles of the messaging service can be combined:

    strict             no difference
    java               dates are milliseconds since 1970; empty lists are null; a list of one object is that object;
                       the `message` of a success is null; messages have additional members of JavaMail
    attachment-list    received messages have `attachmentList` instead of `attachments`, as in the provider's WSDL

A report contains no values, so unknown members and texts are made up. Unknown differences are ignored. A response body
in a file is read into memory if it must be changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

import msgspec
from aiohttp import web
from aiohttp.payload import Payload

from directsuite.sandbox.clock import EPOCH
from directsuite.sandbox.dialect import (
    EXAMPLES,
    ORDINARY_HEADERS,
    Difference,
    Report,
    name_type,
    write_form,
    write_moment,
    write_type,
)

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp.typedefs import Handler, Middleware

Profile = Literal["strict", "java", "attachment-list"]
Profiles: TypeAlias = Profile | Collection[Profile]
PROFILES: tuple[Profile, ...] = get_args(Profile)

_DATE_MEMBERS = frozenset(("sentDate", "receivedDate", "ts"))
_JAVAMAIL_MEMBERS = {"modified": False, "saved": True, "strict": True}

Dialect = Mapping[str, Sequence[Difference]]

_MAX_REPORT_BYTES = 16 * 2**20
_NOT_A_REPORT = "is not a report of `directsuite doctor --deep`"
_STEPS = re.compile(r"\.(<[^>]*>|[A-Za-z0-9_]+)|(\[\])")
_STATUS = re.compile(r"is ([2-5]\d\d), .*")  # after a status below 200, clients wait for another response
_REFUSAL_STATUS = re.compile(r"is ([2-5]\d\d), not ([2-5]\d\d)")
_UNKNOWN_NAME = re.compile(r"<a name of (\d{1,4}) characters>")

_CHANGES: Mapping[str, Callable[[str, Any], Any]] = {
    r"is not described: (\w+)": lambda kind, _: EXAMPLES.get(kind),
    r"is (\w+), not .*": write_type,
    r"has another form: (.*)": write_moment,
    r"has the form: (.*)": write_form,
    r"is beyond int(\d\d)": lambda bits, _: 2 ** int(bits),
    r"has a value that is (not listed)": lambda _, value: 77 if isinstance(value, int) else "Made Up",
    r"is no (base64) text": lambda _, value: "***",
}
"""How a value changes, by a pattern of `Difference.what`, given the pattern's group and the value."""


def parse_profiles(value: Any) -> frozenset[str]:
    """Return the profiles of a name or a list of names, without `strict`. Raises ValueError for an unknown name."""
    names = cast("Collection[Any]", value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
    if not all(name in PROFILES for name in names):
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, or a list of them")
    return frozenset(names) - {"strict"}


def apply_profiles(response: dict[str, Any], profiles: Collection[str]) -> dict[str, Any]:
    """Return a response of the messaging service with the differences of these profiles."""
    if "attachment-list" in profiles:
        for message in response.get("messages", ()):
            if "attachments" in message:
                message["attachmentList"] = message.pop("attachments")
    if "java" in profiles:
        response = {name: _convert_to_java(name, value) for name, value in response.items()} | {"message": None}
    return response


def _convert_to_java(name: str, value: Any) -> Any:
    if isinstance(value, list):
        elements: list[Any] = [_convert_object(element) for element in cast("Sequence[Any]", value)]
        only: Any = elements[0] if len(elements) == 1 else None
        return only if isinstance(only, dict) else elements or None  # pyright: ignore[reportUnknownVariableType]
    if name in _DATE_MEMBERS and isinstance(value, str):
        return (datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%f%z") - EPOCH) // timedelta(milliseconds=1)
    return value


def _convert_object(element: Any) -> Any:
    if not isinstance(element, dict):
        return element
    members = cast("dict[str, Any]", element)
    extra = _JAVAMAIL_MEMBERS if "msgnum" in members else {}
    return {name: _convert_to_java(name, member) for name, member in members.items()} | extra


def read_report(report: Path) -> Dialect:
    """Return the differences and forms of a report by operation, without operations that have none."""
    with report.open("rb") as file:
        content = file.read(_MAX_REPORT_BYTES + 1)
    if len(content) > _MAX_REPORT_BYTES:
        raise ValueError(f"{report} {_NOT_A_REPORT}: it has more than {_MAX_REPORT_BYTES:,} bytes")
    try:
        operations = msgspec.json.decode(content, type=Report).operations
    except msgspec.DecodeError as error:
        raise ValueError(f"{report} {_NOT_A_REPORT}: {error}") from None
    # Members are changed before the objects that contain them, because those may then have another type.
    return {
        each.operation: sorted([*each.differences, *each.forms], key=lambda each: -len(_STEPS.findall(each.path)))
        for each in operations
        if each.differences or each.forms
    }


def make_imitation_middleware(dialect: Dialect) -> Middleware:
    """Return the middleware that responds like a server with this dialect."""
    rejections = {
        operation: (int(status[1]), int(status[2]))
        for operation, differences in dialect.items()
        for each in differences
        if each.path == "refusal status" and (status := _REFUSAL_STATUS.fullmatch(each.what))
    }

    @web.middleware
    async def change_response(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        operation = request.match_info.route.name
        if not (dialect and operation and isinstance(response, web.Response)):
            return response
        if not _is_rejection(response):
            return await _change(response, dialect[operation]) if operation in dialect else response
        for rejected, (status, ordinary_status) in rejections.items():
            resource = request.app.router.named_resources().get(rejected)
            if resource is None or response.status != ordinary_status:
                continue  # The status is that of a wrong token or an injected fault, for example.
            if resource.canonical.split("/")[1] == request.path.split("/")[1]:
                response.set_status(status)  # both operations belong to the same service
        return response

    return change_response


def _is_rejection(response: web.Response) -> bool:
    if response.status != HTTPStatus.OK:
        return True
    document: Any = _read_json(response.body) if isinstance(response.body, bytes) else None
    return name_type(document) == "object" and document.get("success") is False


def _read_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


async def _change(response: web.Response, differences: Sequence[Difference]) -> web.Response:
    body, status, headers = await _read_body(response), response.status, response.headers.copy()
    headers.popall("Content-Length", None)
    is_json = response.content_type == "application/json"
    document = _read_json(body) if is_json else body.decode("latin-1")
    root = {"$": document}
    for each in differences:
        if each.path.startswith("$") and document is not None:
            _change_value(root, ["$", *(name or "[]" for name, _ in _STEPS.findall(each.path))], each.what)
        elif each.path == "status" and (number := _STATUS.fullmatch(each.what)):
            status = int(number[1])
        elif each.path == "header Content-Type":
            media_type = "text/x-made-up" if "media type" in each.what else response.content_type
            headers["Content-Type"] = media_type + ("; charset=iso-8859-1" if "charset" in each.what else "")
        elif (header := re.fullmatch(r"header ([A-Za-z-]+)", each.path)) and header[1].lower() not in ORDINARY_HEADERS:
            headers[header[1]] = "made=up"
    if document is not None:
        body = (json.dumps(root["$"]) if is_json else str(root["$"])).encode("latin-1")
    return web.Response(status=status, body=body, headers=headers)


def _change_value(container: Any, steps: Sequence[str], what: str) -> None:
    """Change the values at the end of `steps`: names of members, and [] for each element of an array.

    If only the last member is missing, it may be added.

    what: the `Difference.what` to apply.
    """
    step, *others = steps
    kind, keys = name_type(container), list[Any]()
    if kind == "object":
        keys = [step] if step in container or not others else []
    elif kind == "array" and step == "[]":
        keys = [*range(len(container))]
    for key in keys:
        if others:
            _change_value(container[key], others, what)
        else:
            _change_member(container, key, what)


def _change_member(container: Any, key: Any, what: str) -> None:
    is_object = name_type(container) == "object"
    if what == "is missing":
        container.pop(key, None) if is_object else None
    elif moved := re.fullmatch(r"has the form: in place of (\w+)", what):
        if moved[1] in container:
            container[key] = container.pop(moved[1])
    else:
        value = container.get(key) if is_object else container[key]
        name = _UNKNOWN_NAME.fullmatch(str(key))
        for pattern, change in _CHANGES.items():
            if found := re.fullmatch(pattern, what):
                container["_" * int(name[1]) if name else key] = change(found[1], value)
                return


class _Collector:
    def __init__(self) -> None:
        self.content = bytearray()

    async def write(self, chunk: bytes) -> None:
        self.content += chunk


async def _read_body(response: web.Response) -> bytes:
    if isinstance(response.body, Payload):
        collector: Any = _Collector()
        await response.body.write(collector)
        return bytes(collector.content)
    return bytes(response.body or b"")
