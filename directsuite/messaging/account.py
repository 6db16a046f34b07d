"""What every part of a mailbox's facade builds on: its address, its credentials, its request bodies."""

from __future__ import annotations

from collections.abc import Iterable

from directsuite.core.body import RequestBody
from directsuite.core.call import Proof
from directsuite.core.facade import Facade
from directsuite.core.operation import Operation
from directsuite.core.transport import Transport
from directsuite.errors import InvalidArgumentError
from directsuite.messaging import arguments
from directsuite.messaging.deadline import Deadline
from directsuite.messaging.models import APIResponse, Authentication, Recipient, UidsRequest
from directsuite.secret import Secret, as_secret
from directsuite.wire.models import MAX_UID


class Account(Facade):
    """A Direct address and its password, as requests carry them."""

    def __init__(self, transport: Transport, username: str, password: str | Secret) -> None:
        super().__init__(transport)
        password = as_secret(password)
        self._username = arguments.address(username, "username")
        self._authentication = Authentication(username=username, password=password)
        self._credentials = self._body(self._authentication)

    def _uids_body(self, uids: Iterable[int], recipients: list[Recipient] | None = None) -> RequestBody:
        request = UidsRequest(auth=self._authentication, uids=list(uids), recipients=recipients or [])
        return self._body(request)

    def _deadline(self, timeout: float | None) -> Deadline:
        """The end of a method that makes several requests, by the same rules as that of one."""
        seconds = self._timed(timeout).timeout
        return Deadline.after(self._transport.timeout if seconds is None else seconds)

    async def _change(
        self,
        operation: Operation[APIResponse],
        *segments: str,
        uids: list[int],
        timeout: float | None,
        proof: Proof[APIResponse] | None = None,
    ) -> None:
        """A change to messages given by uid; with none nothing is sent."""
        operation.check(segments)
        if uids:
            await self._call(operation, *segments, body=self._uids_body(uids), timeout=timeout, proof=proof)


def checked_uids(uids: Iterable[int]) -> list[int]:
    """Uids as a list; InvalidArgumentError where one of them can't be a uid."""
    listed = list(uids)
    if not all(type(uid) is int and 0 <= uid <= MAX_UID for uid in listed):
        raise InvalidArgumentError("give uids as get_uids returns them: whole numbers, not negative", parameter="uids")
    return listed
