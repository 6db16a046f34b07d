"""A complete, valid response of each operation, with all members, and the ways to damage one.

filled(GetMessageResponse)  ->  {"success": True, "messages": [{"uid": 1, "recipients": [...], ...}], ...}
places(document)            ->  (), ("success",), ("messages",), ("messages", 0), ("messages", 0, "uid"), ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime
from typing import Any, cast

from directsuite import Model, Secret
from directsuite.core.operation import Operation
from directsuite.fax import operations as fax
from directsuite.messaging import operations as messaging
from directsuite.registration import operations as registration
from directsuite.signing import operations as signing
from directsuite.wire.models import Uid, get_model_fields

OPERATIONS: list[Operation[Any]] = [
    value
    for module in (signing, fax, messaging, registration)
    for value in vars(module).values()
    if isinstance(value, Operation)
]
"""All operations of the client."""

MARKER = "sentinel-of-a-patient"
"""The content of every text of the responses, which no error may show."""

Place = tuple[str | int, ...]

_LEAVES: dict[Any, Any] = {
    str: MARKER,
    Secret: MARKER,
    int: 1,
    Uid: 1,
    float: 1.5,
    bool: True,
    bytes: "c2VudGluZWw=",
    datetime: "2016-07-05T17:47:15.000+0000",
    date: "2016-07-05",
    dict: {MARKER: MARKER},
}


def make_full_document(cls: type[Any]) -> dict[str, Any]:
    document = {
        field.key: _make_sample(field.kind) if field.item is None else [_make_sample(field.item)]
        for field in get_model_fields(cls)
    }
    return document | ({"code": "000"} if "sessionId" in document else {})


def _make_sample(kind: Any) -> Any:
    if kind in _LEAVES:
        return _LEAVES[kind]
    return make_full_document(kind) if issubclass(kind, Model) else next(iter(kind)).value


def make_sample_response(operation: Operation[Any]) -> Any:
    if operation.response is bytes:
        return _LEAVES[bytes]
    return make_full_document(cast("type[Model]", operation.response))


SAMPLE_RESPONSES = {operation.name: make_sample_response(operation) for operation in OPERATIONS}
"""The complete responses, by operation."""


def list_member_names(document: Any) -> set[str]:
    return {step for place in list_places(document) for step in place if isinstance(step, str)}


def list_places(document: Any, at: Place = ()) -> Iterator[Place]:
    yield at
    if isinstance(document, dict):
        for name, member in cast("dict[str, Any]", document).items():
            yield from list_places(member, (*at, name))
    elif isinstance(document, list):
        for number, element in enumerate(cast("Iterable[Any]", document)):
            yield from list_places(element, (*at, number))


def remove_value(document: Any, place: Place) -> Any:
    changed: Any = document.copy()
    if len(place) == 1:
        del changed[place[0]]
    else:
        changed[place[0]] = remove_value(document[place[0]], place[1:])
    return changed


def replace_value(document: Any, place: Place, value: Any) -> Any:
    if not place:
        return value
    changed: Any = document.copy()
    changed[place[0]] = replace_value(document[place[0]], place[1:], value)
    return changed
