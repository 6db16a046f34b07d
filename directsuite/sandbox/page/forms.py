"""Actions of the page's forms. Each runs an operation of the control API, with the form as the body."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from directsuite.sandbox.control import ControlOperation

if TYPE_CHECKING:
    from multidict import MultiDictProxy

    from directsuite.sandbox.state import SandboxState


FormAction = Callable[["SandboxState", web.Request, "MultiDictProxy[Any]"], Awaitable[None]]


def make_form_action(entry: ControlOperation) -> FormAction:
    """Return the form action of a control operation."""

    async def act(sandbox: SandboxState, request: web.Request, form: MultiDictProxy[Any]) -> None:
        """Run the operation."""
        await entry.handler(sandbox, request, _build_body(entry, _read_members(form)))

    return _deliver if entry.documented_body_type is bytes else act


async def _deliver(sandbox: SandboxState, request: web.Request, form: MultiDictProxy[Any]) -> None:
    """Deliver the message in the form, pasted or uploaded, as if it came from outside.

    Raises ValueError if the form contains no message or two, and the errors of `SandboxState.deliver`.
    """
    file, text = form.get("file"), str(form.get("raw", ""))
    uploaded = await asyncio.to_thread(file.file.read) if isinstance(file, web.FileField) else b""
    pasted = text.encode("utf-8", "surrogateescape") if text.strip() else b""
    if bool(uploaded.strip()) == bool(pasted):
        raise ValueError(
            "the form has a pasted message and a file: use only one"
            if pasted
            else "the form contains no message: paste one, or select a file"
        )
    folder = str(form.get("folder", "")).strip() or "INBOX"
    await sandbox.deliver(request.match_info["address"], pasted or uploaded, folder)


def _read_members(form: MultiDictProxy[Any]) -> dict[str, Any]:
    """Return the fields of a form that are not empty. The text of a field `name[]` becomes the list of words `name`."""
    members = dict[str, Any]()
    for name in form.keys() - {"form_token", "back"}:
        texts = [text for text in map(str, form.getall(name)) if text.strip()]
        if name.endswith("[]"):
            members[name[:-2]] = " ".join(texts).replace(",", " ").split()
        elif texts:
            members[name] = texts[0]
    if isinstance(members.get("at"), str) and len(members["at"]) < len("2026-05-01T12:00:00+00:00"):
        members["at"] = members["at"].removesuffix("Z") + "+00:00"  # date fields have no offset
    return members


def _build_body(entry: ControlOperation, members: dict[str, Any]) -> Any:
    if entry.body_type is None:
        return None
    body = msgspec.convert(members, entry.documented_body_type or entry.body_type, strict=False)
    return body if entry.documented_body_type is None else msgspec.to_builtins(body)
