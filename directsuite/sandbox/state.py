"""The state of a sandbox, and what a test or a demo does to it: accounts, faxes, messages, faults, the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import msgspec

from directsuite.sandbox import clock, credentials, database, fax, oauth, patients, registration
from directsuite.sandbox.clock import Clock, ClockState
from directsuite.sandbox.credentials import DEMO_ACCOUNT
from directsuite.sandbox.database import CLOSED_TEXT, SandboxDatabase
from directsuite.sandbox.faults import Fault, Faults
from directsuite.sandbox.fax import FaxService
from directsuite.sandbox.messaging import delivery, mailboxes, sending
from directsuite.sandbox.messaging import service as messaging
from directsuite.sandbox.messaging.headers import fold
from directsuite.sandbox.messaging.parsing import StoredContent, build_content
from directsuite.sandbox.messaging.service import MessagingService
from directsuite.sandbox.registration import RegistrationService
from directsuite.sandbox.rejections import RejectionError
from directsuite.sandbox.signing import service as signing
from directsuite.sandbox.signing.keys import FileKeyStore
from directsuite.sandbox.signing.service import SigningService

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping
    from contextlib import AbstractContextManager, AsyncExitStack
    from pathlib import Path

    from directsuite.sandbox.files import StoredFiles
    from directsuite.sandbox.messaging.service import Profiles
    from directsuite.sandbox.signing.keys import KeySource

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

T = TypeVar("T")

Seed = Callable[["sqlite3.Connection", int], None]
"""Adds content, given a connection inside a transaction and the time in milliseconds since 1970."""


@attrs.frozen(kw_only=True)
class Services:
    """The four services of an open sandbox, and what they share."""

    database: SandboxDatabase
    keys: KeySource
    signing: SigningService
    fax: FaxService
    messaging: MessagingService
    registration: RegistrationService


class SandboxState:
    """What a sandbox keeps; RuntimeError before it is open and once it is closed."""

    clock: Clock
    """The time of the whole sandbox."""

    def __init__(
        self,
        folder: Path | None,
        clock: Clock | None,
        seed: Seed,
        keys: KeySource | None = None,
        *,
        max_document: int | None = None,
        max_message: int | None = None,
    ) -> None:
        self.clock = Clock() if clock is None else clock
        self._has_caller_clock = clock is not None
        self._folder = folder
        self._max_document = max_document
        self._max_message = max_message
        self._seed = seed
        self._keys = keys or FileKeyStore(folder)
        self._faults = Faults()
        self._open_services: Services | None = None

    async def _open(self, opening: AsyncExitStack) -> None:
        """Open what `folder` keeps; `opening` closes it. Unless the clock is the caller's own, it goes on as kept."""
        opened = SandboxDatabase(self._folder, SCHEMAS)
        opening.callback(opened.close)
        opening.callback(self._drop_services)
        self._open_services = Services(
            database=opened,
            keys=self._keys,
            signing=SigningService(
                opened,
                self.clock,
                self._keys,
                folder=None if self._folder is None else self._folder / "documents",
                max_body=self._max_document,
            ),
            fax=FaxService(opened),
            messaging=MessagingService(
                opened,
                self.clock,
                folder=None if self._folder is None else self._folder / "messages",
                max_body=self._max_message,
            ),
            registration=RegistrationService(opened, self.clock),
        )
        opening.callback(self._open_services.signing.close)
        opening.callback(self._open_services.messaging.files.close)
        if self._folder is not None:
            await self._remove_unreferenced_files(at_start=True)
        kept = await opened.read(ClockState.load)
        if kept is not None and not self._has_caller_clock:
            self.clock.restore(kept)
        opening.callback(self.clock.listen(lambda: opened.post(self._store_clock)))

    def _drop_services(self) -> None:
        self._open_services = None

    async def _remove_unreferenced_files(self, *, at_start: bool = False) -> None:
        """Remove the files that no row names; at a start, also what was left when the sandbox was killed."""
        await self._services.signing.remove_unreferenced(at_start=at_start)
        await self._services.messaging.files.remove_unreferenced(self._database, at_start=at_start)

    @property
    def _services(self) -> Services:
        if self._open_services is None:
            raise RuntimeError(CLOSED_TEXT)
        return self._open_services

    @property
    def _database(self) -> SandboxDatabase:
        return self._services.database

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Have work written. Raises ValueError for what a service refuses."""
        try:
            return await self._database.write(work)
        except RejectionError as refused:
            raise ValueError(str(refused)) from None

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work`, which only reads, makes of the state; the page is made of it."""
        return await self._database.read(work)

    async def describe_document(self, name: str) -> dict[str, Any]:
        """What GetDocInfo tells of a document's file. Raises RefusedError, and FileNotFoundError if it has gone."""
        return await self._services.signing.describe(name)

    def reading_document(self, name: str) -> AbstractContextManager[Path]:
        """A document's file, which stays until it has been read. Raises FileNotFoundError if it has gone."""
        return self._services.signing.hold_file(name)

    @property
    def message_files(self) -> StoredFiles:
        """The files of large messages."""
        return self._services.messaging.files

    @property
    def operations(self) -> frozenset[str]:
        """The operations that a fault may be injected into."""
        return self._faults.operations

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called after each change, in whatever thread made it; what is given back ends that.

        The state's own changes are told until the sandbox is closed.
        """
        self._database.listen(listener)
        self._faults.listeners.append(listener)
        forget = self.clock.listen(listener)

        def end() -> None:
            """Tell of the clock and the faults no more; these outlive the state."""
            forget()
            self._faults.listeners.remove(listener)

        return end

    async def reset(self, account: str | None = None) -> bool:
        """Start over, at once: no state, no faults, all seeded again. Token and clock stay as they are.

        With an account or mailbox address, only its documents and faxes, or its messages and folders, go; False if
        there was nothing of that name.
        """
        if account is not None:
            now = self.clock.milliseconds()
            emptied = await self._write(lambda connection: _empty_account(connection, account, now=now))
            await self._remove_unreferenced_files()
            return emptied

        def start_over(connection: sqlite3.Connection) -> None:
            """Empty and seed, in one transaction."""
            _empty_all_tables(connection)
            self._seed_state(connection)

        await self._write(start_over)
        await self._remove_unreferenced_files()
        self._faults.clear()
        return True

    async def keep_clock(self) -> None:
        """Have the clock, which is kept soon after each change, kept when this returns."""
        await self._write(self._store_clock)

    def _store_clock(self, connection: sqlite3.Connection) -> None:
        self.clock.state.store(connection)

    def _seed_state(self, connection: sqlite3.Connection) -> None:
        """Seed the state, inside the caller's transaction."""
        self._store_clock(connection)
        self._seed(connection, self.clock.milliseconds())

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
        return await self._write(lambda connection: mailboxes.create_account(connection, address, password, at_ms=now))

    async def add_tuser(self, username: str, password: str, direct_addresses: Iterable[str]) -> None:
        """Add a T-User who may act for these addresses, and log in to registration. Raises AccountExists."""
        addresses = list(direct_addresses)
        await self._write(lambda connection: mailboxes.create_tuser(connection, username, password, addresses))

    async def add_reseller(self, username: str, password: str, domains: Iterable[str] = ()) -> None:
        """Add a reseller or change his password; `domains` become domains that patients can be registered in."""
        names = list(domains)
        await self._write(lambda connection: registration.add_reseller(connection, username, password, names))

    async def add_client(self, client_id: str, client_secret: str, account: str = DEMO_ACCOUNT) -> None:
        """Register an OAuth 2.0 client that acts for `account` at the signing and fax services."""
        await self._write(lambda connection: oauth.add_client(connection, client_id, client_secret, account))

    async def issue_token(self, account: str = DEMO_ACCOUNT, *, lifetime: timedelta = timedelta(hours=1)) -> str:
        """A fresh access token of `account` for the signing and fax services."""
        token, now = credentials.generate_secret(), self.clock.milliseconds()
        await self._write(
            lambda connection: credentials.store_token(connection, token, account=account, now=now, lifetime=lifetime)
        )
        return token

    async def expire_tokens(self, account: str | None = None) -> int:
        """End the access tokens of an account, or all; returns how many there were."""
        return await self._write(lambda connection: credentials.expire_tokens(connection, account=account))

    async def expire_sessions(self, username: str | None = None) -> int:
        """End the registration sessions of a login, or all; returns how many there were."""
        return await self._write(lambda connection: registration.expire_sessions(connection, username=username))

    async def add_fax(
        self,
        fax_number: str,
        *,
        status: str = "complete",
        recipients: Iterable[Mapping[str, Any]] | None = None,
        description: str = "",
        account: str = DEMO_ACCOUNT,
    ) -> str:
        """Add a fax and return its handle. recipients: of Address, Name, PageCount and description, as on the wire.

        Raises ValueError for bad values, NumberTakenError for a foreign number.
        """
        members = {"fax_number": fax_number, "status": status, "description": description, "account": account}
        listed = list(recipients) if isinstance(recipients, Iterable) else recipients
        try:
            new = msgspec.convert({**members, "recipients": listed}, fax.NewFax)
        except msgspec.ValidationError as mismatch:  # a ValueError in newer versions only
            raise ValueError(str(mismatch)) from None
        now = self.clock.milliseconds()
        return await self._write(lambda connection: fax.add_fax(connection, new, now=now))

    async def set_fax_status(self, handle: str, status: str) -> bool:
        """Give a fax a new status, as of now; False for an unknown handle. Raises ValueError for an unknown status."""
        now = self.clock.milliseconds()
        return await self._write(lambda connection: fax.update_status(connection, handle, status, now=now))

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
        if unknown := set(contact) - set(patients.Contact.__struct_fields__):
            raise ValueError(f"unknown contact data: {', '.join(sorted(unknown))}")
        person = patients.IndividualDescription(first_name=first_name, last_name=last_name, ssn4=ssn4, dob=dob)
        return await self._write(
            lambda connection: patients.add_individual(connection, person, patients.Contact(**contact), id)
        )

    async def set_patient_state(self, address: str, state: str | None) -> bool:
        """Force the UserStateType of a patient's address; None lets it follow the clock. False for an unknown one."""
        return await self._write(lambda connection: patients.set_state(connection, address, state))

    async def deliver(self, address: str, raw: bytes, folder: str = "INBOX") -> int:
        """Deliver a raw message (RFC 5322) into a folder of a mailbox and return its uid.

        Raises UnknownAccount for an address without a mailbox; ValueError for an unknown folder, and where the user's
        certificate has expired or is revoked.
        """
        now = self.clock.milliseconds()

        def store(connection: sqlite3.Connection, content: StoredContent) -> int:
            """Its uid."""
            return sending.deliver_inbound(connection, address, folder, content, now=now)

        try:
            return await sending.prepare_and_store(
                self.message_files,
                self._database,
                lambda new_file: build_content(sending.write_pieces([raw], new_file)),
                store,
            )
        except RejectionError as refused:
            raise ValueError(str(refused)) from None

    async def renumber(self, address: str, folder: str = "INBOX", *, first: int = 1) -> int:
        """Give a folder's messages other uids, from `first`, as a server does that was restored; how many there are.

        Raises UnknownAccount for an address without a mailbox, and ValueError for an unknown folder.
        """
        if first < 1:
            raise ValueError("the first uid is 1 or more")

        def renumber(connection: sqlite3.Connection) -> int:
            """How many messages got another uid."""
            account = mailboxes.get_account_id(connection, address)
            return mailboxes.renumber_messages(connection, mailboxes.get_folder_id(connection, account, folder), first)

        return await self._write(renumber)

    async def force_message_status(self, smtp_id: str, recipient: str, status: str) -> None:
        """Give a sent message's delivery to one recipient a status for good. Raises LookupError, ValueError."""
        await self._write(lambda connection: delivery.force_status(connection, smtp_id, recipient, status))

    def inject_fault(self, /, operation: str, kind: str, **members: Any) -> int:
        """Add a fault rule and return its number. Raises ValueError.

        members: status, body, media_type, retry_after and processed for the kind status, seconds for latency, processed
        for hang; times, skip, probability and seed for all. The guide `sandbox` explains them.
        """
        return self._faults.add(Fault.from_members({"operation": operation, "kind": kind, **members}))

    def remove_fault(self, number: int) -> bool:
        """Remove one fault rule; False if there is none of this number."""
        return self._faults.remove(number)

    def clear_faults(self) -> None:
        """Remove all fault rules."""
        self._faults.clear()

    def faults(self) -> list[dict[str, Any]]:
        """All fault rules, with how often each has applied."""
        return self._faults.list_rules()

    async def ledger(self, operation: str | None = None) -> list[Mapping[str, Any]]:
        """What really happened, in order: every side effect of the services, or of one operation.

        Mail from outside counts as "Inbound". Raises ValueError if there is no such operation.
        """
        if operation not in (None, "Inbound"):
            self._faults.validate_operation(operation)
        return await self._database.read(lambda connection: database.list_effects(connection, operation))


def _empty_all_tables(connection: sqlite3.Connection) -> None:
    """Delete every row, inside the caller's transaction, and start automatic numbers again at one."""
    connection.execute("PRAGMA defer_foreign_keys=ON")
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND (name NOT LIKE 'sqlite_%' OR name = 'sqlite_sequence')"
    ).fetchall()
    for row in names:
        connection.execute(f'DELETE FROM "{row["name"]}"')  # noqa: S608  a name out of the schema itself


def _empty_account(connection: sqlite3.Connection, account: str, *, now: int) -> bool:
    """Delete the documents and faxes of an account, or empty a mailbox, which keeps its password; False if unknown.

    An account is known by what it has, or by a token or an OAuth 2.0 client that speaks for it.
    """
    documents = connection.execute("DELETE FROM signing_document WHERE account = ?", (account,)).rowcount
    connection.execute("DELETE FROM fax WHERE digits IN (SELECT digits FROM fax_number WHERE account = ?)", (account,))
    numbers = connection.execute("DELETE FROM fax_number WHERE account = ?", (account,)).rowcount
    mailbox = connection.execute(
        "SELECT address, password FROM mailbox_account WHERE folded = ?", (fold(account),)
    ).fetchone()
    if mailbox is not None:
        mailboxes.delete_account(connection, account)
        new = mailboxes.create_account(connection, mailbox["address"], "", at_ms=now)
        connection.execute("UPDATE mailbox_account SET password = ? WHERE id = ?", (mailbox["password"], new))
    return bool(documents or numbers or mailbox is not None or _has_credentials(connection, account))


def _has_credentials(connection: sqlite3.Connection, account: str) -> bool:
    query = "SELECT 1 FROM access_token WHERE account = ? UNION ALL SELECT 1 FROM oauth_client WHERE account = ?"
    return connection.execute(query, (account, account)).fetchone() is not None
