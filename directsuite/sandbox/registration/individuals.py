"""Identity-proofed individuals: the table that a patient must stand in before an address is provisioned.

Where the specification is silent: names are compared without regard to case and extra spaces; `dob` is taken as
yyyy-MM-dd, MM/dd/yyyy or yyyyMMdd; where `id` and personal data come together, all that is given must match. The
e-mail address that the specification lists among the required fields, without defining it, is not required.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from directsuite.sandbox.registration import Code, RefusedError

if TYPE_CHECKING:
    import sqlite3

SCHEMA = """
CREATE TABLE IF NOT EXISTS individual(
  id INTEGER PRIMARY KEY, first_name TEXT NOT NULL, last_name TEXT NOT NULL, name_key TEXT NOT NULL,
  ssn4 TEXT NOT NULL, dob TEXT NOT NULL, contact TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS individual_name ON individual(name_key);
"""

_LARGEST_ID = 2**63 - 1
_DOB_FORMS = ("%Y-%m-%d", "%m/%d/%Y", "%Y%m%d")
_REQUIRED = {"first_name": "firstName", "last_name": "lastName", "ssn4": "ssn4", "dob": "dob"}

_STATE_NAMES = """
AL Alabama|AK Alaska|AZ Arizona|AR Arkansas|CA California|CO Colorado|CT Connecticut|DE Delaware|
DC District of Columbia|FL Florida|GA Georgia|HI Hawaii|ID Idaho|IL Illinois|IN Indiana|IA Iowa|KS Kansas|KY Kentucky|
LA Louisiana|ME Maine|MD Maryland|MA Massachusetts|MI Michigan|MN Minnesota|MS Mississippi|MO Missouri|MT Montana|
NE Nebraska|NV Nevada|NH New Hampshire|NJ New Jersey|NM New Mexico|NY New York|NC North Carolina|ND North Dakota|
OH Ohio|OK Oklahoma|OR Oregon|PA Pennsylvania|RI Rhode Island|SC South Carolina|SD South Dakota|TN Tennessee|TX Texas|
UT Utah|VT Vermont|VA Virginia|WA Washington|WV West Virginia|WI Wisconsin|WY Wyoming|AS American Samoa|GU Guam|
MP Northern Mariana Islands|PR Puerto Rico|VI Virgin Islands
"""
_STATES = {
    spelling.casefold(): entry[3:]
    for entry in _STATE_NAMES.replace("\n", "").split("|")
    for spelling in (entry[:2], entry[3:])
}
"""The full names of states by name and by two-letter code, in lower case."""


class Description(msgspec.Struct, kw_only=True, rename="camel"):
    """An IDProofedIndividual: a person by the id of the proofing record, by personal data, or by both.

    Raises ValueError for what can't be read, and where neither the id nor all personal data is given.
    """

    id: int | str | None = None
    first_name: str | None = None
    last_name: str | None = None
    ssn4: str | None = None
    dob: str | None = None

    def __post_init__(self) -> None:
        """Bring id, ssn4 and dob into the form in which they are compared."""
        self.id = None if self.id is None else _normal_id(self.id)
        self.ssn4 = None if self.ssn4 is None else _normal_ssn4(self.ssn4)
        self.dob = None if self.dob is None else _normal_dob(self.dob)
        missing = [name for field, name in _REQUIRED.items() if not (getattr(self, field) or "").strip()]
        if self.id is None and missing:
            raise ValueError(f"without an id these are required: {', '.join(missing)}")

    @property
    def name_key(self) -> str:
        """What people are looked up by."""
        return f"{_folded(self.first_name)}|{_folded(self.last_name)}"

    def fits(self, row: sqlite3.Row) -> bool:
        """Return True if all that is said holds for this individual."""
        return (
            self.id in {None, row["id"]}
            and (self.first_name is None or _folded(self.first_name) == _folded(row["first_name"]))
            and (self.last_name is None or _folded(self.last_name) == _folded(row["last_name"]))
            and self.ssn4 in {None, row["ssn4"]}
            and self.dob in {None, row["dob"]}
        )


class Contact(msgspec.Struct, kw_only=True):
    """Members of a BaseUser that a person may have beside the name. Raises RefusedError (204) for an unknown state."""

    email: str | None = None
    phone: str | None = None
    address: str | None = None
    city: str | None = None
    state: str | None = None
    country: str | None = None
    zipcode: str | None = None

    def __post_init__(self) -> None:
        """Write out the name of the state."""
        if self.state:
            self.state = _STATES.get(_folded(self.state))
            if self.state is None:
                raise RefusedError(Code.INVALID_STATE, "state must be the full name of a state")

    def members(self) -> dict[str, str]:
        """The members that are given."""
        return {name: text for name in Contact.__struct_fields__ if (text := getattr(self, name))}


def add(connection: sqlite3.Connection, described: Description, contact: Contact, number: int | None = None) -> int:
    """Add an individual by personal data, under the id `number` or a free one; returns the id.

    Raises RefusedError for an id that is taken.
    """
    taken = connection.execute("SELECT 1 FROM individual WHERE id = ?", (number,)).fetchone()
    if taken is not None:
        raise RefusedError(Code.INVALID_ARGUMENT, "there is an individual of this id already")
    cursor = connection.execute(
        "INSERT INTO individual(id, first_name, last_name, name_key, ssn4, dob, contact) VALUES(?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            described.first_name,
            described.last_name,
            described.name_key,
            described.ssn4,
            described.dob,
            json.dumps(contact.members()),
        ),
    )
    return int(cursor.lastrowid or 0)


def matching(connection: sqlite3.Connection, described: Description) -> list[sqlite3.Row]:
    """All individuals that a description fits, in the order of their ids."""
    if described.id is not None:
        rows = connection.execute("SELECT * FROM individual WHERE id = ?", (described.id,)).fetchall()
    else:
        query = "SELECT * FROM individual WHERE name_key = ? ORDER BY id"
        rows = connection.execute(query, (described.name_key,)).fetchall()
    return [row for row in rows if described.fits(row)]


def _normal_id(number: int | str) -> int:
    """An id as some clients send it, in digits, becomes a number."""
    if isinstance(number, str) and number.isascii() and number.isdecimal() and len(number) < 20:
        number = int(number)
    if isinstance(number, str) or abs(number) > _LARGEST_ID:
        raise ValueError("id must be an integer")
    return number


def _normal_dob(dob: str) -> str:
    """A date of birth as yyyy-MM-dd."""
    for form in _DOB_FORMS:
        try:
            return f"{datetime.strptime(dob.strip(), form):%Y-%m-%d}"  # noqa: DTZ007  a birthday has no time zone
        except ValueError:
            continue
    raise ValueError("dob must be a date as yyyy-MM-dd")


def _normal_ssn4(ssn4: str) -> str:
    digits = ssn4.strip()
    if not (len(digits) == 4 and digits.isascii() and digits.isdecimal()):
        raise ValueError("ssn4 must be the last four digits of the SSN")
    return digits


def _folded(name: str | None) -> str:
    return " ".join((name or "").split()).casefold()
