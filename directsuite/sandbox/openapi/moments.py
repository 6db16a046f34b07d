"""The forms of Timestamp and Date values, which the specification leaves open and all four services share."""

from __future__ import annotations

from directsuite.sandbox.openapi.json_schema import Schema, long, ref, text

_ISO_8601 = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:?[0-9]{2})$"

_FORMS: list[Schema] = [
    long("Milliseconds since 1970-01-01T00:00:00Z."),
    # No `format: date-time`: RFC 3339 wants a colon in the offset, and these services leave it out.
    text("ISO 8601 with an offset, such as 2026-05-01T12:00:00.000+0000.", pattern=_ISO_8601),
]

SCHEMAS: dict[str, Schema] = {
    "Timestamp": {"anyOf": _FORMS, "description": "A moment, as the signing and fax services write it."},
    "Date": {"anyOf": _FORMS, "description": "A moment, as the messaging and registration services write it."},
}


def timestamp(description: str = "") -> Schema:
    """A moment of the signing and fax services."""
    return ref("Timestamp", description)


def moment(description: str = "") -> Schema:
    """A moment of the messaging and registration services."""
    return ref("Date", description)
