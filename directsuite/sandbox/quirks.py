"""How the responses of a server differ from the specification, and how the sandbox imitates that.

Profiles of the messaging service can be combined:

    strict             no difference
    java               dates are milliseconds since 1970; empty lists are null; a list of one object is that object;
                       the `message` of a success is null; messages have additional members of JavaMail
    attachment-list    received messages have `attachmentList` instead of `attachments`, as in the provider's WSDL

`directsuite doctor --deep` writes a Report of the differences from the OpenAPI document, and of the forms: a form is
one of several ways to write a value that the document allows, such as a moment in milliseconds. A report contains
paths, types and forms, but no values, so the sandbox makes up unknown members and texts. It ignores unknown
differences. A response body in a file is read into memory if it must be changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

import msgspec
from aiohttp import web

from directsuite.sandbox.clock import EPOCH
from directsuite.sandbox.files import PiecesPayload

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp.typedefs import Handler, Middleware

FORM = "has the form: "
"""The start of `Difference.what` for a form that the sandbox does not write by itself."""

Role = Literal["array", "base64", "moment"]
"""The kinds of values that have several forms."""

_TYPES: Mapping[Any, str] = {
    bool: "boolean",
    str: "string",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}
EXAMPLES: dict[str, Any] = {"string": "text", "integer": 1, "number": 0.5, "boolean": True, "array": [], "object": {}}
ORDINARY_HEADERS = (
    *("age", "alt-svc", "cache-control", "connection", "content-encoding", "content-length", "content-type"),
    *("content-security-policy", "date", "expires", "keep-alive", "pragma", "referrer-policy", "retry-after"),
    *("server", "strict-transport-security", "transfer-encoding", "vary", "via", "www-authenticate"),
    *("x-content-type-options", "x-frame-options", "x-xss-protection"),
)
"""Headers that any HTTP server or proxy may add."""
_MOMENT_FORM = "9999-99-99T99:99:99.999+9999"  # of the moments that the sandbox writes
_DATE_LIKE = re.compile(r"[0-9TZ :.,/+-]{8,40}")
_MIN_MILLISECONDS = 10**11  # a smaller number counts seconds, up to the year 5138
_LINE_CHARS = 76  # of base64 with line breaks (RFC 2045, section 6.8)


class Difference(msgspec.Struct, frozen=True, order=True):
    """A difference between a response and the document, or a form."""

    path: str
    """The place in the response: `$.messages[].uid`, `status`, `refusal status` or `header Date`."""
    what: str
    """The difference, without a value of the response."""

    @property
    def is_form(self) -> bool:
        """True for a form, which the document allows, False for a real difference."""
        return self.what.startswith(FORM)


class OperationReport(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of one operation."""

    operation: str
    status: int | None = None
    """The HTTP status, or None without a response."""
    skipped: str | None = None
    """Why the operation was not called or has no result, or None."""
    differences: list[Difference] = []
    forms: list[Difference] = []


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report of `directsuite doctor --deep`, with the version that wrote it."""

    directsuite: str = ""
    operations: list[OperationReport]


def name_json_type(value: object) -> str:
    """Return the name of a value's JSON type, such as "string" or "null"."""
    return _TYPES.get(type(value), "null")


def write_type(kind: str, value: Any) -> Any:
    """Return a value as the JSON type `kind`, or an example of that type if it cannot be converted.

    A single-element array of that type becomes the element; longer ones are unchanged. Of arrays, only empty ones
    become null.
    """
    if kind == "null" and name_json_type(value) == "array":
        return value or None
    if kind == "object" and value is None:  # was an empty array
        return None
    if name_json_type(value) == "array" and all(name_json_type(each) == kind for each in value):
        return value[0] if len(value) == 1 else value  # an element in place of an array of one
    if kind == "string":
        return value if isinstance(value, str) else json.dumps(value)
    if kind == "array":
        return [value]
    moment = _read_moment(value) if kind == "number" else None
    return moment.timestamp() if moment else EXAMPLES.get(kind)


def find_form(role: Role | None, value: object) -> str:
    """Return the name of a value's form, or "" without a form or if the sandbox writes this form by itself."""
    for name, form in _FORMS.items():
        if form.role == role and form.matches(value):
            return name
    is_text = role == "moment" and isinstance(value, str)
    return f"a moment as {mask_digits(value)}" if is_text and mask_digits(value) != _MOMENT_FORM else ""


def write_form(name: str, value: Any) -> Any:
    """Return a value of the sandbox in the form with this name, or unchanged if it cannot have that form."""
    return _FORMS[name].write(value) if name in _FORMS else write_moment(name.removeprefix("a moment as "), value)


def mask_digits(text: object) -> str:
    """Return a date with a 9 for each digit, the name of a form, or "no date in digits" for any other text."""
    masked = re.sub("[0-9]", "9", str(text)) if _DATE_LIKE.fullmatch(str(text)) else "no date in digits"
    return next((name for name, form in _TEXT_FORMS.items() if re.fullmatch(form[0], str(text))), masked)


def write_moment(mask: str, value: Any) -> Any:
    """Return a moment of the sandbox in another form, in UTC. Other values are unchanged.

    mask: the result of `mask_digits` for a date in that form. If it does not begin with the year, the date is month,
    day, year.
    """
    moment = _read_moment(value)
    if moment is None:
        return value
    if mask in _TEXT_FORMS:
        return _TEXT_FORMS[mask][1](moment)
    date = f"{moment:%Y%m%d}" if mask.startswith("9999") else f"{moment:%m%d%Y}"
    fraction = re.search(r"\.(9+)", mask[10:])
    digits = iter(f"{date}{moment:%H%M%S}" + (f"{moment:%f}"[: len(fraction[1])] if fraction else ""))
    return re.sub("9", lambda _: next(digits, "0"), mask)


_TEXT_FORMS: Mapping[str, tuple[str, Callable[[datetime], str]]] = {
    "milliseconds since 1970 as text": (r"\d{13}", lambda moment: f"{moment.timestamp() * 1000:.0f}"),
    "seconds since 1970 as text": (r"\d{10}", lambda moment: f"{moment.timestamp():.0f}"),
    "EEE, dd MMM yyyy HH:mm:ss Z": (r"\w{3}, \d\d? \w{3} \d{4} [\d:]{8} [A-Z\d+-]{1,5}", format_datetime),
    "MMM d, yyyy h:mm:ss a": (r"\w{3} \d\d?, \d{4},? [\d:]{7,8}\s[AP]M", "{:%b %d, %Y %I:%M:%S %p}".format),
}
"""The forms of moments that a mask of digits does not describe: a pattern and a function that writes it."""


@dataclass(frozen=True)
class _Form:
    role: Role
    matches: Callable[[Any], bool]
    write: Callable[[Any], Any]


_FORMS: Mapping[str, _Form] = {
    "null for an empty array": _Form("array", lambda value: value is None, lambda value: value or None),
    "milliseconds since 1970": _Form(
        "moment",
        lambda value: isinstance(value, int) and abs(value) >= _MIN_MILLISECONDS,
        lambda value: _write_epoch(value, 1000),
    ),
    "seconds since 1970": _Form("moment", lambda value: isinstance(value, int), lambda value: _write_epoch(value, 1)),
    "base64 with line breaks": _Form(
        "base64",
        lambda value: isinstance(value, str) and len(value.split()) > 1,
        lambda value: re.sub(rf".{{{_LINE_CHARS}}}(?=.)", r"\g<0>\r\n", value) if isinstance(value, str) else value,
    ),
}
"""The forms by name. `mask_digits` returns the names of more forms of moments."""


def _write_epoch(value: Any, units_per_second: int) -> Any:
    moment = _read_moment(value)
    return value if moment is None else (moment - EPOCH) * units_per_second // timedelta(seconds=1)


def _read_moment(value: object) -> datetime | None:
    try:
        return datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%S.%f%z")
    except ValueError:
        return None


Profile = Literal["strict", "java", "attachment-list"]
Profiles: TypeAlias = Profile | Collection[Profile]
PROFILES: tuple[Profile, ...] = get_args(Profile)

_DATE_MEMBERS = frozenset(("sentDate", "receivedDate", "ts"))
_JAVAMAIL_MEMBERS = {"modified": False, "saved": True, "strict": True}

Dialect = Mapping[str, Sequence[Difference]]

_MAX_REPORT_BYTES = 16 * 2**20
_NOT_A_REPORT = "is not a report of `directsuite doctor --deep`"
_STEPS = re.compile(r"\.(<[^<>]*>|[A-Za-z0-9_]+)|(\[\])")
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


class ResponseOptions:
    """The options of the services' responses, which can be changed at runtime."""

    def __init__(self, profile: Profiles, csv_above: int, missing_status: int) -> None:
        self.profile = profile
        self.csv_above = csv_above
        """The maximum number of ids in a JSON status report. A report about more is CSV; 0: always CSV."""
        self.missing_status = missing_status
        """The HTTP status for an unknown, deleted or expired document: 400, or 404 as on some servers."""

    @property
    def profile(self) -> Profiles:
        """The profiles of responses: `strict` follows the specification; `java` and `attachment-list` combine.

        `java`: dates are milliseconds, an empty list is null, a list of one object is that object. `attachment-list`:
        received messages have that member instead of `attachments`. Setting an unknown name raises ValueError.
        """
        return self._profile

    @profile.setter
    def profile(self, profile: Profiles) -> None:
        names = profile if isinstance(profile, (list, tuple, set, frozenset)) else [profile]
        if not all(name in PROFILES for name in names):
            raise ValueError(f"profile must be one of {', '.join(PROFILES)}, or a list of them")
        self._profile: Profiles = profile
        self.active_profiles = {str(name) for name in names} - {"strict"}
        """The profiles without `strict`."""


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
    return _write_epoch(value, 1000) if name in _DATE_MEMBERS else value


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
    return name_json_type(document) == "object" and document.get("success") is False


def _read_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


async def _change(response: web.Response, differences: Sequence[Difference]) -> web.Response:
    payload: Any = response.body
    body: bytes = await payload.read() if isinstance(payload, PiecesPayload) else bytes(payload or b"")
    status, headers = response.status, response.headers.copy()
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
    kind, keys = name_json_type(container), list[Any]()
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
    is_object = name_json_type(container) == "object"
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
