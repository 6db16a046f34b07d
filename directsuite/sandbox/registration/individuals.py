"""Identity-proofed individuals: the table that a patient must stand in before an address is provisioned.

Where the specification is silent: names are compared without regard to case and extra spaces; `dob` is taken as
yyyy-MM-dd, MM/dd/yyyy or yyyyMMdd; where `id` and personal data come together, all that is given must match. The
e-mail address that the specification lists among the required fields, without defining it, is not required.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs

from directsuite.sandbox.json_body import integer_member, optional_text_member
from directsuite.sandbox.registration.answers import Code, RefusedError
from directsuite.sandbox.registration.states import full_name

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

SCHEMA = """
CREATE TABLE IF NOT EXISTS individual(
  id INTEGER PRIMARY KEY, first_name TEXT NOT NULL, last_name TEXT NOT NULL, name_key TEXT NOT NULL,
  ssn4 TEXT NOT NULL, dob TEXT NOT NULL, contact TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS individual_name ON individual(name_key);
"""

CONTACT = ("email", "phone", "address", "city", "state", "country", "zipcode")
"""Members of a BaseUser that an individual may have beside the name."""

_DOB_FORMS = ("%Y-%m-%d", "%m/%d/%Y", "%Y%m%d")


@attrs.frozen(kw_only=True)
class Description:
    """What a request says about a person: the id of the proofing record, personal data, or both."""

    id: int | None
    first_name: str | None
    last_name: str | None
    ssn4: str | None
    dob: str | None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Description:
        """Read an IDProofedIndividual. Raises MalformedMemberError or RefusedError (010) for what does not fit."""
        dob, ssn4 = optional_text_member(body, "dob"), optional_text_member(body, "ssn4")
        described = cls(
            id=integer_member(body, "id"),
            first_name=optional_text_member(body, "firstName"),
            last_name=optional_text_member(body, "lastName"),
            ssn4=None if ssn4 is None else normal_ssn4(ssn4),
            dob=None if dob is None else normal_dob(dob),
        )
        missing = [
            name
            for name, value in (
                ("firstName", described.first_name),
                ("lastName", described.last_name),
                ("ssn4", described.ssn4),
                ("dob", described.dob),
            )
            if not (value or "").strip()
        ]
        if described.id is None and missing:
            raise RefusedError(Code.INVALID_ARGUMENT, f"without an id these are required: {', '.join(missing)}")
        return described

    def fits(self, row: sqlite3.Row) -> bool:
        """Whether everything that is said holds for this individual."""
        return (
            self.id in {None, row["id"]}
            and (self.first_name is None or _key(self.first_name) == _key(row["first_name"]))
            and (self.last_name is None or _key(self.last_name) == _key(row["last_name"]))
            and self.ssn4 in {None, row["ssn4"]}
            and self.dob in {None, row["dob"]}
        )


def add(connection: sqlite3.Connection, body: Mapping[str, Any]) -> int:
    """Add an individual from members firstName, lastName, ssn4, dob, and perhaps id and contact data; returns the id.

    Raises RefusedError for what is missing, unreadable, or taken.
    """
    described = Description.of({**body, "id": None})
    number = integer_member(body, "id")
    if number is not None and find(connection, number) is not None:
        raise RefusedError(Code.INVALID_ARGUMENT, "there is an individual of this id already")
    cursor = connection.execute(
        "INSERT INTO individual(id, first_name, last_name, name_key, ssn4, dob, contact) VALUES(?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            described.first_name,
            described.last_name,
            _name_key(described),
            described.ssn4,
            described.dob,
            json.dumps(contact_of(body)),
        ),
    )
    return int(cursor.lastrowid or 0)


def find(connection: sqlite3.Connection, number: int) -> sqlite3.Row | None:
    """The individual of this id."""
    row: sqlite3.Row | None = connection.execute("SELECT * FROM individual WHERE id = ?", (number,)).fetchone()
    return row


def matching(connection: sqlite3.Connection, described: Description) -> list[sqlite3.Row]:
    """All individuals that a description fits, in the order of their ids."""
    if described.id is not None:
        rows = connection.execute("SELECT * FROM individual WHERE id = ?", (described.id,)).fetchall()
    else:
        key = _name_key(described)
        rows = connection.execute("SELECT * FROM individual WHERE name_key = ? ORDER BY id", (key,)).fetchall()
    return [row for row in rows if described.fits(row)]


def contact_of(body: Mapping[str, Any]) -> dict[str, str]:
    """The contact members of a body. Raises MalformedMemberError, or RefusedError (204) for an invalid state name."""
    contact = {name: text for name in CONTACT if (text := optional_text_member(body, name))}
    if "state" in contact:
        state = full_name(contact["state"])
        if state is None:
            raise RefusedError(Code.INVALID_STATE, "state must be the full name of a state")
        contact["state"] = state
    return contact


def normal_dob(dob: str) -> str:
    """A date of birth as yyyy-MM-dd. Raises RefusedError (010)."""
    for form in _DOB_FORMS:
        try:
            return f"{datetime.strptime(dob.strip(), form):%Y-%m-%d}"  # noqa: DTZ007  a birthday has no time zone
        except ValueError:
            continue
    raise RefusedError(Code.INVALID_ARGUMENT, "dob must be a date as yyyy-MM-dd")


def normal_ssn4(ssn4: str) -> str:
    """The last four digits of an SSN. Raises RefusedError (010)."""
    digits = ssn4.strip()
    if not (len(digits) == 4 and digits.isascii() and digits.isdecimal()):
        raise RefusedError(Code.INVALID_ARGUMENT, "ssn4 must be the last four digits of the SSN")
    return digits


def _key(name: str) -> str:
    return " ".join(name.split()).casefold()


def _name_key(described: Description) -> str:
    return f"{_key(described.first_name or '')}|{_key(described.last_name or '')}"
