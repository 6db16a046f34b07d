"""Properties of every model class: lossless, frozen, no personal data in its repr."""

from __future__ import annotations

import copy
import json
import pickle
import types
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import directsuite as ds
from directsuite.types import GetMessageResponse
from directsuite.wire.codec import Codec
from tests.examples import scale_examples
from tests.wire.model_classes import JSON_VALUES, MODEL_CLASSES, build_instances, list_field_types

CODEC = Codec()

M = TypeVar("M", bound=ds.Model)

every_model = pytest.mark.parametrize("cls", MODEL_CLASSES, ids=lambda cls: cls.__name__)
a_few = settings(
    max_examples=scale_examples(6),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking whole models takes minutes
)


@pytest.mark.exhaustive(limit=3)
@every_model
@a_few
@given(draw=st.data())
def test_document_is_written_back_unchanged(cls: type[ds.Model], draw: st.DataObject) -> None:
    document = json.loads(CODEC.encode(draw.draw(build_instances(cls))))
    document |= {"somethingNew": draw.draw(JSON_VALUES)}
    assert json.loads(CODEC.encode(CODEC.decode(cls, json.dumps(document).encode()))) == document


def test_unknown_members_at_every_level_are_written_back() -> None:
    document = {
        "success": True,
        "futureFlag": None,
        "messages": [
            {
                "htmlBody": False,
                "recipients": [{"email": "a@b", "type": "REPLY", "display": {"deep": [1, {"x": None}]}}],
                "importance": 2**70,
                "attachments": [{"content": "AAE=", "contentType": "a/b", "filename": "f", "disposition": "inline"}],
            }
        ],
    }
    answer = CODEC.decode(GetMessageResponse, json.dumps(document).encode())
    recipient = answer.messages[0].recipients[0]
    assert recipient.extra == {"display": {"deep": [1, {"x": None}]}}
    assert recipient.type == "REPLY"
    assert not recipient.type.is_known
    assert json.loads(CODEC.encode(answer)) == document


@pytest.mark.exhaustive(limit=3)
@every_model
@a_few
@given(draw=st.data())
def test_decoded_model_survives_pickle_copy_and_evolve(cls: type[ds.Model], draw: st.DataObject) -> None:
    original = draw.draw(build_instances(cls))
    for model in (original, CODEC.decode(cls, CODEC.encode(original))):
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(model, protocol)) == original  # noqa: S301  our own bytes
        assert copy.copy(model) == copy.deepcopy(model) == attrs.evolve(model) == original
        assert attrs.evolve(model, extra={**model.extra, "y": 1}) != original


def test_models_are_frozen_and_have_no_dict() -> None:
    for cls in MODEL_CLASSES:
        model, name = filled(cls, "text"), next(iter(list_field_types(cls)), "extra")
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(model, name, None)
        assert not hasattr(model, "__dict__")


def test_only_four_models_have_positional_arguments() -> None:
    positional = {cls: [field.name for field in attrs.fields(cls) if not field.kw_only] for cls in MODEL_CLASSES}
    assert {cls for cls, names in positional.items() if names} == {
        ds.Login,
        ds.MessageHeader,
        ds.Recipient,
        ds.UserPassword,
    }
    assert not any("extra" in names for names in positional.values())


SENTINEL = "Zaphod-19700131"


def test_a_repr_names_the_shown_fields_and_has_no_text_of_the_model() -> None:
    for cls in MODEL_CLASSES:
        model = filled(cls, SENTINEL)
        for text in (repr(model), str(model), f"{model}", repr([model]), repr({"model": model})):
            assert all(f"{name}=" in text for name in cls._shown)
            assert SENTINEL not in text
    assert SENTINEL in CODEC.encode(filled(ds.MessageDetail, SENTINEL)).decode()
    assert filled(ds.UserPassword, SENTINEL).password.reveal() == SENTINEL


def filled(cls: type[M], text: str) -> M:
    shown = {*cls._shown, *(("content_type",) if "media_type" in cls._shown else ())}
    fields = {name: _filling(kind, text, shown=name in shown) for name, kind in list_field_types(cls).items()}
    return cls(**fields, extra={text: [text, {text: text}]})


def _filling(annotation: Any, text: str, *, shown: bool) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (types.UnionType, Union):
        kinds = [kind for kind in arguments if kind is not type(None)]
        return _filling(str if str in kinds else kinds[0], text, shown=shown)
    if origin is list:
        return [_filling(arguments[0], text, shown=shown)]
    if origin is dict:
        return {text: text}
    if issubclass(annotation, ds.Model):
        return filled(annotation, text)
    if issubclass(annotation, ds.OpenEnum):
        return next(iter(annotation)) if shown else annotation(text)
    simple: dict[Any, Any] = {
        str: "shown" if shown else text,
        bytes: text.encode(),
        ds.Secret: ds.Secret(text),
        Path: Path(text),
        int: 7,
        float: 1.5,
        bool: True,
        date: date(2016, 7, 5),
        datetime: datetime(2016, 7, 5, tzinfo=UTC),
    }
    return simple[annotation]
