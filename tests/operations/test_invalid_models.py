"""Incomplete or mistyped values of models, mailboxes and T-Users."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import pytest

import directsuite as ds
from tests.fake_services import ALICE, SETTINGS

UNTYPED: Any = None

# (parameter, making it)
INVALID_MODELS: dict[str, tuple[str, Callable[[], object]]] = {
    "text as content": ("content", lambda: ds.Attachment(content=cast("Any", "not base64!"))),
    "unknown recipient type": ("type", lambda: ds.Recipient(ALICE, "COPY")),
    "number as a recipient type": ("type", lambda: ds.Recipient(ALICE, cast("Any", 5))),
    "one address as recipients": ("recipients", lambda: ds.Message(recipients=ALICE)),
    "one path as attachments": ("attachment_list", lambda: ds.Message(attachment_list="report.pdf")),
    "None as content": ("content", lambda: ds.Attachment(content=UNTYPED)),
    "text as an image": ("graphical_signature", lambda: ds.Signature(graphical_signature=cast("Any", "x"))),
    "no number as a place": ("x", lambda: ds.Widget(x=math.nan)),
    "no end of a height": ("height", lambda: ds.Widget(height=math.inf)),
    "more than a float as a width": ("width", lambda: ds.Widget(width=10**400)),
    "text as a place": ("y", lambda: ds.Widget(y=cast("Any", "72"))),
    "half a page": ("page", lambda: ds.Widget(page=cast("Any", 1.5))),
    "True as a page": ("page", lambda: ds.Widget(page=True)),
    "no number as an offset": ("gmt_offset", lambda: ds.Signature(gmt_offset=cast("Any", math.nan))),
    "text as an id": ("id", lambda: ds.IDProofedIndividual(id=cast("Any", "7"))),
    "text as a raw message": ("data", lambda: ds.RawMessage(data=cast("Any", "Subject: x"))),
    "login without a username": ("username", lambda: ds.Login("", "secret")),
    "login without a password": ("password", lambda: ds.Login("reseller", "")),
    "login with None": ("password", lambda: ds.Login("reseller", UNTYPED)),
    "login of None": ("username", lambda: ds.Login(UNTYPED, UNTYPED)),
    "patient without a password": ("password", lambda: ds.UserPassword("ada", "")),
    "mailbox without a password": ("password", lambda: ds.DirectSuite(SETTINGS).mailbox(ALICE, "")),
    "mailbox with None": ("password", lambda: ds.DirectSuite(SETTINGS).mailbox(ALICE, UNTYPED)),
    "mailbox of None": ("username", lambda: ds.DirectSuite(SETTINGS).mailbox(UNTYPED, "secret")),
    "tuser without a username": ("username", lambda: ds.DirectSuite(SETTINGS).tuser("", "secret", ALICE)),
    "tuser of None": ("username", lambda: ds.DirectSuite(SETTINGS).tuser(UNTYPED, "secret", ALICE)),
    "tuser without a password": ("password", lambda: ds.DirectSuite(SETTINGS).tuser("front-desk", "", ALICE)),
    "tuser for None": ("direct_addr", lambda: ds.DirectSuite(SETTINGS).tuser("front-desk", "secret", UNTYPED)),
}


@pytest.mark.parametrize(("parameter", "make"), INVALID_MODELS.values(), ids=INVALID_MODELS)
def test_incomplete_or_mistyped_model_is_rejected(parameter: str, make: Callable[[], object]) -> None:
    with pytest.raises(ds.InvalidArgumentError, match=f"^{parameter}: ") as caught:
        make()
    assert caught.value.parameter == parameter
