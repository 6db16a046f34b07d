"""The four services as an OpenAPI 3.1 document, which the sandbox serves and is tested against.

document() ── signing, fax, messaging, registration    tables of operations, types, refusals
              ├─ operations    a row of such a table becomes an OpenAPI operation
              ├─ moments       the forms of dates, shared by all
              └─ json_schema   the words in which types are written
"""

from __future__ import annotations

from typing import Any

from directsuite.sandbox.openapi import fax, messaging, moments, registration, signing
from directsuite.sandbox.openapi.operations import path_items

_SERVICES = (signing.SERVICE, fax.SERVICE, messaging.SERVICE, registration.SERVICE)


def document() -> dict[str, Any]:
    """A new OpenAPI 3.1 document of all operations, with paths from the sandbox's root.

    Where the specification is silent the document says what the sandbox does: it is precise about answers, so that a
    test can hold the sandbox to it, and its objects admit members that are not listed.
    """
    schemas = dict(moments.SCHEMAS)
    for service in _SERVICES:
        schemas.update(service.schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Document signing, fax status, Direct messaging and patient registration",
            "version": "3.0",
        },
        "servers": [{"url": "/", "description": "The sandbox's root."}],
        "tags": [{"name": service.name, "description": service.description} for service in _SERVICES],
        "paths": path_items(_SERVICES),
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An OAuth 2.0 access token, from /oauth/token.",
                }
            },
        },
    }
