"""The registration types on the wire: passwords hidden, days as days, states under either name."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

import directsuite as ds
from directsuite import types
from directsuite.wire.codec import Codec

CODEC = Codec()


@pytest.mark.parametrize(("dob", "sent"), [(date(1970, 1, 31), "1970-01-31"), ("01/31/1970", "01/31/1970")])
def test_day_of_birth_is_sent_as_year_month_day_or_as_the_text(dob: date | str, sent: str) -> None:
    assert json.loads(CODEC.encode(ds.IDProofedIndividual(dob=dob))) == {"dob": sent}


DAYS: list[tuple[str, date | str]] = [
    ("1970-01-31", date(1970, 1, 31)),
    ("01/31/1970", "01/31/1970"),
    ("1970-01-31T00:00:00Z", "1970-01-31T00:00:00Z"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "day"), DAYS)
def test_day_is_read_and_other_text_stays(text: str, day: date | str) -> None:
    product = CODEC.decode(ds.Product, json.dumps({"startDate": text, "expireDate": text}).encode())
    assert (product.start_date, product.expire_date) == (day, day)
    assert json.loads(CODEC.encode(product)) == {"startDate": text, "expireDate": text}


@pytest.mark.parametrize("member", ["UserStateType", "userState"])
def test_state_is_read_under_either_name_and_written_as_specified(member: str) -> None:
    detail = CODEC.decode(ds.DirectUserDetail, json.dumps({member: "activated"}).encode())
    assert detail.user_state is ds.UserStateType.ACTIVATED
    assert detail.extra == {}
    assert CODEC.encode(detail) == b'{"UserStateType":"activated"}'


def test_both_names_immediately_lose_nothing() -> None:
    document = {"UserStateType": "activated", "userState": "disabled"}
    detail = CODEC.decode(ds.DirectUserDetail, json.dumps(document).encode())
    assert detail.user_state is ds.UserStateType.ACTIVATED
    assert json.loads(CODEC.encode(detail)) == document


def test_direct_address_is_the_username_in_the_domain() -> None:
    user = ds.DirectUserDetail(username="ada", email="ada@mail.example.com")
    assert user.direct_address("direct.example.org") == "ada@direct.example.org"
    with pytest.raises(ds.InvalidArgumentError):
        user.direct_address("")
    with pytest.raises(ValueError, match="no username"):
        ds.DirectUserDetail(email="ada@mail.example.com").direct_address("direct.example.org")


SECRETS: list[tuple[ds.Model, str, str]] = [
    (ds.Login("reseller", "Zaphod"), "password", "password"),
    (ds.UserPassword("patient", "Zaphod"), "password", "password"),
    (ds.IDProofedIndividualRESTful(direct_password="Zaphod"), "direct_password", "directPassword"),
    (types.DirectUser(endpoint_password="Zaphod"), "endpoint_password", "endpointPassword"),
    (ds.LoginResponse(session_id="Zaphod"), "session_id", "sessionId"),
]


@pytest.mark.parametrize(("model", "field", "member"), SECRETS)
def test_passwords_and_sessions_are_secrets_that_still_go_on_the_wire(model: ds.Model, field: str, member: str) -> None:
    assert getattr(model, field) == ds.Secret("Zaphod")
    sent: dict[str, Any] = json.loads(CODEC.encode(model))
    assert sent[member] == "Zaphod"
    again = CODEC.decode(type(model), CODEC.encode(model))
    assert isinstance(getattr(again, field), ds.Secret)


def test_login_request_is_the_login() -> None:
    assert types.LoginRequest is ds.Login
