"""The records of options: what holds for all of them, and defaults that the SDK's own classes have, too."""

from __future__ import annotations

import inspect
from pathlib import Path

import attrs
import pytest

from directsuite.cli import options
from directsuite.cli.options import SignOptions, SyncRunOptions
from directsuite.jobs.signing import SigningJob
from directsuite.sync.fleet import Fleet

RECORDS = [each for name, each in vars(options).items() if name.endswith("Options")]


@pytest.mark.parametrize("record", RECORDS)
def test_options_show_no_value_and_do_not_change(record: type[attrs.AttrsInstance]) -> None:
    made = record(**{each.name: "Ada" for each in attrs.fields(record)})
    assert "Ada" not in repr(made)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(made, attrs.fields(record)[0].name, "Bob")


def test_defaults_that_help_tells_are_those_of_the_sdk() -> None:
    assert (
        SignOptions(output=Path("out")).concurrency == inspect.signature(SigningJob).parameters["concurrency"].default
    )
    assert SyncRunOptions().grace == inspect.signature(Fleet).parameters["grace"].default
