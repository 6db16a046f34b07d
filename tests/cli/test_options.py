"""The classes of options: shared options, and defaults that are the same as in the SDK."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from cyclopts import CoercionError, CycloptsError

from directsuite.cli.app import build_app
from directsuite.cli.sign import SignOptions
from directsuite.cli.sync import SyncRunOptions
from directsuite.cli.usage import explain_usage_error
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


def list_integers() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each integer option (by name) and positional argument (with an empty name) of each command."""
    for name, command in COMMANDS.items():
        for argument in command.assemble_argument_collection() if command.default_command else ():
            if "int" in re.findall(r"\w+", f"{argument.hint}") and not argument.parameter.count:
                yield tuple(name.split()), argument.name if argument.name.startswith("--") else ""


REQUIRED: dict[tuple[str, ...], list[str]] = {
    ("fax", "list"): ["15550100100"],
    ("sign",): ["a.pdf", "--output", "signed"],
}
"""The arguments that a command requires before it reads its options."""
INTEGERS = [*list_integers()]


def test_integer_options_are_found() -> None:
    assert (("inbox", "delete"), "") in INTEGERS
    assert (("sandbox", "fault"), "--times") in INTEGERS
    assert len(INTEGERS) >= 23


@pytest.mark.exhaustive
@pytest.mark.parametrize("text", ["1.5", "1.0", "1e1", "0x2", "1_0", "\u0661", "9" * 40])
@pytest.mark.parametrize(("command", "option"), INTEGERS, ids=[" ".join((*path, name)) for path, name in INTEGERS])
def test_integer_rejects_a_fraction_or_text(command: tuple[str, ...], option: str, text: str) -> None:
    arguments = [*command, *REQUIRED.get(command, ()), f"{option}={text}" if option else text]
    with pytest.raises(CoercionError) as caught:
        build_app().parse_args(arguments, exit_on_error=False, print_error=False)
    assert "an integer" in explain_usage_error(caught.value) or option == "--max-body"


def test_leading_sign_and_zeros_are_accepted() -> None:
    _, bound, _ = build_app().parse_args(["sandbox", "--port=+080"], exit_on_error=False, print_error=False)
    assert bound.arguments["options"].port == 80


SECONDS = (
    ("doctor", "--timeout"),
    ("fax", "watch", "15550100100", "--interval"),
    ("sync", "run", "--grace"),
    ("sync", "run", "--interval"),
    ("sync", "status", "--max-age"),
    ("sign", "a.pdf", "--output", "out", "--patience"),
    ("sandbox", "fault", "Send", "latency", "--seconds"),
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
@pytest.mark.parametrize("arguments", SECONDS, ids=" ".join)
def test_seconds_reject_invalid_durations(arguments: tuple[str, ...], seconds: str) -> None:
    *command, option = arguments
    with pytest.raises(CycloptsError):
        build_app().parse_args([*command, f"{option}={seconds}"], exit_on_error=False, print_error=False)
