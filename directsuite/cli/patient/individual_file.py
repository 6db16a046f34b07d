"""The file that says who somebody is. Errors say which member is wrong, never what stands there."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from directsuite.cli.credentials import private_document
from directsuite.cli.errors import RefusedError
from directsuite.registration.models import IDProofedIndividualRESTful

_FILE = "the individual's file"
_TEXTS = ("first_name", "last_name", "ssn4", "direct_username", "direct_password")
_KNOWN = ("id", *_TEXTS, "dob")
_HOLDING = "first_name, last_name, ssn4 and dob, or id"


def individual_of(path: Path) -> IDProofedIndividualRESTful:
    """The person whom a file describes. Raises RefusedError."""
    members = private_document(path, _FILE, _HOLDING)
    if members.keys() - _KNOWN:  # unnamed: where a file is something else, a key may be anything
        raise RefusedError(f"{_FILE} has a member that nobody knows; known are {', '.join(_KNOWN)}")
    for name, value in members.items():
        if not _fits(name, value):
            raise RefusedError(f"{name} in {_FILE} {_FORMS.get(name, 'has to be a text, in quotes')}")
    return IDProofedIndividualRESTful(**members)


_FORMS = {
    "id": "has to be a whole number",
    "dob": "has to be a date, as 1980-02-29",
    "ssn4": 'has to be four digits, in quotes: "1234"',
}


def _fits(name: str, value: Any) -> bool:
    if name == "id":
        return type(value) is int
    if name == "dob":
        return type(value) is date or (isinstance(value, str) and _is_date(value))
    if name == "ssn4":
        return isinstance(value, str) and len(value) == 4 and value.isascii() and value.isdigit()
    return isinstance(value, str) and bool(value)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
