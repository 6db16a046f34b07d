"""A client of the control API of a sandbox in another process."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, cast
from urllib.parse import quote

import aiohttp
import msgspec

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")

TOKEN_VARIABLE = "DIRECTSUITE_SANDBOX_TOKEN"  # noqa: S105  a name
DEFAULT_URL = "http://127.0.0.1:8025"
_MAX_RESPONSE_BYTES = 2**28
_TIMEOUT = aiohttp.ClientTimeout(total=300, sock_read=60)


class ControlError(Exception):
    """The sandbox has rejected a request, no sandbox responds, or the Control is not open.

    status: the HTTP status of the rejection, None for the other causes.
    """

    def __init__(self, description: str, status: int | None = None) -> None:
        super().__init__(description)
        self.status = status


class _ReportedFaultRule(msgspec.Struct):  # a fault rule of any version
    id: int
    operation: str
    kind: str
    status: int
    seconds: float
    applied: int
    remaining: int | None


class _ReportedEffect(msgspec.Struct):  # a ledger entry of any version
    at: Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000)]  # milliseconds, up to the year 9999
    operation: str
    subject: str


class ControlClock:
    """The clock of a running sandbox in another process. Each method returns its time, and raises ControlError."""

    def __init__(self, request: Callable[..., Awaitable[datetime]]) -> None:
        self._request = request

    async def now(self) -> datetime:
        """Return the sandbox's time."""
        return await self._request("GET", "clock")

    async def advance(self, by: timedelta) -> datetime:
        """Advance the clock."""
        return await self._request("POST", "clock/advance", {"seconds": by.total_seconds()})

    async def set(self, at: datetime) -> datetime:
        """Set the clock to a time with a time zone."""
        return await self._request("POST", "clock/set", {"at": at.isoformat()})

    async def freeze(self) -> datetime:
        """Stop the clock."""
        return await self._request("POST", "clock/freeze", {})

    async def resume(self) -> datetime:
        """Restart a stopped clock."""
        return await self._request("POST", "clock/resume", {})


class Control:
    """A running sandbox in another process.

        async with Control() as control:
            await control.clock.advance(timedelta(minutes=10))

    url: the URL that the sandbox prints, which is `Sandbox.root_url`.
    clock: the clock of the sandbox.
    token: the token of a sandbox that accepts connections from other machines. None: DIRECTSUITE_SANDBOX_TOKEN, if set.
    Each method raises ControlError.
    """

    def __init__(self, url: str = DEFAULT_URL, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        own_token = os.environ.get(TOKEN_VARIABLE) if token is None else token
        self._headers = {"Authorization": f"Bearer {own_token}"} if own_token else {}
        self._http: aiohttp.ClientSession | None = None
        self.clock = ControlClock(self._request_time)

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(headers=self._headers, timeout=_TIMEOUT)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()

    async def environment(self) -> dict[str, str]:
        """Return the environment variables for a client of the demo account."""
        return self._convert_member(await self._request("GET", "environment"), "environment", dict[str, str])

    async def add_account(self, address: str, password: str) -> None:
        """Add a mailbox."""
        await self._request("POST", "accounts", {"kind": "mailbox", "address": address, "password": password})

    async def add_tuser(self, username: str, password: str, direct_addresses: Iterable[str]) -> None:
        """Add a T-User: a login that may use the mailboxes of these addresses."""
        members = {"username": username, "password": password, "direct_addresses": list(direct_addresses)}
        await self._request("POST", "accounts", {"kind": "tuser", **members})

    async def add_reseller(self, username: str, password: str, domains: Iterable[str] = ()) -> None:
        """Add a login of the registration service, or change its password.

        domains: more domains in which every login may register patients.
        """
        members = {"username": username, "password": password, "domains": list(domains)}
        await self._request("POST", "accounts", {"kind": "reseller", **members})

    async def add_individual(self, first_name: str, last_name: str, ssn4: str, dob: str) -> int:
        """Add an identity-proofed individual and return the id.

        ssn4: the last four digits of the social security number.
        dob: the date of birth, YYYY-MM-DD.
        """
        members = {"firstName": first_name, "lastName": last_name, "ssn4": ssn4, "dob": dob}
        return self._convert_member(await self._request("POST", "individuals", members), "created", int)

    async def set_patient_state(self, address: str, state: str | None) -> None:
        """Set the state of a patient. None: `activated`, and after a year `provisioned_cert_expired`."""
        await self._request("POST", f"patients/{quote(address, safe='')}/state", {"state": state})

    async def add_fax(self, fax_number: str, *, status: str = "complete", description: str = "") -> str:
        """Add a fax and return its MessageHandle. status: waiting or complete."""
        members = {"fax_number": fax_number, "status": status, "description": description}
        return self._convert_member(await self._request("POST", "fax", members), "created", str)

    async def set_fax_status(self, handle: str, status: str) -> None:
        """Change the status of a fax."""
        await self._request("PATCH", f"fax/{quote(handle, safe='')}", {"status": status})

    async def deliver(self, address: str, raw: bytes, folder: str = "INBOX") -> int:
        """Deliver a raw message (RFC 5322) into a folder of a mailbox and return the message's uid."""
        path = f"inbound/{quote(address, safe='')}?folder={quote(folder, safe='')}"
        return self._convert_member(await self._request("POST", path, raw), "created", int)

    async def set_message_status(self, smtp_id: str, recipient: str, status: str) -> None:
        """Set the final status of a sent message's delivery to a recipient."""
        path = f"messages/{quote(smtp_id, safe='')}/status"
        await self._request("POST", path, {"recipient": recipient, "status": status})

    async def inject_fault(self, operation: str, kind: str, **members: Any) -> int:
        """Add a fault rule and return its id.

        operation: the operation's name, or * for all.
        members: other fields of the rule, such as `status`, `seconds` or `times`.
        """
        rule = {"operation": operation, "kind": kind, **members}
        return self._convert_member(await self._request("POST", "faults", rule), "created", int)

    async def faults(self) -> list[dict[str, Any]]:
        """Return the fault rules: the fields of each, `id`, `applied`, and `remaining` uses (None: without limit)."""
        document = await self._request("GET", "faults")
        self._convert_member(document, "faults", list[_ReportedFaultRule])
        return list(document["faults"])

    async def clear_faults(self) -> None:
        """Remove all fault rules."""
        await self._request("DELETE", "faults")

    async def ledger(self, operation: str | None = None) -> list[dict[str, Any]]:
        """Return the side effects of all operations, or of one, as `id`, `operation`, `subject`, `detail`, `at`."""
        path = "ledger" if operation is None else f"ledger?operation={quote(operation, safe='')}"
        document = await self._request("GET", path)
        self._convert_member(document, "effects", list[_ReportedEffect])
        return list(document["effects"])

    async def reset(self) -> None:
        """Delete the state and the faults, and add the initial data again. The clock does not change."""
        await self._request("POST", "reset", {})

    async def _request(self, method: str, path: str, body: Mapping[str, Any] | bytes | None = None) -> dict[str, Any]:
        if self._http is None:
            raise ControlError("a Control can only be used in an `async with` block")
        content: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": body}
        try:
            # Redirects are not followed, because the body may contain a password.
            async with self._http.request(
                method, f"{self._url}/_sandbox/{path}", allow_redirects=False, **content
            ) as response:
                if response.content_type != "application/json" or 300 <= response.status < 400:
                    raise self._make_not_a_sandbox_error()
                document: object = json.loads(await self._read(response))
        except (aiohttp.ClientError, OSError):
            raise ControlError(
                f"no sandbox responds at {self._url}: start one with `directsuite sandbox`, or set the URL of another "
                "one with --at or DIRECTSUITE_SANDBOX"
            ) from None
        except (RecursionError, ValueError):
            raise self._make_not_a_sandbox_error() from None
        if not isinstance(document, dict):
            raise self._make_not_a_sandbox_error()
        members = cast("dict[str, Any]", document)
        if response.status >= 400:
            raise ControlError(str(members.get("description") or response.reason), response.status)
        return members

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > _MAX_RESPONSE_BYTES:
                raise self._make_not_a_sandbox_error()
        return bytes(body)

    def _convert_member(self, document: Mapping[str, Any], name: str, kind: type[T]) -> T:
        try:
            return msgspec.convert(document[name], kind)
        except (KeyError, msgspec.ValidationError):
            raise self._make_not_a_sandbox_error() from None

    async def _request_time(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> datetime:
        return self._convert_member(await self._request(method, path, body), "now", datetime)

    def _make_not_a_sandbox_error(self) -> ControlError:
        return ControlError(f"the server at {self._url} is not a sandbox")
