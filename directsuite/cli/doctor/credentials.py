"""Whether a service takes the token, the login or the mailbox's password: one request each, which changes nothing.

signing         GetDocInfo of a document that nobody has: it is refused for that, or for the token
fax             getMultipleMessageInfo of a number that nobody has
registration    login
messaging       GetMessageCount of INBOX
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import attrs

from directsuite.cli.credentials import MailboxAccess
from directsuite.cli.doctor.findings import Found, failed, ok, warning
from directsuite.cli.errors import ending_of
from directsuite.core.retry import RetryPolicy
from directsuite.errors import (
    AuthenticationError,
    BadRequestError,
    ConnectFailedError,
    DirectSuiteError,
    PermissionDeniedError,
    ResponseDecodeError,
    ServiceError,
)
from directsuite.registration.models import Login
from directsuite.secret import Secret
from directsuite.settings import Settings
from directsuite.suite import DirectSuite

_NO_DOCUMENT = "00000000-0000-0000-0000-000000000000"
_NO_NUMBER = "0000000000"
_NOWHERE = "directsuite-doctor"
"""A path that no service has."""


@attrs.frozen(kw_only=True)
class Credentials:
    """Tries them. limit: seconds for each request."""

    settings: Settings
    limit: float

    async def signing(self, token: Secret) -> Found:
        """Whether the signing service takes the token."""

        async def ask(suite: DirectSuite) -> object:
            """Refused, as a rule."""
            return await suite.signing.with_options(**self._once).get_doc_info(_NO_DOCUMENT)

        return await self._token("signing", token, ask)

    async def fax(self, token: Secret) -> Found:
        """Whether the fax service takes the token."""

        async def ask(suite: DirectSuite) -> object:
            """An empty list, or refused."""
            return await suite.fax.with_options(**self._once).get_multiple_message_info(_NO_NUMBER)

        return await self._token("fax", token, ask)

    async def registration(self, login: Login) -> Found:
        """Whether the registration service takes the login."""
        try:
            async with DirectSuite(self.settings, login=login) as suite:
                await suite.registration.with_options(**self._once).login()
        except AuthenticationError:
            return failed("the service refuses the login: check DIRECTSUITE_LOGIN_USERNAME, and its password")
        except DirectSuiteError as error:
            return failed(_of(error, "registration"))
        return ok("the login is accepted")

    async def mailbox(self, access: MailboxAccess) -> Found:
        """Whether the messaging service takes the mailbox's password."""
        try:
            async with DirectSuite(self.settings) as suite:
                box = suite.mailbox(access.address, access.password)
                await box.with_options(**self._once).get_message_count()
        except AuthenticationError:
            return failed("the service refuses the mailbox: check its address, and that the password belongs to it")
        except DirectSuiteError as error:
            return failed(_of(error, "message"))
        return ok("the mailbox's password is accepted")

    async def _token(self, service: str, token: Secret, ask: Callable[[DirectSuite], Awaitable[object]]) -> Found:
        error = await self._answer(self.settings, token, ask)
        if isinstance(error, AuthenticationError):
            return failed(
                "the service refuses the token: it is wrong, or has run out; get a new one, and put it into "
                "DIRECTSUITE_TOKEN or the file of --token-file"
            )
        if isinstance(error, PermissionDeniedError):
            if service == "fax":  # the number that was asked for is nobody's
                return warning(
                    "the service knows the token, and refuses to tell of a number that isn't yours; "
                    "if it does so for yours, ask its provider for a token that may read faxes"
                )
            return failed("the service knows the token, which may not do this: ask its provider for one that may")
        if isinstance(error, ServiceError) and error.status == 404:
            return await self._not_found(service, token, ask, error)
        if error is None or isinstance(error, BadRequestError):
            return ok("the token is accepted")
        return failed(_of(error, service))

    async def _not_found(
        self, service: str, token: Secret, ask: Callable[[DirectSuite], Awaitable[object]], error: ServiceError
    ) -> Found:
        """404 is for a path that there isn't, and for some services for a document or number, too: which is it?"""
        name = f"{service}_url"
        url: dict[str, Any] = {name: f"{getattr(self.settings, name)}/{_NOWHERE}"}
        elsewhere = attrs.evolve(self.settings, **url)
        other = await self._answer(elsewhere, token, ask)
        same = isinstance(other, ServiceError) and _said(other) == _said(error)
        return failed(_of(error, service)) if same else ok("the token is accepted")

    async def _answer(
        self, settings: Settings, token: Secret, ask: Callable[[DirectSuite], Awaitable[object]]
    ) -> DirectSuiteError | None:
        try:
            async with DirectSuite(settings, token=token) as suite:
                await ask(suite)
        except DirectSuiteError as error:
            return error
        return None

    @property
    def _once(self) -> dict[str, Any]:
        return {"timeout": self.limit, "retry": RetryPolicy.none()}


def _said(error: ServiceError) -> tuple[object, ...]:
    """The status, and what the service's own body says, but for the path: both `error` and `description`."""
    try:
        body: object = json.loads(error.body)
    except (ValueError, RecursionError):
        body = None
    members = cast("dict[str, object]", body) if isinstance(body, dict) else {}
    texts = [str(members.get(name)).replace(f"/{_NOWHERE}", "") for name in ("error", "description")]
    return error.status, *texts


def _of(error: DirectSuiteError, service: str) -> str:
    """What to do about an error."""
    if (isinstance(error, ServiceError) and error.status == 404) or isinstance(error, ResponseDecodeError):
        return f"what answers there isn't this service: check the path of DIRECTSUITE_{service.upper()}_URL"
    return ending_of(error, advice={ConnectFailedError: "see to what the checks before it say, and try again"})[1]
