"""Each value of each good response is replaced in turn: only what a later call needs makes the response an error."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aioresponses import CallbackResult
from yarl import URL

import directsuite as ds
from directsuite.testing import LeapingClock, mocked_services
from tests.fake_services import ALICE, SETTINGS
from tests.property.sample_responses import MARKER, SAMPLE_RESPONSES, Place, list_places, replace_value

from . import OPERATIONS

Call = Callable[[ds.DirectSuite], Awaitable[object]]

REMOVED = b""
MUTATIONS = {
    "null": b"null",
    "empty text": b'""',
    "zero": b"0",
    "text": b'"x"',
    "empty list": b"[]",
    "empty object": b"{}",
    "71 bits": b"%d" % 2**70,
    "401 digits": b"%d" % 10**400,
    "beyond a float": b"1e400",
    "broken UTF-8": b'"x\xff"',
    "half a pair": rb'"\ud83d"',
    "removed": REMOVED,
}


async def _collect(messages: ds.Listing[ds.MessageDetail]) -> list[ds.MessageDetail]:
    return [message async for message in messages]


CALLS: dict[str, tuple[str, Call]] = {
    "stream_messages": ("GetMessages", lambda suite: _collect(suite.mailbox(ALICE, "secret").stream_messages())),
    "iter_metadata": ("GetMessageMetaData", lambda suite: _collect(suite.mailbox(ALICE, "secret").iter_metadata())),
}
CALLS.update((name, (name, case.call)) for name, case in OPERATIONS.items())
"""The operation and the call of each case."""

OTHERS = {"success": True, "code": "000", "sessionId": "s1", "folders": ["INBOX.other"], "uids": [], "patient": []}
"""The response to other requests of a call, such as its login or the search for its effect."""


class Script:
    """Responds to the first request of a call with a mutated response."""

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self._body: bytes | None = None

    def begin(self, body: bytes) -> None:
        self._body = body

    def __call__(self, url: URL, **_: object) -> CallbackResult:
        """Return the response to a request."""
        if self._body is None or (url.path.endswith("/login") and self._operation != "login"):
            return CallbackResult(payload=OTHERS)
        body, self._body = self._body, None
        return CallbackResult(body=body)


def _mutate(document: Any, place: Place, value: bytes) -> bytes:
    if value:
        return msgspec.json.encode(replace_value(document, place, msgspec.Raw(value)))
    *above, last = place
    around: Any = document
    for step in above:
        around = around[step]
    left: Any = around.copy()
    del left[last]
    return msgspec.json.encode(replace_value(document, tuple(above), left))


def _is_strict(operation: str, place: Place) -> bool:
    return not place or place[0] in ("success", *OPERATIONS[operation].required)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("operation", CALLS)
async def test_unneeded_value_never_fails_a_response(operation: str, mutation: str) -> None:
    name, call = CALLS[operation]
    document, value = SAMPLE_RESPONSES[name], MUTATIONS[mutation]
    script, events = Script(name), list[ds.Event]()
    errors: dict[Place, ds.DirectSuiteError] = {}
    with mocked_services() as mocked:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            mocked.add(re.compile(".*"), method, callback=script, repeat=True)
        login = ds.Login("reseller", "secret")
        suite = ds.DirectSuite(SETTINGS, token="t", login=login, clock=LeapingClock(), listeners=[events.append])
        async with suite:
            for place in list_places(document):
                if not place and not value:
                    continue
                script.begin(_mutate(document, place, value))
                try:
                    await call(suite)
                except ds.DirectSuiteError as error:
                    errors[place] = error
    assert not any(MARKER in f"{error}{error!r}" for error in errors.values())
    if isinstance(document, dict):
        assert [place for place in errors if not _is_strict(name, place)] == []
    if mutation == "broken UTF-8":
        assert errors.keys() >= {(member,) for member in OPERATIONS[name].required}
    skipped = [path for event in events if isinstance(event, ds.ValuesSkipped) for path in event.paths]
    assert not any(MARKER in path or re.search(r"\[\d", path) for path in skipped)
