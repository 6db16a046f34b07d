"""Responses of the services for tests that mock HTTP.

    answer = response("GetUIDs", folder="INBOX", uids=[1, 2])
    mocked.add(f"{message_url}/{answer.path}", answer.method, status=answer.status, body=answer.body)

With `mocked_services`, `mocked.respond("GetUIDs", folder="INBOX", uids=[1, 2])` does the same.
"""

from __future__ import annotations

import functools
import http.client
import json
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast
from unittest.mock import ANY
from urllib.parse import quote, unquote

import attrs
import pybase64
from yarl import URL

from directsuite.core.operation import Operation, Service
from directsuite.core.similar import find_similar
from directsuite.errors import InvalidArgumentError
from directsuite.fax import operations as fax
from directsuite.messaging import operations as messaging
from directsuite.messaging.models import APIResponse
from directsuite.registration import operations as registration
from directsuite.registration.models import SUCCESS_CODE, ResellerAPIResponse
from directsuite.signing import operations as signing
from directsuite.wire.codec import Codec
from directsuite.wire.models import Model, OpenEnum, get_model_fields, get_wire_name
from directsuite.wire.parsing import MismatchError

_SUCCESS_CODES = (None, 0, SUCCESS_CODE)
_STATUSES = range(100, 600)


@attrs.frozen
class ServiceResponse:
    """A response of one operation, and the request that it answers."""

    method: str
    path: str
    """The path relative to the URL of the service, with its parameters percent-encoded."""
    status: int
    body: bytes = attrs.field(repr=False)

    @property
    def json(self) -> Any:
        """The body as JSON values. Raises ValueError for a PDF, which is base64 text."""
        return json.loads(self.body)


def response(operation: str, *, status: int | None = None, **values: Any) -> ServiceResponse:
    """Return a response of an operation, as the service writes it.

    operation: the name in the specification, such as "GetUIDs".
    status: the HTTP status. None: 200, or 400 with `error`.
    values: the parameters of the path, such as `folder`, and the fields of the response by their names in Python. For
        GetDoc and the other operations that return a PDF, `pdf` with its bytes. A name that is both, such as
        `identifier`, needs one value. `success` is True if it is omitted. The guide `methods` lists the fields, and
        which of them are required. A list or `smtp_id` may be empty.

    An error has other fields. It is an error if `status` is 300 or more, if `success` is False, or, for signing and
    fax, if `error` is given.

    - Signing and fax: `error` and `description`.
    - Messaging: `code` and `message`.
    - Registration, also for a failed login: `code` and `error_message`.

    Raises ValueError if the operation does not exist, or a parameter of the path is missing, and TypeError if the
    response has no such field, a required field is missing, the package could not read a value, the specification does
    not list the text of an enum (`MessageStatus("Deferred")` instead of the text allows it), or `code` is an error but
    `success` is omitted.
    """
    __tracebackhide__ = True
    chosen = find_operation(operation)
    parameters = find_parameters(chosen)
    if missing := [name for name in parameters if name not in values]:
        raise ValueError(f"the path of {operation} needs {', '.join(missing)}: {chosen.path}")
    if status is not None and status not in _STATUSES:
        raise TypeError("status must be an HTTP status, such as 503. The status of a fax is in message_detail")
    path = chosen.path.format_map({name: _quote_parameter(values[name]) for name in parameters})
    if fields_with_any := [name for name, value in values.items() if value is ANY and name not in parameters]:
        raise TypeError(f"ANY is possible for a parameter of the path, but not for {fields_with_any[0]}")
    values = {name: value for name, value in values.items() if value is not ANY}
    has_flag = chosen.fault_format.success_key is not None
    is_error = "error" in values and not has_flag
    if status is None:
        status = 400 if is_error else 200
    if is_error or not values.get("success", status < 300):
        members = {name: value for name, value in values.items() if name not in parameters}
        body = _encode_error(chosen, status, members)
    elif chosen.response is bytes:
        unknown = values.keys() - {"pdf", *parameters}
        if unknown:
            raise TypeError(f"the response of {operation} is a PDF, and has no field {min(unknown)}. Its field is pdf.")
        if not isinstance(pdf := values.get("pdf"), bytes) or not pdf:
            raise TypeError(f"the response of {operation} needs pdf: bytes, such as b'%PDF-1.7'")
        body = pybase64.b64encode(pdf)
    else:
        fields = attrs.fields_dict(chosen.response)
        members = {name: value for name, value in values.items() if name in fields or name not in parameters}
        if has_flag:
            if "success" not in members and (code := members.get("code")) not in _SUCCESS_CODES:
                raise TypeError(f"code={code!r} is an error: give success=False")
            members.setdefault("success", True)
        absent = set(find_required_fields(chosen)) - members.keys()
        if "csv_data" in members:
            absent -= {"message_logs"}  # only one of the two contains the report
        if absent and members.keys() <= fields.keys():  # a misspelt field is named instead
            raise TypeError(f"the response of {operation} needs {min(absent)}")
        body = _encode_model(f"the response of {operation}", chosen.response, members)
        _require_element_members(f"the response of {operation}", chosen, body)
    return ServiceResponse(chosen.method, path, status, body)


def find_required_fields(operation: Operation[Any]) -> list[str]:
    """Return the fields without which most programs fail: required ones, texts without a default, and the list."""
    if operation.response is bytes:
        return ["pdf"]
    lists = [field.name for field in get_model_fields(operation.response) if field.item is not None]
    required = {*operation.required_fields, *(lists if len(lists) == 1 else ())}
    required |= {field.name for field in attrs.fields(operation.response) if field.default in (attrs.NOTHING, "")}
    required -= {*find_parameters(operation)}
    return [field.name for field in attrs.fields(operation.response) if field.name in required]


def _require_element_members(what: str, operation: Operation[Any], body: bytes) -> None:
    """Raise TypeError if an element of a list lacks a required member, such as the uid of `messages[].uid`."""
    __tracebackhide__ = True
    document, fields = json.loads(body), {field.name: field for field in get_model_fields(operation.response)}
    for required in operation.required_fields:
        name, _, member = required.partition("[].")
        for number, element in enumerate(document.get(fields[name].key) or () if member else ()):
            if element.get(get_wire_name(fields[name].item, member)) is None:
                raise TypeError(f"{what} needs {name}[{number}].{member}")


def find_parameters(operation: Operation[Any]) -> list[str]:
    """Return the names of the parameters of the path."""
    return [name for _, name, _, _ in string.Formatter().parse(operation.path) if name]


def _quote_parameter(value: object) -> str:
    return quote(str(value).lower() if isinstance(value, bool) else str(value), safe="")


def describe_request(method: str, url: URL) -> str:
    """Return the operation of a request and the parameters of its path, such as "GetUIDs (folder='INBOX')".

    If it is a request of no operation, return its method and URL.
    """
    matches = [
        (each, match)
        for each in _get_operations().values()
        if each.method == method and (match := _compile_path(each.path).search(url.raw_path))
    ]
    if not matches:
        return f"{method} {url}"
    operation, match = max(matches, key=lambda each: len(each[0].path))  # a folder may have the name of an operation
    parameters = ", ".join(f"{name}={unquote(value)!r}" for name, value in match.groupdict().items())
    return f"{operation.name} ({parameters})" if parameters else operation.name


@functools.cache
def _compile_path(path: str) -> re.Pattern[str]:
    return re.compile("/" + re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path) + "$")


def _encode_error(operation: Operation[Any], status: int, values: Mapping[str, Any]) -> bytes:
    __tracebackhide__ = True
    if status >= 500 and not values:
        return b""  # a service that fails sends no error in its own format
    if operation.fault_format.success_key is not None:
        model = APIResponse if operation.service is Service.MESSAGING else ResellerAPIResponse
        return _encode_model(f"an error of {operation.name}", model, {"success": False, **values})
    unknown = values.keys() - {"error", "description"}
    if unknown:
        raise TypeError(f"an error of {operation.name} has the fields error and description, and no {min(unknown)}")
    return json.dumps({"error": http.client.responses.get(status, "error"), **values}).encode()


def _encode_model(what: str, model: type[Model], members: Mapping[str, Any]) -> bytes:
    """Return a model with these fields as JSON. Raises TypeError if a field does not exist, or cannot be read back."""
    __tracebackhide__ = True
    fields = attrs.fields_dict(model)
    if unknown := members.keys() - fields.keys():
        known = fields.keys() - {"extra"}
        raise TypeError(f"{what} has no field {min(unknown)}. {_list_similar(min(unknown), known, 'fields')}.")
    for field in get_model_fields(model):
        if field.kind is bytes and not isinstance(members.get(field.name), bytes | None):
            raise TypeError(f"{what} needs bytes in {field.name}.")
        if field.item is not None and not isinstance(members.get(field.name), list | tuple | None):
            raise TypeError(f"{what} needs a list in {field.name}.")
    given = model(**members)
    try:
        body = _get_codec().encode(given)
    except InvalidArgumentError as error:
        raise TypeError(f"{what} cannot be written as JSON: {error}.") from None
    unreadable: Counter[str] = Counter()
    try:
        read = _get_codec().structure(model, json.loads(body), unreadable)
    except MismatchError as mismatch:
        raise TypeError(f"{what} has an invalid value: {mismatch}.") from None
    if unreadable:
        raise TypeError(f"{what} has an invalid value: {min(unreadable)} cannot be read.")
    for problem in _find_problems(given, read, "$"):
        raise TypeError(f"{what} {problem}")
    return body


def _find_problems(given: object, read: object, path: str) -> Iterator[str]:
    """Describe each member and value that the specification does not list, unless it was given on purpose.

    These are on purpose: `extra` of a model, and an unknown member of an enum, such as MessageStatus("Deferred").

    given: the value that was written. read: the value that was read back.
    """
    if isinstance(read, list):
        elements = cast("list[object]", read)
        sources = cast("list[object]", given) if isinstance(given, list | tuple) else [given] * len(elements)
        for number, (source, element) in enumerate(zip(sources, elements, strict=False)):
            yield from _find_problems(source, element, f"{path}[{number}]")
    elif isinstance(read, OpenEnum) and not read.is_known and not isinstance(given, OpenEnum):
        yield (
            f"has an unknown value at {path}: {str(read)!r}. {_list_similar(read, type(read), 'values')}. For a value "
            f"that is not in the specification, pass {type(read).__name__}({str(read)!r})."
        )
    elif isinstance(read, Model):
        fields = get_model_fields(type(read))
        if not isinstance(given, Model):
            names = ", ".join(field.key for field in fields)
            for name in read.extra:
                yield f"has no member {path}.{name}. The members of {type(read).__name__} are {names}."
        members = cast("dict[str, object]", given) if isinstance(given, dict) else {}
        for field in fields:
            source = getattr(given, field.name) if isinstance(given, Model) else members.get(field.key)
            yield from _find_problems(source, getattr(read, field.name), f"{path}.{field.key}")


def _list_similar(name: str, known: Iterable[str], plural: str) -> str:
    """Return a sentence with the similar names, or with all if none is similar."""
    names = sorted(known)
    starts = [each for each in names if name.lower().startswith(each.lower())]
    similar = dict.fromkeys([*starts, *find_similar(name, names, limit=3)])
    listed = ", ".join(similar or names)
    return f"Similar {plural}: {listed}" if similar else f"The {plural} are {listed}"


@functools.cache
def _get_codec() -> Codec:
    return Codec()


@functools.cache
def _get_operations() -> dict[str, Operation[Any]]:
    found = [each for module in (signing, fax, messaging, registration) for each in vars(module).values()]
    return {each.name: each for each in found if isinstance(each, Operation)}


def find_operation(name: str) -> Operation[Any]:
    """Return an operation of the specification. Raises ValueError if it does not exist."""
    __tracebackhide__ = True
    operations = _get_operations()
    if name in operations:
        return operations[name]
    raise ValueError(
        f"there is no operation {name!r}. {_list_similar(name, operations, 'names')}. The guide "
        "`methods` lists the operations of all methods."
    )
