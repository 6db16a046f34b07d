"""The form that delivers a raw message to a mailbox: its text pasted, or a file of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from multidict import MultiDictProxy

    from directsuite.sandbox.state import SandboxState


async def deliver(sandbox: SandboxState, request: web.Request, form: MultiDictProxy[Any]) -> None:
    """Deliver what the form holds, as a message that comes from elsewhere.

    Raises ValueError where the form holds no message, or two; otherwise what `SandboxState.deliver` raises.
    """
    file, text = form.get("file"), str(form.get("raw", ""))
    uploaded = await asyncio.to_thread(file.file.read) if isinstance(file, web.FileField) else b""
    pasted = text.encode("utf-8", "surrogateescape") if text.strip() else b""
    if bool(uploaded.strip()) == bool(pasted):
        raise ValueError("paste a message, or choose a file, and not both" if pasted else "there is no message in it")
    folder = str(form.get("folder", "")).strip() or "INBOX"
    await sandbox.deliver(request.match_info["address"], pasted or uploaded, folder)
