"""Token requests as they go on the wire (RFC 6749 sections 2.3.1 and 4): a form, and who the client is.

client_auth     secret    Authorization header    in the form
─────────────   ───────   ─────────────────────   ──────────────────────────
basic           yes       id and secret
body            yes                               client_id, client_secret
either          none                              client_id: a public client
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from directsuite.core.body import RequestBody
from directsuite.secret import Secret
from directsuite.wire import base64

if TYPE_CHECKING:
    from directsuite.oauth.grants import Grant


def headers_of(grant: Grant) -> dict[str, str]:
    """The request's headers, beside those that the operation has."""
    headers = {"Accept": "application/json"}  # some answer in a form of their own otherwise
    if grant.client_secret is not None and grant.client_auth == "basic":
        # Each part is form-encoded before it is coded: a colon in the id, or a letter beyond ASCII, comes through.
        parts = f"{quote_plus(grant.client_id)}:{quote_plus(grant.client_secret.reveal())}"
        headers["Authorization"] = f"Basic {base64.encode(parts.encode()).decode()}"
    return headers


def form_of(grant: Grant, grant_type: str, **parameters: str | Secret | None) -> RequestBody:
    """The request's body. Parameters that are None are left out."""
    from oauthlib.common import add_params_to_qs

    named = {"grant_type": grant_type, **parameters}
    if grant.client_secret is None or grant.client_auth == "body":
        named |= {"client_id": grant.client_id, "client_secret": grant.client_secret}
    pairs = [
        (name, value.reveal() if isinstance(value, Secret) else value)
        for name, value in named.items()
        if value is not None
    ]
    return RequestBody.of(add_params_to_qs("", pairs).encode())
