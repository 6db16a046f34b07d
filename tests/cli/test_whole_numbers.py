"""Integers on the command line: each option and argument of each command refuses what is not a whole number."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from cyclopts import CoercionError, CycloptsError

from directsuite.cli.app import build_app
from directsuite.cli.usage import explain_usage_error
from tests.cli.conftest import COMMANDS


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
"""The arguments without which a command is refused before its options are read."""
INTEGERS = [*list_integers()]


def test_integer_options_are_found() -> None:
    assert (("inbox", "delete"), "") in INTEGERS
    assert (("sandbox", "fault"), "--times") in INTEGERS
    assert len(INTEGERS) >= 25


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
