"""Answers in the manner of some Java servers of this API, to exercise clients that must bear with them.

Dates become milliseconds since 1970; empty lists become null; a list of one object becomes the object; the message of
a success is null; messages have members of JavaMail's that the specification does not name.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeGuard

Profile = Literal["strict", "java"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATES = frozenset(("sentDate", "receivedDate", "ts"))
_JAVAMAIL = {"modified": False, "saved": True, "strict": True}


def java_answer(answer: dict[str, Any]) -> dict[str, Any]:
    """The same answer in the manner of a Java server."""
    return {name: _member(name, value) for name, value in answer.items()} | {"message": None}


def _member(name: str, value: object) -> object:
    if _is_list(value):
        return _list(value)
    if name in _DATES and isinstance(value, str):
        return (datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%f%z") - _EPOCH) // timedelta(milliseconds=1)
    return value


def _list(elements: list[Any]) -> object:
    members = [_object(element) if _is_object(element) else element for element in elements]
    return members[0] if len(members) == 1 and _is_object(members[0]) else members or None


def _object(members: dict[str, Any]) -> dict[str, Any]:
    extra = _JAVAMAIL if "msgnum" in members else {}
    return {name: _member(name, member) for name, member in members.items()} | extra


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
