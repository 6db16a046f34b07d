"""The token endpoint's operation, and how it says no (RFC 6749 sections 3.2 and 5.2)."""

from __future__ import annotations

from typing import Any, cast

import attrs

from directsuite.core.operation import Auth, MediaType, Operation, Semantics, Service
from directsuite.core.refusals import Code, Refusals, Refused
from directsuite.errors import AuthenticationError, BadRequestError, ServerError, ServiceError
from directsuite.oauth.models import TokenAnswer

INVALID_GRANT = "invalid_grant"

CODES: dict[Code, tuple[type[ServiceError], str]] = {
    "invalid_client": (AuthenticationError, "the client's id, secret or way of authentication is not accepted"),
    INVALID_GRANT: (AuthenticationError, "the grant is not accepted"),
    "unauthorized_client": (AuthenticationError, "this client may not use this kind of grant"),
    "invalid_scope": (BadRequestError, "the scope is unknown, or more than was granted"),
    "invalid_request": (BadRequestError, "the token endpoint does not take the request as RFC 6749 writes it"),
    "unsupported_grant_type": (BadRequestError, "the token endpoint does not have this kind of grant"),
    "server_error": (ServerError, "the token endpoint failed"),
    "temporarily_unavailable": (ServerError, "the token endpoint is overloaded or in maintenance"),
}
"""The codes of RFC 6749 section 5.2, and two of 4.1.2.1 that token endpoints use as well."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class OAuthRefusals(Refusals):
    """`{"error": "invalid_grant", "error_description": ...}`: other codes than the table's are left out."""

    def read(self, document: Any) -> Refused | None:
        """The refusal that a JSON document is."""
        if not isinstance(document, dict):
            return None
        body = cast("dict[str, Any]", document)
        error, text = body.get("error"), body.get("error_description")
        if not isinstance(error, str):
            return None
        return Refused(error if error in self.codes else None, text if isinstance(text, str) else None)


TOKEN: Operation[TokenAnswer] = Operation(
    name="token",
    service=Service.OAUTH,
    method="POST",
    path="",
    semantics=Semantics.REPEATABLE,
    auth=Auth.NONE,  # the client's own authentication comes with the request's options
    response=TokenAnswer,
    refusals=OAuthRefusals(texts=("error_description",), codes=CODES),
    content_type=MediaType.FORM,
)
"""With client credentials or a refresh token: a second request gives another token.

Where refresh tokens rotate, a request whose answer was lost may have spent its own; to try it again is then the only
way on, and may be refused.
"""

ABOUT: dict[str, Any] = {"operation": TOKEN.name, "service": TOKEN.service}
"""What an error of the token endpoint says of itself."""

EXCHANGE: Operation[TokenAnswer] = attrs.evolve(
    TOKEN,
    semantics=Semantics.NON_IDEMPOTENT,
    how_to_find_out="nobody can tell whether the code was used: send the user through authorization again.",
)
"""With an authorization code: its second use has to be refused, and revokes what the first one gave (4.1.2)."""
