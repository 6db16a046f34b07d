"""The state of a sandbox, and the methods with which tests and demos change it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from directsuite.sandbox import clock, credentials, database, fax, oauth, patients, registration
from directsuite.sandbox.clock import Clock, ClockState
from directsuite.sandbox.credentials import DEMO_ACCOUNT
from directsuite.sandbox.database import CLOSED_TEXT, P, SandboxDatabase, T, Work
from directsuite.sandbox.faults import Fault, Faults
from directsuite.sandbox.messaging import delivery, mailboxes, sending
from directsuite.sandbox.messaging import service as messaging
from directsuite.sandbox.messaging.service import MessagingService
from directsuite.sandbox.quirks import ResponseOptions
from directsuite.sandbox.rejections import RejectionError
from directsuite.sandbox.signing import service as signing
from directsuite.sandbox.signing.service import SigningService

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping
    from contextlib import AsyncExitStack
    from pathlib import Path

    from directsuite.sandbox.quirks import Profiles
    from directsuite.sandbox.signing import KeySource

SCHEMAS = (
    clock.SCHEMA,
    database.SCHEMA,
    credentials.SCHEMA,
    oauth.SCHEMA,
    fax.SCHEMA,
    messaging.SCHEMA,
    registration.SCHEMA,
    signing.SCHEMA,
)

Seed = Callable[["sqlite3.Connection", int], None]
"""Adds initial data in a transaction, at a time in milliseconds since 1970."""


class Services(NamedTuple):
    """What the page and the control API use of an open sandbox."""

    database: SandboxDatabase
    signing: SigningService
    messaging: MessagingService


class SandboxState(ResponseOptions):
    """The state of a sandbox. Most methods raise RuntimeError unless the sandbox is open."""

    clock: Clock

    def __init__(
        self,
        folder: Path | None,
        clock: Clock | None,
        seed: Seed,
        keys: KeySource | None,
        max_body: int | None,
        options: tuple[Profiles, int, int],
    ) -> None:
        super().__init__(*options)
        self.clock = Clock() if clock is None else clock
        self._has_caller_clock = clock is not None
        self._folder = folder
        self._max_body = max_body
        self._seed = seed
        self._keys = keys
        self._keys_lock = threading.Lock()
        self._faults = Faults()
        self._open_services: Services | None = None

    async def _open(self, opening: AsyncExitStack) -> None:
        """Open the stored state. A clock that the caller has not passed resumes at its stored time."""
        opened = SandboxDatabase(self._folder, SCHEMAS)
        opening.callback(opened.close)
        opening.callback(setattr, self, "_open_services", None)
        folder, max_body = self._folder, self._max_body
        self._open_services = Services(
            opened,
            SigningService(opened, self.clock, self, self._get_keys, folder and folder / "documents", max_body),
            MessagingService(opened, self.clock, self, folder and folder / "messages", max_body),
        )
        opening.callback(self._open_services.signing.files.close)
        opening.callback(self._open_services.messaging.files.close)
        if self._folder is not None:
            await self._remove_unreferenced_files(at_start=True)
        stored = await opened.read(ClockState.load)
        if stored is not None and not self._has_caller_clock:
            self.clock.state = stored
        opening.callback(self.clock.listen(lambda: opened.post(self._store_clock)))

    def _get_keys(self) -> KeySource:
        with self._keys_lock:
            if self._keys is None:
                from directsuite.sandbox.signing.keys import FileKeyStore

                self._keys = FileKeyStore(self._folder)
            return self._keys

    async def _remove_unreferenced_files(self, *, at_start: bool = False) -> None:
        for service in (self.services.signing, self.services.messaging):
            await service.files.remove_unreferenced(self._database, at_start=at_start)

    @property
    def services(self) -> Services:
        """The database, and the services with their files."""
        if self._open_services is None:
            raise RuntimeError(CLOSED_TEXT)
        return self._open_services

    @property
    def _database(self) -> SandboxDatabase:
        return self.services.database

    async def _write(self, work: Work[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """Run `work` in a write transaction. Raises ValueError instead of a RejectionError."""
        try:
            return await self._database.write(work, *arguments, **options)
        except RejectionError as error:
            raise ValueError(str(error)) from None

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work`, which may only read. Raises its exception."""
        return await self._database.read(work)

    @property
    def operations(self) -> frozenset[str]:
        """The names of the operations for fault rules."""
        return self._faults.operations

    @property
    def changes(self) -> int:
        """The number of changes of the state, including the clock and the fault rules."""
        return self._database.changes + self._faults.changes

    async def reset(self) -> None:
        """Delete the state and the faults, and add the initial data again. The clock does not change."""

        def start_over(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA defer_foreign_keys=ON")
            names = connection.execute(
                "SELECT name FROM sqlite_schema"
                " WHERE type = 'table' AND (name NOT LIKE 'sqlite_%' OR name = 'sqlite_sequence')"
            )
            for row in names.fetchall():
                connection.execute(f'DELETE FROM "{row["name"]}"')  # noqa: S608  the name comes from the schema
            self._seed_state(connection)

        await self._write(start_over)
        await self._remove_unreferenced_files()
        self._faults.clear()

    async def keep_clock(self) -> None:
        """Store the state of the clock now. It is also stored soon after each change."""
        await self._write(self._store_clock)

    def _store_clock(self, connection: sqlite3.Connection) -> None:
        self.clock.state.store(connection)

    def _seed_state(self, connection: sqlite3.Connection) -> None:
        self._store_clock(connection)
        self._seed(connection, self.clock.milliseconds())

    def authority_pem(self) -> bytes:
        """Return the CA certificate of the sandbox's signatures as PEM. The first call creates it."""
        return self.services.signing.get_keys().authority_pem()

    async def add_account(self, address: str, password: str) -> int:
        """Create a mailbox and return its id. Raises AccountExists if it exists, ValueError for an invalid address."""
        return await self._write(mailboxes.create_account, address, password, at_ms=self.clock.milliseconds())

    async def add_tuser(self, username: str, password: str, direct_addresses: Iterable[str]) -> None:
        """Add a T-User: a login for these addresses and registration. Raises AccountExists if the name is in use."""
        await self._write(mailboxes.create_tuser, username, password, [*direct_addresses])

    async def add_reseller(self, username: str, password: str, domains: Iterable[str] = ()) -> None:
        """Add a login of the registration service, or change its password.

        domains: more domains in which every login may register patients.
        """
        await self._write(registration.add_reseller, username, password, [*domains])

    async def add_client(self, client_id: str, client_secret: str, account: str = DEMO_ACCOUNT) -> None:
        """Register an OAuth 2.0 client that acts for `account`, or change its secret and account."""
        await self._write(oauth.add_client, client_id, client_secret, account)

    async def issue_token(self, account: str = DEMO_ACCOUNT, *, lifetime: timedelta = timedelta(hours=1)) -> str:
        """Return a new access token of `account`."""
        expires_at = self.clock.milliseconds() + lifetime // timedelta(milliseconds=1)
        return await self._write(credentials.store_secret, "access token", account, expires_at=expires_at)

    async def expire_tokens(self, account: str | None = None) -> int:
        """Expire the access tokens of an account, or all. Return the number, including those already expired."""
        return await self._write(credentials.expire_secrets, "access token", account=account)

    async def expire_sessions(self, username: str | None = None) -> int:
        """Expire the registration sessions of a login, or all. Return the number, including those already expired."""
        return await self._write(credentials.expire_secrets, "session", account=username)

    async def add_fax(
        self,
        fax_number: str,
        *,
        status: str = "complete",
        recipients: Iterable[Mapping[str, Any]] | None = None,
        description: str = "",
        account: str = DEMO_ACCOUNT,
    ) -> str:
        """Add a fax and return its MessageHandle.

        recipients: mappings with Address, Name, PageCount and description.
        Raises ValueError for invalid values, and NumberTakenError for a number of another account.
        """
        members = {"fax_number": fax_number, "status": status, "description": description, "account": account}
        listed = list(recipients) if isinstance(recipients, Iterable) else recipients
        try:
            new = msgspec.convert({**members, "recipients": listed}, fax.NewFax)
        except msgspec.ValidationError as mismatch:  # older versions do not derive it from ValueError
            raise ValueError(str(mismatch)) from None
        return await self._write(fax.add_fax, new, now=self.clock.milliseconds())

    async def set_fax_status(self, handle: str, status: str) -> bool:
        """Change the status of a fax. Return False for an unknown handle. Raises ValueError for an unknown status."""
        return await self._write(fax.update_status, handle, status, now=self.clock.milliseconds())

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

        contact: email, phone, address, city, state, country, zipcode. Raises ValueError for invalid values.
        """
        if unknown := set(contact) - set(patients.Contact.__struct_fields__):
            raise ValueError(f"unknown contact data: {', '.join(sorted(unknown))}")
        person = patients.IndividualDescription(first_name=first_name, last_name=last_name, ssn4=ssn4, dob=dob)
        return await self._write(patients.add_individual, person, patients.Contact(**contact), id)

    async def set_patient_state(self, address: str, state: str | None) -> bool:
        """Set the UserStateType of a patient. Return False for an unknown address.

        state: None: `activated`, and after a year `provisioned_cert_expired`. Raises ValueError for an unknown state.
        """
        return await self._write(patients.set_state, address, state)

    async def deliver(self, address: str, raw: bytes, folder: str = "INBOX") -> int:
        """Deliver a raw message (RFC 5322) into a folder of a mailbox and return the message's uid.

        Raises UnknownAccount for an unknown address, and ValueError for an unknown folder or an expired or revoked
        certificate.
        """
        files, now = self.services.messaging.files, self.clock.milliseconds()
        try:
            return await sending.deliver(files, self._database, address, folder, raw, now=now)
        except RejectionError as error:
            raise ValueError(str(error)) from None

    async def set_message_status(self, smtp_id: str, recipient: str, status: str) -> None:
        """Set the final status of a message's delivery to a recipient.

        Raises LookupError if it was not sent to the recipient, and ValueError for an unknown status.
        """
        await self._write(delivery.force_status, smtp_id, recipient, status)

    def inject_fault(self, /, operation: str, kind: str, **members: Any) -> int:
        """Add a fault rule and return its id. Raises ValueError if it is invalid.

        members: other fields of `Fault`, such as `status`, `seconds` or `times`.
        """
        return self._faults.add(Fault.from_members({"operation": operation, "kind": kind, **members}))

    def remove_fault(self, number: int) -> bool:
        """Remove a fault rule. Return False if its id is unknown."""
        return self._faults.remove(number)

    def clear_faults(self) -> None:
        """Remove all fault rules."""
        self._faults.clear()

    def faults(self) -> list[dict[str, Any]]:
        """Return all fault rules: the fields of each, `id`, `applied`, and `remaining` uses (None: without limit)."""
        return self._faults.list_rules()

    async def ledger(self, operation: str | None = None) -> list[Mapping[str, Any]]:
        """Return the side effects of all operations, or of one, oldest first. Incoming mail is the operation "Inbound".

        Raises ValueError for an unknown operation.
        """
        if operation not in (None, "Inbound"):
            self._faults.validate_operation(operation)
        return await self._database.read(database.list_effects, operation)
