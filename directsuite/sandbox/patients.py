"""Patients of the registration service: proofed individuals, their Direct addresses, and payments.

Behavior that the specification leaves open:

    individuals       Names are compared without regard to case and repeated spaces. `dob` may be yyyy-MM-dd,
                      MM/dd/yyyy or yyyyMMdd. If a request has `id` and personal data, both must match. The e-mail
                      address is optional.
    directUsername    1 to 64 letters, digits, dots, hyphens and underscores (otherwise 002), converted to lower
                      case. Without one, it is made from the names, with a number if it is in use.
    directPassword    Without one, it is random and unknown until SetPatientsPasswords sets another.
    several           An individual may have several addresses. A user name in use in the domain is 014.
    price             12.00 for the year from the provisioning. Then the state is provisioned_cert_expired.
    state             Activated immediately.

Effects of the states (specification section 3; an ordinary mailbox has no state):

    disabled                    the user cannot connect; inbound messages are still accepted
    provisioned_cert_expired    inbound and outbound messages are rejected; the user can connect
    provisioned_cert_revoked    the same
    others                      none
"""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec

from directsuite.sandbox.clock import format_timestamp
from directsuite.sandbox.credentials import generate_secret
from directsuite.sandbox.database import record_effect
from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.rejections import RegistrationCode, RegistrationError, convert_body

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

T = TypeVar("T")

SCHEMA = """
CREATE TABLE IF NOT EXISTS individual(
  id INTEGER PRIMARY KEY, first_name TEXT NOT NULL, last_name TEXT NOT NULL, name_key TEXT NOT NULL,
  ssn4 TEXT NOT NULL, dob TEXT NOT NULL, contact TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS individual_name ON individual(name_key);
CREATE TABLE IF NOT EXISTS patient(
  order_id INTEGER PRIMARY KEY AUTOINCREMENT, username TEXT NOT NULL, domain TEXT NOT NULL,
  individual INTEGER NOT NULL REFERENCES individual, contact TEXT NOT NULL, expires_on TEXT NOT NULL, state TEXT,
  UNIQUE(domain, username));
CREATE INDEX IF NOT EXISTS patient_individual ON patient(individual);
"""

_MAX_ID = 2**63 - 1
_DOB_FORMATS = ("%Y-%m-%d", "%m/%d/%Y", "%Y%m%d")
_REQUIRED_MEMBERS = {"first_name": "firstName", "last_name": "lastName", "ssn4": "ssn4", "dob": "dob"}

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

_USERNAME = re.compile(r"[a-z0-9_](?:[a-z0-9_-]|\.(?!\.|$)){0,63}")
_OFFER_PRICE = 12.0
_YEAR = timedelta(days=365)


ACTIVATED = "activated"
DISABLED = "disabled"
CERTIFICATE_EXPIRED = "provisioned_cert_expired"
CERTIFICATE_REVOKED = "provisioned_cert_revoked"

USER_STATES = (
    "init",
    "provisioned",
    "provisioned_cert_pending",
    ACTIVATED,
    DISABLED,
    CERTIFICATE_EXPIRED,
    CERTIFICATE_REVOKED,
    "Unknown",
)

STATES_WITHOUT_CERTIFICATE = frozenset({CERTIFICATE_EXPIRED, CERTIFICATE_REVOKED})
"""The states in which messages are rejected."""

NonEmptyText = Annotated[str, msgspec.Meta(pattern=r"\S")]


class IndividualDescription(msgspec.Struct, kw_only=True, rename="camel"):
    """An IDProofedIndividual: a person identified by the id of the proofing record, personal data, or both."""

    id: int | str | None = None
    first_name: str | None = None
    last_name: str | None = None
    ssn4: str | None = None
    dob: str | None = None

    def __post_init__(self) -> None:
        if self.id is not None:
            self.id = _normalize_id(self.id)
        if self.ssn4 is not None:
            self.ssn4 = self.ssn4.strip()
            if not re.fullmatch("[0-9]{4}", self.ssn4):
                raise ValueError("ssn4 must be the last four digits of the SSN")
        if self.dob is not None:
            self.dob = _normalize_dob(self.dob)
        missing = [name for field, name in _REQUIRED_MEMBERS.items() if not (getattr(self, field) or "").strip()]
        if self.id is None and missing:
            raise ValueError(f"without an id, these members are required: {', '.join(missing)}")

    @property
    def name_key(self) -> str:
        """The normalized name."""
        return f"{_fold_name(self.first_name)}|{_fold_name(self.last_name)}"

    def matches(self, row: sqlite3.Row) -> bool:
        """Return True if all given members match this individual."""
        return (
            self.id in {None, row["id"]}
            and (self.first_name is None or _fold_name(self.first_name) == _fold_name(row["first_name"]))
            and (self.last_name is None or _fold_name(self.last_name) == _fold_name(row["last_name"]))
            and self.ssn4 in {None, row["ssn4"]}
            and self.dob in {None, row["dob"]}
        )


class Contact(msgspec.Struct, kw_only=True):
    """The optional contact members of a BaseUser. Raises RegistrationError (204) for an unknown US state."""

    email: str | None = None
    phone: str | None = None
    address: str | None = None
    city: str | None = None
    state: str | None = None
    country: str | None = None
    zipcode: str | None = None

    def __post_init__(self) -> None:
        if self.state:
            self.state = _STATES.get(_fold_name(self.state))
            if self.state is None:
                raise RegistrationError("state must be the full name of a state", RegistrationCode.INVALID_STATE)

    def to_members(self) -> dict[str, str]:
        """Return the members that are not empty."""
        return {name: text for name in Contact.__struct_fields__ if (text := getattr(self, name))}


class Account(msgspec.Struct, kw_only=True, rename="camel"):
    """The account that an IDProofedIndividualRESTful requests."""

    direct_username: NonEmptyText | None = None
    direct_password: NonEmptyText | None = None


class UserPassword(msgspec.Struct):
    """A user name and a password."""

    username: NonEmptyText
    password: NonEmptyText


class RegistrationCall(NamedTuple):
    """A call with a valid session."""

    body: Any
    domain: str
    """The normalized domain of the path, empty for a login."""
    path: Mapping[str, str]
    now: int

    def convert_body(self, expected: type[T]) -> T:
        """Return the body as this type. Raises RegistrationError if it has another type."""
        return convert_body(self.body, expected, RegistrationError)


def add_individual(
    connection: sqlite3.Connection, described: IndividualDescription, contact: Contact, number: int | None = None
) -> int:
    """Add an individual with complete personal data and return the id.

    number: the id, which replaces `described.id`. None: the next free one.
    """
    taken = connection.execute("SELECT 1 FROM individual WHERE id = ?", (number,)).fetchone()
    if taken is not None:
        raise RegistrationError(f"there already is an individual with id {number}")
    cursor = connection.execute(
        "INSERT INTO individual(id, first_name, last_name, name_key, ssn4, dob, contact) VALUES(?, ?, ?, ?, ?, ?, ?)",
        (
            *(number, described.first_name, described.last_name, described.name_key),
            *(described.ssn4, described.dob, json.dumps(contact.to_members())),
        ),
    )
    return int(cursor.lastrowid or 0)


def provision(connection: sqlite3.Connection, call: RegistrationCall) -> dict[str, Any]:
    """Create an address and mailbox for the first matching individual. Return the members of AddUsersResponseV2Type."""
    people = _find_individuals(connection, call)
    account, contact = call.convert_body(Account), call.convert_body(Contact)
    if not people:
        raise RegistrationError("no identity-proofed individual matches the request", RegistrationCode.NOT_PROOFED)
    person, domain = people[0], call.domain
    username = account.direct_username
    username = (_find_free_username(connection, person, domain) if username is None else username).lower()
    if not _USERNAME.fullmatch(username):
        raise RegistrationError(
            "directUsername must be a local part of letters, digits, . - and _", RegistrationCode.INVALID_USER
        )
    address = f"{username}@{domain}"
    try:
        mailboxes.create_account(connection, address, account.direct_password or generate_secret(), at_ms=call.now)
    except mailboxes.AccountExists:
        raise RegistrationError(
            "the user name is already in use in the domain", RegistrationCode.USER_ACCOUNT_ERROR
        ) from None
    today = _to_date(call.now)
    members = json.dumps({**json.loads(person["contact"]), **contact.to_members()})
    cursor = connection.execute(
        "INSERT INTO patient(username, domain, individual, contact, expires_on) VALUES(?, ?, ?, ?, ?)",
        (username, domain, person["id"], members, (today + _YEAR).isoformat()),
    )
    order_id = int(cursor.lastrowid or 0)
    detail = {"individual": person["id"], "order": order_id}
    record_effect(connection, operation="ProvisionIDProofedPatient", subject=address, at=call.now, **detail)
    users = _list_users(connection, call, "order_id = ?", order_id)
    return {"users": users, "paymentConfirmation": _build_payment(order_id, address, today, call.now)}


def find_by_meta(connection: sqlite3.Connection, call: RegistrationCall) -> dict[str, Any]:
    """Return the addresses of the matching individuals, in the order of provisioning."""
    people = json.dumps([person["id"] for person in _find_individuals(connection, call)])
    return {"patient": _list_users(connection, call, "individual IN (SELECT value FROM json_each(?))", people)}


def find_by_username(connection: sqlite3.Connection, call: RegistrationCall) -> dict[str, Any]:
    """Return the address with a user name, which may contain the domain."""
    username = _parse_local_part(call.path["direct_username"], call.domain)
    return {"patient": _list_users(connection, call, "username = ?", username)}


def set_passwords(connection: sqlite3.Connection, call: RegistrationCall) -> dict[str, Any]:
    """Set the passwords of all these patients. Return no members."""
    users = call.convert_body(list[UserPassword])
    if not users:
        raise RegistrationError("the array of users and passwords is empty")
    names = [_parse_local_part(user.username, call.domain) for user in users]
    for name, user in zip(names, users, strict=True):
        existing = connection.execute(
            "SELECT 1 FROM patient WHERE domain = ? AND username = ?", (call.domain, name)
        ).fetchone()
        if existing is None or not mailboxes.set_password(connection, f"{name}@{call.domain}", user.password):
            raise RegistrationError(
                "one of the users is not a patient of the domain; no password was changed", RegistrationCode.NO_ADDRESS
            )
    record_effect(connection, operation="SetPatientsPasswords", subject=call.domain, at=call.now, usernames=names)
    return {}


def set_state(connection: sqlite3.Connection, address: str, state: str | None) -> bool:
    """Set the state of a patient. Return False for an unknown address.

    state: None: `activated`, and after a year `provisioned_cert_expired`. Raises ValueError for an unknown state.
    """
    if state is not None and state not in USER_STATES:
        raise ValueError(f"state must be one of {', '.join(USER_STATES)}")
    username, _, domain = address.lower().rpartition("@")
    changed = connection.execute(
        "UPDATE patient SET state = ? WHERE domain = ? AND username = ?", (state, domain, username)
    ).rowcount
    return changed == 1


def find_user_state(connection: sqlite3.Connection, address: str, now_ms: int) -> str | None:
    """Return the state of a patient's address, ignoring case, or None if it is not a patient's."""
    username, _, domain = address.casefold().rpartition("@")
    row = connection.execute(
        "SELECT state, expires_on FROM patient WHERE domain = ? AND username = ?", (domain, username)
    ).fetchone()
    return None if row is None else _compute_state(row, now_ms)


def _compute_state(row: sqlite3.Row, now_ms: int) -> str:
    forced: str | None = row["state"]
    if forced is not None:
        return forced
    return CERTIFICATE_EXPIRED if _to_date(now_ms) > date.fromisoformat(row["expires_on"]) else ACTIVATED


def _find_individuals(connection: sqlite3.Connection, call: RegistrationCall) -> list[sqlite3.Row]:
    described = call.convert_body(IndividualDescription)
    column, value = ("name_key", described.name_key) if described.id is None else ("id", described.id)
    query = f"SELECT * FROM individual WHERE {column} = ? ORDER BY id"  # noqa: S608  a constant
    return [row for row in connection.execute(query, (value,)) if described.matches(row)]


def _list_users(
    connection: sqlite3.Connection, call: RegistrationCall, condition: str, value: str | int
) -> list[dict[str, Any]]:
    """Return the DirectUserDetails of patients. Raises RegistrationError if there is none."""
    query = f"""
        SELECT patient.*, first_name, last_name FROM patient JOIN individual ON individual.id = patient.individual
        WHERE domain = ? AND {condition} ORDER BY order_id"""  # noqa: S608  constants
    rows = connection.execute(query, (call.domain, value)).fetchall()
    if not rows:
        raise RegistrationError("no Direct address was found", RegistrationCode.NO_ADDRESS)
    return [
        {
            "firstName": row["first_name"],
            "lastName": row["last_name"],
            "email": "",  # required by the specification
            **json.loads(row["contact"]),
            "username": row["username"],
            "userType": "SMTP",
            "UserStateType": _compute_state(row, call.now),
        }
        for row in rows
    ]


def _build_payment(order_id: int, address: str, today: date, now: int) -> dict[str, Any]:
    product = {
        "name": "Direct address",
        "description": "Direct address with certificate for an identity-proofed patient",
        "quantity": 1,
        "offerPrice": _OFFER_PRICE,
        "salePrice": _OFFER_PRICE,
        "amount": _OFFER_PRICE,
        "startDate": today.isoformat(),
        "expireDate": (today + _YEAR).isoformat(),
    }
    return {
        "orderId": order_id,
        "amount": _OFFER_PRICE,
        "orderTime": format_timestamp(now),
        "products": [product],
        "detail": f"Direct address {address}",
    }


def _find_free_username(connection: sqlite3.Connection, person: sqlite3.Row, domain: str) -> str:
    names = (re.sub(r"[^a-z0-9]+", "", person[column].lower()) for column in ("first_name", "last_name"))
    stem = ".".join(name for name in names if name)[:50] or "patient"
    number, username = 1, stem
    while mailboxes.find_account_id(connection, f"{username}@{domain}") is not None:
        number += 1
        username = f"{stem}{number}"
    return username


def _parse_local_part(username: str, domain: str) -> str:  # the domain may be absent
    return username.strip().lower().removesuffix(f"@{domain}")


def _to_date(now: int) -> date:
    return datetime.fromtimestamp(now / 1000, UTC).date()


def _normalize_id(number: int | str) -> int:
    if not re.fullmatch("-?[0-9]{1,19}", str(number)) or abs(int(number)) > _MAX_ID:
        raise ValueError("id must be an integer")
    return int(number)


def _normalize_dob(dob: str) -> str:
    for form in _DOB_FORMATS:
        try:
            return f"{datetime.strptime(dob.strip(), form):%Y-%m-%d}"  # noqa: DTZ007  a birthday has no time zone
        except ValueError:
            continue
    raise ValueError("dob must be a date in the form yyyy-MM-dd")


def _fold_name(name: str | None) -> str:
    return " ".join((name or "").split()).casefold()
