"""The OpenAPI document that the peers are generated from: the sandbox's own, with one change in the peers' favour."""

from __future__ import annotations

from typing import Any

from directsuite.sandbox.server import load_openapi_document

_MOMENTS = ("Timestamp", "Date")


def make_document() -> dict[str, Any]:
    """The document, with dates as plain `date-time` texts.

    The sandbox's admits two forms of dates, of which openapi-generator makes a class that tries one after the other;
    a plain one becomes a datetime in every client's models, as it does in ours, at a fraction of the price.
    """
    described = load_openapi_document()
    schemas: dict[str, Any] = described["components"]["schemas"]
    for name in _MOMENTS:
        schemas[name] = {"type": "string", "format": "date-time", "description": schemas[name]["description"]}
    return described
