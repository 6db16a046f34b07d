"""Answers as another server gives them: what `directsuite doctor --deep --report` has found there, done here.

A difference is an operation, a path and what differs there, in the report's words; it holds no value of that server.
The values that appear here are made up. Words that this module doesn't know change nothing, and the JSON of an answer
that comes out of files stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec
from aiohttp import web
from aiohttp.payload import Payload

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp.typedefs import Handler, Middleware

_STEPS = re.compile(r"\.(<[^>]*>|[A-Za-z0-9_]+)|(\[\])")
_MAX_REPORT_BYTES = 16 * 2**20
_NAMELESS = re.compile(r"<a name of (\d+) characters>")
_FORM = "has the form: "
_WITH_BREAKS = f"{_FORM}base64 with line breaks"
_LINE = 76  # characters of base64 (RFC 2045, 6.8)
_MADE_UP: Mapping[str, Any] = {
    "string": "made up",
    "integer": 1,
    "number": 0.5,
    "boolean": True,
    "null": None,
    "array": [],
    "object": {},
}


class Difference(msgspec.Struct, frozen=True):
    """What differs in one place of an answer."""

    path: str
    what: str


class _Operation(msgspec.Struct, frozen=True):
    operation: str
    differences: list[Difference]
    forms: list[Difference] = []


class _Report(msgspec.Struct, frozen=True):
    operations: list[_Operation]


def differences_of(report: Path) -> dict[str, list[Difference]]:
    """The differences of a report by operation. Raises OSError, and ValueError for a file that is no report."""
    try:
        read = msgspec.json.decode(_read(report), type=_Report)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is no report of `directsuite doctor --deep`: {error}") from None
    found = {each.operation: [*each.differences, *each.forms] for each in read.operations}
    return {  # members before what holds them, which another form may replace
        operation: sorted(changes, key=lambda each: -len(_STEPS.findall(each.path)))
        for operation, changes in found.items()
        if changes
    }


def _read(report: Path) -> bytes:
    """Return a report's content. Raise ValueError if it is too large."""
    with report.open("rb") as file:
        content = file.read(_MAX_REPORT_BYTES + 1)
    if len(content) > _MAX_REPORT_BYTES:
        raise ValueError(
            f"it is no report of `directsuite doctor --deep`: it has more than {_MAX_REPORT_BYTES:,} bytes"
        )
    return content


def imitation(differences: Mapping[str, Sequence[Difference]]) -> Middleware:
    """The middleware that changes the answers of operations so."""

    refusals = {
        name: int(number[1])
        for name, changes in differences.items()
        for each in changes
        if each.path == "refusal status" and (number := re.match(r"is (\d{3}),", each.what))
    }

    @web.middleware
    async def imitate(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer, and change the answer."""
        response = await handler(request)
        if not differences:
            return response
        operation = request.match_info.route.name or ""
        if operation and isinstance(response, web.Response) and _is_refusal(response):
            for name, status in refusals.items():
                if _service(request, name) == _base(request.path):
                    response.set_status(status)
            return response
        changes = differences.get(operation, ())
        if isinstance(response, web.Response) and any(each.what == _WITH_BREAKS for each in changes):
            response = await _with_body(response)
        return _changed(response, changes) if changes and isinstance(response, web.Response) else response

    return imitate


class _Collector:
    """Takes what a payload writes."""

    def __init__(self) -> None:
        self.content = bytearray()

    async def write(self, chunk: Any) -> None:
        """Append a chunk."""
        self.content += chunk


async def _with_body(response: web.Response) -> web.Response:
    """Return the response with its body in memory, which may have been in files."""
    if not isinstance(response.body, Payload):
        return response
    collector: Any = _Collector()
    await response.body.write(collector)
    headers = response.headers.copy()
    headers.popall("Content-Length", None)
    return web.Response(status=response.status, headers=headers, body=bytes(collector.content))


def _service(request: web.Request, operation: str) -> str:
    resource = request.app.router.named_resources().get(operation)
    return "" if resource is None else _base(resource.canonical)


def _base(path: str) -> str:
    """Return the first segment of a path, which the operations of a service have in common."""
    return path.partition("/")[2].partition("/")[0]


def _is_refusal(response: web.Response) -> bool:
    if response.status != HTTPStatus.OK:
        return True
    value = _read_json(response)
    return _is_object(value) and value.get("success") is False


def _read_json(response: web.Response) -> object:
    """Return the JSON of a response, None for a body that is no JSON, as after a fault."""
    if response.content_type == "application/json" and isinstance(response.body, bytes):
        with suppress(ValueError):
            return json.loads(response.body)
    return None


def _changed(response: web.Response, differences: Sequence[Difference]) -> web.Response:
    """The answer, changed; a refusal is as it was, for the report is about what succeeded."""
    body, headers = response.body, response.headers.copy()
    headers.popall("Content-Length", None)
    if (value := _read_json(response)) is not None:
        for each in differences:
            steps = ["[]" if array else name for name, array in _STEPS.findall(each.path)]
            if each.path.startswith("$") and steps and (change := _change_of(each.what)) is not None:
                _change(value, steps, change)
        body = json.dumps(value).encode()
    elif isinstance(body, bytes) and any(each.what == _WITH_BREAKS for each in differences):
        body = _with_breaks(body.decode()).encode()
    status = response.status
    for each in differences:
        if each.path == "status" and (number := re.match(r"is (\d{3}),", each.what)):
            status = int(number[1])
        elif each.path == "header Content-Type":
            media_type = "text/x-made-up" if "media type" in each.what else response.content_type
            headers["Content-Type"] = media_type + ("; charset=iso-8859-1" if "charset" in each.what else "")
        elif each.what == "is not described" and (added := re.fullmatch(r"header ([A-Za-z-]+)", each.path)):
            headers[added[1]] = "made=up"
    return web.Response(status=status, body=body, headers=headers)


_Change = Callable[[dict[str, Any], str], object]
"""Changes a member of an object."""


def _change_of(what: str) -> _Change | None:
    if what == "is missing":
        return lambda members, name: members.pop(name, None)
    if added := re.match(r"is not described: (\w+)", what):
        return lambda members, name: members.update({_name(name): _MADE_UP.get(added[1])})
    if other := re.match(r"is (\w+), not ", what):
        return lambda members, name: members.update({name: _as(other[1], members.get(name))})
    if form := re.match(r"has another form: ([0-9TZ :.,/+-]+)\Z", what):
        return lambda members, name: members.update({name: _dated(form[1], members.get(name))})
    if what == "has a value that is not listed":
        return lambda members, name: members.update({name: 77 if isinstance(members.get(name), int) else "Made Up"})
    if beyond := re.match(r"is beyond int(\d+)", what):
        return lambda members, name: members.update({name: 2 ** int(beyond[1])})
    if what.startswith(_FORM):
        return _form_of(what.removeprefix(_FORM))
    if what == "is no base64 text":
        return lambda members, name: members.update({name: "***"})
    return None


def _change(value: object, steps: Sequence[str], change: _Change) -> None:
    """Change a member of each object to which the steps lead; of an array, what its elements are."""
    step, *others = steps
    if step == "[]":
        for each in value if _is_array(value) else ():
            _change(each, others, change) if others else None
    elif _is_object(value):
        if not others:
            change(value, step)
        elif others == ["[]"] and _is_array(value.get(step)):
            for position, each in enumerate(value[step]):
                element = {"": each}
                change(element, "")
                value[step][position] = element.get("")
        else:
            _change(value.get(step), others, change)


def _form_of(form: str) -> _Change | None:
    """Return what gives a member another form that the specification allows."""
    if form.startswith("in place of "):
        other = form.removeprefix("in place of ")
        return lambda members, name: members.update({name: members.pop(other)}) if other in members else None
    if form == "null for an empty array":
        return lambda members, name: members.update({name: members.get(name) or None})
    if form.endswith("seconds since 1970"):
        per_second = 1000 if form.startswith("milli") else 1
        return lambda members, name: members.update({name: _since_1970(members.get(name), per_second)})
    if form == "base64 with line breaks":
        return lambda members, name: members.update({name: _with_breaks(str(members.get(name, "")))})
    dated = form.removeprefix("a moment as ")
    return lambda members, name: members.update({name: _dated(dated, members.get(name))})


def _since_1970(value: object, per_second: int) -> object:
    try:
        return int(datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%S.%f%z").timestamp() * per_second)
    except ValueError:
        return value


def _with_breaks(text: str) -> str:
    return "\r\n".join(text[start : start + _LINE] for start in range(0, len(text), _LINE))


def _name(name: str) -> str:
    nameless = _NAMELESS.match(name)
    return "made up".ljust(int(nameless[1]), ".")[: int(nameless[1])] if nameless else name


def _as(kind: str, value: object) -> object:
    match kind:
        case "string":
            return value if isinstance(value, str) else json.dumps(value)
        case "array":
            return [value]
        case "null" if _is_array(value):
            return value or None
        case "object" if _is_array(value):
            return value[0] if len(value) == 1 else value
        case "object" if value is None:
            return None
        case _:
            return _MADE_UP.get(kind)


def _dated(form: str, value: object) -> object:
    """Return a moment in another form, in UTC. A year at the end of a date follows the month and the day."""
    try:
        moment = datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%S.%f%z")
    except ValueError:
        return value
    date = f"{moment:%Y%m%d}" if re.match("9999", form) else f"{moment:%m%d%Y}"
    fraction = re.search(r"\.9+", form[10:])
    digits = iter(f"{date}{moment:%H%M%S}" + (f"{moment:%f}"[: len(fraction[0]) - 1] if fraction else ""))
    return re.sub("9", lambda _: next(digits, "0"), form)


def _is_array(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
