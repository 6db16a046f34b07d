"""What a test or a demo does to a running sandbox: add accounts, faxes and messages, inject faults, read the ledger."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from directsuite.sandbox import credentials, fax, ledger, oauth
from directsuite.sandbox.database import CLOSED, Database
from directsuite.sandbox.faults import Fault, Faults
from directsuite.sandbox.json_body import MalformedMemberError
from directsuite.sandbox.messaging import accounts
from directsuite.sandbox.registration import individuals, patients, sessions
from directsuite.sandbox.registration.answers import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.messaging.profile import Profiles
    from directsuite.sandbox.services import Services

DEMO_ACCOUNT = "demo"


class Verbs:
    """The part of a Sandbox that works on its state; RuntimeError before the sandbox is open and once it is closed."""

    clock: Clock
    """The time of the whole sandbox."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._faults = Faults()
        self._opened: tuple[Database, Services] | None = None

    @property
    def _database(self) -> Database:
        return self._state()[0]

    @property
    def _services(self) -> Services:
        return self._state()[1]

    def _state(self) -> tuple[Database, Services]:
        if self._opened is None:
            raise RuntimeError(CLOSED)
        return self._opened

    @property
    def profile(self) -> Profiles:
        """`strict` follows the specification; `java`, `attachment-list` or a list of both answer as some servers do.

        With `java`, dates are milliseconds, an empty list is null and a list of one is the object; with
        `attachment-list`, received messages have that member for `attachments`. Raises ValueError for another name.
        """
        return self._services.messaging.profile

    @profile.setter
    def profile(self, profile: Profiles) -> None:
        """Answer so from now on."""
        self._services.messaging.profile = profile

    @property
    def csv_above(self) -> int:
        """A status report about more ids than this comes as CSV; 0 makes every report CSV."""
        return self._services.messaging.csv_above

    @csv_above.setter
    def csv_above(self, ids: int) -> None:
        """Report so from now on."""
        self._services.messaging.csv_above = ids

    @property
    def missing_status(self) -> int:
        """The HTTP status for an unknown, deleted or expired document: 400, or 404 as some servers have it."""
        return self._services.signing.missing_status

    @missing_status.setter
    def missing_status(self, status: int) -> None:
        """Refuse so from now on."""
        self._services.signing.missing_status = status

    def authority_pem(self) -> bytes:
        """The certificate that the sandbox's signatures lead to, as PEM text; made, on first use, within a second."""
        return self._services.keys.authority_pem()

    async def add_account(self, address: str, password: str) -> int:
        """Open a mailbox and return its id. Raises AccountExists, or ValueError for what is no address."""
        now = self.clock.milliseconds()
        return await self._database.write(
            lambda connection: accounts.create_account(connection, address, password, at_ms=now)
        )

    async def add_tuser(self, username: str, password: str, direct_addresses: Iterable[str]) -> None:
        """Add a T-User who may act for these addresses, and log in to registration. Raises AccountExists."""
        addresses = list(direct_addresses)
        await self._database.write(lambda connection: accounts.create_tuser(connection, username, password, addresses))

    async def add_reseller(self, username: str, password: str, domains: Iterable[str] = ()) -> None:
        """Add a reseller or change his password; `domains` become domains that patients can be registered in."""
        names = list(domains)
        await self._database.write(lambda connection: sessions.add_reseller(connection, username, password, names))

    async def add_client(self, client_id: str, client_secret: str, account: str = DEMO_ACCOUNT) -> None:
        """Register an OAuth 2.0 client that acts for `account` at the signing and fax services."""
        await self._database.write(lambda connection: oauth.add_client(connection, client_id, client_secret, account))

    async def issue_token(self, account: str = DEMO_ACCOUNT, *, lifetime: timedelta = timedelta(hours=1)) -> str:
        """A fresh access token of `account` for the signing and fax services."""
        token, now = credentials.new_secret(), self.clock.milliseconds()
        await self._database.write(
            lambda connection: credentials.store_token(connection, token, account=account, now=now, lifetime=lifetime)
        )
        return token

    async def expire_tokens(self, account: str | None = None) -> int:
        """End the access tokens of an account, or all; returns how many there were."""
        return await self._database.write(lambda connection: credentials.expire_tokens(connection, account=account))

    async def expire_sessions(self, username: str | None = None) -> int:
        """End the registration sessions of a login, or all; returns how many there were."""
        return await self._database.write(lambda connection: sessions.expire(connection, username=username))

    async def add_fax(
        self,
        fax_number: str,
        *,
        status: str = "complete",
        recipients: Iterable[Mapping[str, Any]] | None = None,
        description: str = "",
        account: str = DEMO_ACCOUNT,
    ) -> str:
        """Add a fax and return its handle. Raises ValueError for bad values, NumberTakenError for a foreign number."""
        record = fax.FaxRecord.of(fax_number, account, status, description, recipients)
        now = self.clock.milliseconds()
        return await self._database.write(lambda connection: fax.add_fax(connection, record, now=now))

    async def set_fax_status(self, handle: str, status: str) -> bool:
        """Give a fax a new status, as of now; False for an unknown handle. Raises ValueError for an unknown status."""
        now = self.clock.milliseconds()
        return await self._database.write(lambda connection: fax.update_status(connection, handle, status, now=now))

    async def add_individual(
        self,
        first_name: str,
        last_name: str,
        ssn4: str,
        dob: str,
        *,
        id: int | None = None,  # noqa: A002  the specification's name
        **contact: str,
    ) -> int:
        """Add an identity-proofed individual and return the id.

        contact: email, phone, address, city, state, country, zipcode. Raises ValueError for bad values.
        """
        members = {"id": id, "firstName": first_name, "lastName": last_name, "ssn4": ssn4, "dob": dob, **contact}
        if unknown := set(contact) - set(individuals.CONTACT):
            raise ValueError(f"unknown contact data: {', '.join(sorted(unknown))}")
        try:
            return await self._database.write(lambda connection: individuals.add(connection, members))
        except (RefusedError, MalformedMemberError) as refused:
            raise ValueError(str(refused)) from None

    async def set_patient_state(self, address: str, state: str | None) -> bool:
        """Force the UserStateType of a patient's address; None lets it follow the clock. False for an unknown one."""
        return await self._database.write(lambda connection: patients.set_state(connection, address, state))

    async def deliver(self, address: str, raw: bytes, folder: str = "INBOX") -> int:
        """Deliver a raw message (RFC 5322) into a folder of a mailbox and return its uid. Raises UnknownAccount."""
        return await self._services.messaging.deliver_inbound(address, raw, folder)

    async def renumber(self, address: str, folder: str = "INBOX", *, first: int = 1) -> int:
        """Give a folder's messages other uids, from `first`, as a server does that was restored; how many there are."""
        return await self._services.messaging.renumber(address, folder, first=first)

    async def force_message_status(self, smtp_id: str, recipient: str, status: str) -> None:
        """Give a sent message's delivery to one recipient a status for good. Raises LookupError, ValueError."""
        await self._services.messaging.force_status(smtp_id, recipient, status)

    def inject_fault(self, operation: str, kind: str, **members: Any) -> int:
        """Add a fault rule and return its number; `members` are those of Fault. Raises ValueError."""
        return self._faults.add(Fault.from_members({"operation": operation, "kind": kind, **members}))

    def remove_fault(self, number: int) -> bool:
        """Remove one fault rule; False if there is none of this number."""
        return self._faults.remove(number)

    def clear_faults(self) -> None:
        """Remove all fault rules."""
        self._faults.clear()

    def faults(self) -> list[dict[str, Any]]:
        """All fault rules, with how often each has applied."""
        return self._faults.rules()

    async def ledger(self, operation: str | None = None) -> list[Mapping[str, Any]]:
        """What really happened, in order: every side effect of the services, or of one operation."""
        return await self._database.read(lambda connection: ledger.effects(connection, operation))
