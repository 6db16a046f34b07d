"""The notices after a form has changed something.

The response to a form redirects to the view that contains it. A cookie has the key of the notice, which the view then
shows once. The texts stay on the server, so that other pages cannot make the page show theirs.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

COOKIE = "directsuite_sandbox_notice"
MAX_AGE = 60
"""The lifetime of the cookie in seconds."""
_MAX_NOTICES = 100
_MAX_CHARS = 300

_TEXTS = {
    "POST clock/freeze": "The clock was stopped at {now} UTC.",
    "POST clock/resume": "The clock was resumed.",
    "POST clock/advance": "The clock was advanced. It is now {now} UTC.",
    "POST clock/set": "The clock was set. It is now {now} UTC.",
    "POST faults": "Fault {created} was added.",
    "DELETE faults": "All faults were removed.",
    "DELETE faults/{id:[0-9]{1,9}}": "Fault {id} was removed.",
    "POST accounts": "The account {created} was added.",
    "POST individuals": "{firstName} {lastName} was added.",
    "POST patients/{address}/state": "The state of {address} was set.",
    "POST fax": "The fax {created} was added.",
    "PATCH fax/{handle}": "The fax {handle} was set to {status}.",
    "POST inbound/{address}": "The message was delivered to {address}.",
    "POST messages/{smtp_id}/status": "The delivery to {recipient} was set to {status}.",
    "POST profile": "The response profiles were changed.",
    "POST sessions/expire": "All registration sessions were ended.",
    "POST reset": "The sandbox was reset to its initial content.",
}
"""The notice of each form, by method and path of its control."""


def describe_change(method: str, path: str, values: Mapping[str, Any]) -> str:
    """Return the notice for a change.

    values: path parameters, fields of the form, members of the response, and the time `now` as text.
    """
    return _TEXTS.get(f"{method} {path}", "The change was made.").format_map(values)[:_MAX_CHARS]


class Notices:
    """The notices that have not been shown yet, by key. Only the newest ones are stored."""

    def __init__(self) -> None:
        self._texts = dict[str, str]()

    def add(self, text: str) -> str:
        """Store a notice and return its key."""
        key = secrets.token_urlsafe(16)
        self._texts[key] = text
        if len(self._texts) > _MAX_NOTICES:
            del self._texts[next(iter(self._texts))]
        return key

    def pop(self, key: str | None) -> str | None:
        """Remove and return a notice, or None if there is none with this key."""
        return None if key is None else self._texts.pop(key, None)
