"""Answers that differ from the specification as those of some servers do, for clients that must bear with them.

    java               as some Java servers: dates become milliseconds since 1970; empty lists become null; a list of
                       one object becomes the object; the message of a success is null; messages have members of
                       JavaMail's that the specification does not name
    attachment-list    received messages have `attachmentList` for `attachments`, as the provider's WSDL spells it

Without one, `strict`, the specification holds. Lists are arrays but for `java`. Profiles combine.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, TypeGuard, cast, get_args

Profile = Literal["strict", "java", "attachment-list"]
Profiles: TypeAlias = Profile | Collection[Profile]
PROFILES: tuple[Profile, ...] = get_args(Profile)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATES = frozenset(("sentDate", "receivedDate", "ts"))
_JAVAMAIL = {"modified": False, "saved": True, "strict": True}


def require_profiles(value: Any) -> frozenset[str]:
    """One profile, or several, as a set without `strict`. Raises ValueError for anything else."""
    names = cast("Collection[Any]", value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
    if not all(name in PROFILES for name in names):
        raise ValueError(f"profile must be one of {', '.join(PROFILES)}, or a list of them")
    return frozenset(names) - {"strict"}


def answer_in_profiles(answer: dict[str, Any], profiles: Collection[str]) -> dict[str, Any]:
    """The same answer in the manner of these profiles."""
    if "attachment-list" in profiles and "messages" in answer:
        answer["messages"] = [_with_attachment_list(message) for message in answer["messages"]]
    return _java_answer(answer) if "java" in profiles else answer


def _with_attachment_list(message: dict[str, Any]) -> dict[str, Any]:
    return {"attachmentList" if name == "attachments" else name: value for name, value in message.items()}


def _java_answer(answer: dict[str, Any]) -> dict[str, Any]:
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
