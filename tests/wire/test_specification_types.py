"""The types of the specification against the names that really go over the wire."""

from __future__ import annotations

import json
import re
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite import types
from directsuite.wire.codec import Codec
from tests.wire.model_classes import MODEL_CLASSES
from tests.wire.specification_types import TYPES, list_fields, list_shown, make_document

CODEC = Codec()

NAMED_OTHERWISE = {"from": "from_", "UserStateType": "user_state"}


@pytest.mark.exhaustive(limit=12)
@pytest.mark.parametrize("name", TYPES)
def test_fields_have_their_wire_names_and_a_repr_shows_the_marked_ones(name: str) -> None:
    document = make_document(name)
    cls: type[ds.Model] = getattr(types, name)
    model = CODEC.decode(cls, json.dumps(document).encode())
    assert model.extra == {}
    blank: Any = {field.name: field.default for field in attrs.fields(cls)}
    for field in list_fields(name):
        assert getattr(model, _attribute(field)) not in (None, [], {}, blank[_attribute(field)])
    assert json.loads(CODEC.encode(model)) == document
    local = {"source"} if name == "Attachment" else set[str]()
    fields = blank.keys() - {"extra"} - local
    assert fields == {_attribute(field) for field in list_fields(name)}
    marked = {"media_type" if field == "contentType" else _attribute(field) for field in list_shown(name)}
    assert set(cls._shown) == marked


def test_no_model_is_missing_from_the_table() -> None:
    known = {getattr(types, name) for name in TYPES} | {types.MessageContent}
    assert [cls for cls in MODEL_CLASSES if cls not in known] == []


ENUMS = {
    ds.RecipientType: ["TO", "CC", "BCC"],
    ds.DirectUserType: ["XD", "SMTP", "FTP", "FTPS", "SFTP"],
    ds.UserStateType: [
        "init",
        "provisioned",
        "provisioned_cert_pending",
        "activated",
        "disabled",
        "provisioned_cert_expired",
        "provisioned_cert_revoked",
        "Unknown",
    ],
    ds.MessageStatus: ["Delivered", "Waiting", "Locally Failed", "Remotely Failed", "NO MDN Received"],
    ds.FaxStatus: ["waiting", "complete"],
}


@pytest.mark.parametrize(("cls", "texts"), ENUMS.items(), ids=lambda entry: getattr(entry, "__name__", ""))
def test_enums_have_the_values_of_the_specification(cls: type[ds.OpenEnum], texts: list[str]) -> None:
    assert [str(member) for member in cls] == texts
    for text in texts:
        assert cls(text).is_known
        assert cls(text) == text
        assert hash(cls(text)) == hash(text)


def _attribute(field: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", field)
    return NAMED_OTHERWISE.get(field, words.lower())
