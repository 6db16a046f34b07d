"""The classes of options: shared options, and defaults that are the same as in the SDK."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from directsuite.cli.sign import SignOptions
from directsuite.cli.sync import SyncRunOptions
from directsuite.jobs.signing import SigningJob
from directsuite.sync.fleet import Fleet
from tests.cli.conftest import COMMANDS

RECORDS = {
    get_type_hints(app.default_command)["options"]
    for app in COMMANDS.values()
    if app.default_command is not None and "options" in app.default_command.__annotations__
}


@pytest.mark.parametrize("record", sorted(RECORDS, key=str))
def test_options_show_no_value_and_do_not_change(record: Any) -> None:
    made = record(**{each.name: "Ada" for each in dataclasses.fields(record)})
    assert "Ada" not in repr(made)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, dataclasses.fields(record)[0].name, "Bob")


def test_defaults_that_help_tells_are_those_of_the_sdk() -> None:
    assert (
        SignOptions(output=Path("out")).concurrency == inspect.signature(SigningJob).parameters["concurrency"].default
    )
    assert SyncRunOptions().grace == inspect.signature(Fleet).parameters["grace"].default
