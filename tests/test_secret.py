"""A secret is only sent on the wire."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.wire.codec import Codec
from directsuite.wire.models import as_optional_secret, as_secret

CODEC = Codec()

TEXT = "hunter2-Zaphod"


PRINTED: list[Callable[[ds.Secret], str]] = [
    lambda secret: str(secret),
    lambda secret: repr(secret),
    lambda secret: f"{secret}{secret!r}{secret!s}{secret:}",
    lambda secret: f"{[secret]}{ ({secret: secret}) }",
    lambda secret: "%s %r" % (secret, secret),  # noqa: UP031  the old form is one of the ways out
    lambda secret: logging.LogRecord("n", 10, "p", 1, "%s", (secret,), None).getMessage(),
    lambda secret: ascii(secret),
]


@pytest.mark.parametrize("printed", PRINTED)
def test_no_form_of_printing_shows_the_text(printed: Callable[[ds.Secret], str]) -> None:
    assert TEXT not in printed(ds.Secret(TEXT))


def test_traceback_with_locals_does_not_show_it() -> None:
    def fail(password: ds.Secret) -> None:
        raise RuntimeError(f"no way in with {password}")

    with pytest.raises(RuntimeError) as caught:
        fail(ds.Secret(TEXT))
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "Secret('***')" in shown
    assert TEXT not in shown.replace("TEXT", "")


@given(st.text(), st.text())
def test_secrets_are_equal_as_their_texts_are(one: str, other: str) -> None:
    assert (ds.Secret(one) == ds.Secret(other)) == (one == other)
    assert hash(ds.Secret(one)) == hash(ds.Secret(one))
    assert ds.Secret(one) != one
    assert bool(ds.Secret(one)) == bool(one)
    assert ds.Secret(one).reveal() == one


def test_secret_survives_copy_and_pickle() -> None:
    secret = ds.Secret(TEXT)
    for again in (copy.copy(secret), copy.deepcopy(secret), pickle.loads(pickle.dumps(secret))):  # noqa: S301  our own
        assert again == secret
        assert again.reveal() == TEXT


@pytest.mark.parametrize("encode", [json.dumps, msgspec.json.encode])
def test_no_other_encoder_takes_it(encode: Callable[[object], object]) -> None:
    with pytest.raises(TypeError) as caught:
        encode({"password": ds.Secret(TEXT)})
    assert TEXT not in str(caught.value)


def test_codec_puts_it_on_the_wire() -> None:
    assert CODEC.encode(ds.Login("reseller", TEXT)) == b'{"username":"reseller","password":"hunter2-Zaphod"}'


def test_plain_texts_become_secrets() -> None:
    secret = ds.Secret(TEXT)
    assert as_secret(secret) is secret
    assert as_secret(TEXT) == secret
    assert as_optional_secret(None) is None
    assert as_optional_secret(TEXT) == secret


def test_it_has_no_dict_to_look_into() -> None:
    with pytest.raises(TypeError):
        vars(ds.Secret(TEXT))
