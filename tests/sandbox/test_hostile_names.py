"""Names from users: accepted names work, and others are rejected."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from directsuite.sandbox import patients
from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.oauth import _is_usable_redirect
from directsuite.sandbox.patients import Account, Contact, IndividualDescription
from directsuite.sandbox.rejections import RegistrationError
from directsuite.sandbox.state import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

DOMAIN = "direct.example.test"
NOW = 1_777_636_800_000


@contextmanager
def registry() -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.executescript("\n".join(SCHEMAS))
        person = IndividualDescription(first_name="Ada", last_name="Example", ssn4="1234", dob="1980-02-29")
        patients.add_individual(connection, person, Contact(), 1)
        yield connection


def refusal_of(work: Callable[[], object]) -> RegistrationError | None:
    try:
        work()
    except RegistrationError as refused:
        return refused
    return None


@given(st.text(max_size=70) | st.from_regex(r"[A-Za-z0-9._-]{1,70}", fullmatch=True))
def test_a_user_name_is_rejected_or_has_a_mailbox(username: str) -> None:
    with registry() as connection:
        person, account = IndividualDescription(id=1), Account(direct_username=username, direct_password="secret")
        refused = refusal_of(lambda: patients.provision(connection, DOMAIN, person, account, Contact(), now=NOW))
        if refused is not None:
            assert refused.code == "002"
            return
        found = patients.find_patient(connection, DOMAIN, username, now=NOW)
        assert found is not None
        address = f"{found['username']}@{DOMAIN}"
        assert mailboxes.authenticate(connection, address, "secret") is not None


@given(st.text(max_size=60), st.text(max_size=60))
def test_names_in_any_script_result_in_a_user_name(first: str, last: str) -> None:
    with registry() as connection:
        try:
            person = IndividualDescription(first_name=first, last_name=last, ssn4="1234", dob="1980-02-29")
        except ValueError:
            assert not (first.strip() and last.strip())
            return
        patients.add_individual(connection, person, Contact())
        [user] = patients.provision(connection, DOMAIN, person, Account(), Contact(), now=NOW)["users"]
        assert (user["firstName"], user["lastName"]) == (first, last)


@given(st.text() | st.text().map("https://app.example.test/".__add__) | st.text().map("https://".__add__))
def test_a_redirect_uri_is_rejected_or_can_have_parameters(redirect_uri: str) -> None:
    if _is_usable_redirect(redirect_uri):
        location = str(URL(redirect_uri).extend_query({"code": "c", "state": "s"}))
        assert location.isascii()
        assert location.isprintable()
