"""Names that anyone may send: what is accepted works, everything else is refused, nothing crashes."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from directsuite.sandbox.messaging import accounts
from directsuite.sandbox.oauth import usable_redirect
from directsuite.sandbox.registration import individuals, patients
from directsuite.sandbox.registration.answers import RefusedError
from directsuite.sandbox.services import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

DOMAIN = "direct.example.test"
NOW = 1_777_636_800_000


@contextmanager
def registry() -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.executescript("\n".join(SCHEMAS))
        person = {"id": 1, "firstName": "Ada", "lastName": "Example", "ssn4": "1234", "dob": "1980-02-29"}
        individuals.add(connection, person)
        yield connection


def refusal_of(work: Callable[[], object]) -> RefusedError | None:
    try:
        work()
    except RefusedError as refused:
        return refused
    return None


@given(st.text(max_size=70) | st.from_regex(r"[A-Za-z0-9._-]{1,70}", fullmatch=True))
def test_user_name_is_refused_or_found_again_with_its_mailbox(username: str) -> None:
    with registry() as connection:
        wanted = patients.Provisioning(
            described=individuals.Description.of({"id": 1}),
            domain=DOMAIN,
            username=username,
            password="secret",
            contact={},
        )
        refused = refusal_of(lambda: patients.provision(connection, wanted, now=NOW))
        if refused is not None:
            assert refused.code == "002"
            return
        found = patients.find(connection, DOMAIN, username, now=NOW)
        assert found is not None
        address = f"{found['username']}@{DOMAIN}"
        assert accounts.authenticate(connection, address, "secret") is not None


@given(st.text(max_size=60), st.text(max_size=60))
def test_names_of_any_writing_give_a_user_name(first: str, last: str) -> None:
    person = {"firstName": first, "lastName": last, "ssn4": "1234", "dob": "1980-02-29"}
    with registry() as connection:
        refused = refusal_of(lambda: individuals.add(connection, person))
        if refused is not None:
            assert refused.code == "010"
            assert not (first.strip() and last.strip())
            return
        wanted = patients.Provisioning(
            described=individuals.Description.of(person),
            domain=DOMAIN,
            username=None,
            password=None,
            contact={},
        )
        [user] = patients.provision(connection, wanted, now=NOW)["users"]
        assert (user["firstName"], user["lastName"]) == (first, last)


@given(st.text() | st.text().map("https://app.example.test/".__add__) | st.text().map("https://".__add__))
def test_redirect_uri_is_refused_or_can_carry_the_answer(redirect_uri: str) -> None:
    if usable_redirect(redirect_uri):
        location = str(URL(redirect_uri).extend_query({"code": "c", "state": "s"}))
        assert location.isascii()
        assert location.isprintable()
