"""What the page's forms do: each a control of the control API, with the form for its body."""

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
    """What the form of a control does."""

    async def act(sandbox: SandboxState, request: web.Request, form: MultiDictProxy[Any]) -> None:
        """Run the control with the form's values."""
        await entry.handler(sandbox, request, _build_body(entry, _read_members(form)))

    return _deliver if entry.documented_body_type is bytes else act


async def _deliver(sandbox: SandboxState, request: web.Request, form: MultiDictProxy[Any]) -> None:
    """Deliver the message that the form holds, its text pasted or a file of it, as one that comes from elsewhere.

    Raises ValueError where the form holds no message, or two; otherwise what `SandboxState.deliver` raises.
    """
    file, text = form.get("file"), str(form.get("raw", ""))
    uploaded = await asyncio.to_thread(file.file.read) if isinstance(file, web.FileField) else b""
    pasted = text.encode("utf-8", "surrogateescape") if text.strip() else b""
    if bool(uploaded.strip()) == bool(pasted):
        raise ValueError("paste a message, or choose a file, and not both" if pasted else "there is no message in it")
    folder = str(form.get("folder", "")).strip() or "INBOX"
    await sandbox.deliver(request.match_info["address"], pasted or uploaded, folder)


def _read_members(form: MultiDictProxy[Any]) -> dict[str, Any]:
    """A form as members of JSON: what is left empty is left out, and a name with [] has a list of words."""
    members = dict[str, Any]()
    for name in form.keys() - {"form_token", "back"}:
        texts = [text for text in map(str, form.getall(name)) if text.strip()]
        if name.endswith("[]"):
            members[name[:-2]] = " ".join(texts).replace(",", " ").split()
        elif texts:
            members[name] = texts[0]
    if isinstance(members.get("at"), str) and len(members["at"]) < len("2026-05-01T12:00:00+00:00"):
        members["at"] = members["at"].removesuffix("Z") + "+00:00"  # what a browser's field gives has no offset
    return members


def _build_body(entry: ControlOperation, members: dict[str, Any]) -> Any:
    """The body that a control takes, of a form's texts. Raises ValueError."""
    if entry.body_type is None:
        return None
    body = msgspec.convert(members, entry.documented_body_type or entry.body_type, strict=False)
    return body if entry.documented_body_type is None else msgspec.to_builtins(body)
