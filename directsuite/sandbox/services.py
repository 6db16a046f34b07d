"""The four services side by side: their tables, and what each needs to run.

The PDF libraries come with the extra `directsuite[sandbox]`. Without it the other three services run, and the signing
service says what to install.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING

import attrs
from aiohttp import web

from directsuite.sandbox import clock, credentials, fax, ledger, oauth, openapi
from directsuite.sandbox.fax import FaxService
from directsuite.sandbox.messaging import service as messaging
from directsuite.sandbox.messaging.service import MessagingService
from directsuite.sandbox.refusals import refusal
from directsuite.sandbox.registration import service as registration
from directsuite.sandbox.registration.service import RegistrationService
from directsuite.sandbox.signing import service as signing
from directsuite.sandbox.signing.keys import FileKeyStore
from directsuite.sandbox.signing.service import SigningService

if TYPE_CHECKING:
    from pathlib import Path

    from directsuite.sandbox.clock import Clock
    from directsuite.sandbox.database import Database
    from directsuite.sandbox.messaging.profile import Profiles

SCHEMAS = (
    clock.SCHEMA,
    ledger.SCHEMA,
    credentials.SCHEMA,
    oauth.SCHEMA,
    fax.SCHEMA,
    messaging.SCHEMA,
    registration.SCHEMA,
    signing.SCHEMA,
)

_PDF_LIBRARIES = ("pikepdf", "pyhanko", "cryptography")


@attrs.frozen(kw_only=True)
class Habits:
    """Where servers differ: what a sandbox does of it at first.

    profile: one or several of messaging/profile.py. csv_above: a status report about more ids than this comes as CSV.
    missing_status: the HTTP status for a document that is not there.
    """

    profile: Profiles = "strict"
    csv_above: int = 100
    missing_status: int = 400


@attrs.frozen
class Services:
    """The services of one sandbox."""

    fax: FaxService
    messaging: MessagingService
    registration: RegistrationService
    signing: SigningService
    keys: FileKeyStore

    @classmethod
    def open(cls, folder: Path | None, database: Database, clock: Clock, habits: Habits) -> Services:
        """All services on one database and clock; the signing keys are kept in `folder`, or in memory."""
        keys = FileKeyStore.open(folder)
        return cls(
            fax=FaxService(database),
            messaging=MessagingService(database, clock, profile=habits.profile, csv_above=habits.csv_above),
            registration=RegistrationService(database, clock),
            signing=SigningService(database, clock, keys, missing_status=habits.missing_status),
            keys=keys,
        )

    def routes(self) -> list[web.RouteDef]:
        """Every route of the four services."""
        signing_routes = self.signing.routes()
        if not pdf_libraries_installed():
            signing_routes = [
                web.RouteDef(route.method, route.path, without_pdf_libraries, route.kwargs) for route in signing_routes
            ]
        return [*signing_routes, *self.fax.routes(), *self.messaging.routes(), *self.registration.routes()]


async def openapi_document(request: web.Request) -> web.Response:
    """The OpenAPI document of the four services; 501 without PyYAML."""
    try:
        return web.json_response(await asyncio.to_thread(openapi.document))
    except ImportError:
        description = "the OpenAPI document needs PyYAML: pip install 'directsuite[sandbox]'"
        return refusal(HTTPStatus.NOT_IMPLEMENTED, "openapi_unavailable", description)


def pdf_libraries_installed() -> bool:
    """Whether the signing service can work."""
    return all(find_spec(library) is not None for library in _PDF_LIBRARIES)


async def without_pdf_libraries(request: web.Request) -> web.Response:
    """Says what to install."""
    return refusal(
        HTTPStatus.NOT_IMPLEMENTED,
        "signing_unavailable",
        "the signing service needs PDF libraries: pip install 'directsuite[sandbox]'",
    )
