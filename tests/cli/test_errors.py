"""One exit status and one message for each kind of error, from one table."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from directsuite import errors
from directsuite.cli import main
from directsuite.cli.errors import ItemNotFoundError, NotDoneError, UsageError, exit_for_error, explain_file_errors
from directsuite.cli.process import ExitStatus
from directsuite.core.outcome import find_service_error
from directsuite.signing.operations import GET_DOC


def kinds(of: type[errors.DirectSuiteError]) -> list[type[errors.DirectSuiteError]]:
    """Return a class and all of its subclasses in the package."""
    below = [each for child in of.__subclasses__() for each in kinds(child)]
    return [each for each in [of, *below] if each.__module__ == errors.__name__]


def made(kind: type[errors.DirectSuiteError]) -> errors.DirectSuiteError:
    about: dict[str, Any] = {"operation": "GetUIDs", "service": "messaging"}
    if issubclass(kind, errors.InvalidArgumentError):
        return kind("it is wrong", parameter="uids")
    if issubclass(kind, errors.OutcomeUnknownError):
        return kind("the answer was lost", how_to_find_out="get_uids() tells", **about)
    if issubclass(kind, errors.ServiceError):
        return kind("it said no", status=400, message="Ada Example", body=b"Ada Example", **about)
    return kind("it went wrong", **about)


STATUSES = {
    1: "DirectSuiteError ClosedError",
    2: "ConfigurationError InvalidArgumentError UnreadableFileError MissingFileError",
    3: "AuthenticationError PermissionDeniedError",
    4: "NotFoundError",
    5: "ServiceError ConflictError AddressError BadRequestError DocumentNotFoundError PaymentError",
    6: "TransportError ConnectFailedError CircuitOpenError ConnectionLostError DeadlineExceededError RateLimitedError "
    "ServerError ResponseDecodeError",
    7: "OutcomeUnknownError",
}


def test_every_error_has_a_status() -> None:
    found = {kind.__name__: int(exit_for_error(made(kind))[0]) for kind in kinds(errors.DirectSuiteError)}
    assert found == {name: status for status, names in STATUSES.items() for name in names.split()}


@pytest.mark.parametrize("kind", kinds(errors.DirectSuiteError), ids=lambda kind: kind.__name__)
def test_every_sentence_is_ours_and_on_one_line(kind: type[errors.DirectSuiteError]) -> None:
    _, sentence = exit_for_error(made(kind))
    assert "Ada" not in sentence
    assert "\n" not in sentence
    if issubclass(kind, errors.TransportError | errors.ServiceError):
        assert sentence.startswith("GetUIDs: ")
        assert ": " in sentence.removeprefix("GetUIDs: ")  # the advice


def test_failed_connection_keeps_its_advice() -> None:
    error = errors.ConnectFailedError(
        "no connection (the host name was not found)", operation="Sign", service="signing"
    )
    error.advice = "check the URL in the settings"
    assert exit_for_error(error)[1] == (
        "Sign: no connection (the host name was not found): nothing was sent; check the URL in the settings. "
        "`directsuite doctor` shows more"
    )


@pytest.mark.parametrize("service", ["signing", "fax", "messaging", "registration", "oauth"])
def test_rejected_credential_has_the_advice_of_the_command_only(service: str) -> None:
    error = errors.AuthenticationError("it said no", status=401, operation="Any", service=service)
    sentence = exit_for_error(error)[1]
    error.advice = "check what the program passed"
    assert exit_for_error(error)[1] == sentence


def test_argument_is_named_by_its_option() -> None:
    error = errors.InvalidArgumentError("give whole numbers", parameter="uids")
    assert exit_for_error(error, option_names={"uids": "the numbers"}) == (2, "the numbers: give whole numbers")


def test_unknown_outcome_names_commands_that_verify_it() -> None:
    _, sentence = exit_for_error(made(errors.OutcomeUnknownError), recovery_hint="`directsuite inbox list` tells")
    assert sentence.endswith(": `directsuite inbox list` tells")
    assert "get_uids" not in sentence


@pytest.mark.parametrize("said", ["it may or may not have happened: no answer", "it may or may not have been sent: x"])
def test_hint_in_error_message_is_not_repeated(said: str) -> None:
    _, sentence = exit_for_error(errors.OutcomeUnknownError(said, how_to_find_out=""), recovery_hint="look")
    assert sentence == f"{said}: look"


def test_wait_that_a_service_asks_for_is_reported() -> None:
    for kind, before in ((errors.RateLimitedError, ": "), (errors.CircuitOpenError, ": nothing was sent; ")):
        error = made(kind)
        error.retry_after = 30.0
        assert exit_for_error(error)[1].endswith(f"{before}wait 30 s and try again")


def test_command_may_know_better_what_to_do() -> None:
    _, sentence = exit_for_error(made(errors.BadRequestError), advice={errors.BadRequestError: "check the handle"})
    assert sentence == "GetUIDs: it said no: check the handle"


@pytest.mark.parametrize(
    ("status", "told", "advice"),
    [
        (302, "the service sent a redirect, which is not followed", "ask the service's provider for the right URL"),
        (404, "not found", "check the command's arguments"),
    ],
)
def test_url_that_may_be_wrong_is_named_after_the_advice(status: int, told: str, advice: str) -> None:
    error = find_service_error(GET_DOC, status, {}, None, b"")
    assert error is not None
    told, variable = f"GetDoc: {told} (HTTP {status})", "DIRECTSUITE_SIGNING_URL (`directsuite config show`)"
    assert exit_for_error(error)[1] == f"{told}: {advice}, and check {variable}"
    known_better = exit_for_error(error, advice={type(error): "check the handle"})[1]
    assert known_better == f"{told}: check the handle, and check {variable}"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, None])
def test_file_is_not_named(number: int | None) -> None:
    error = OSError("ada-example.pdf") if number is None else OSError(number, "no", "ada-example.pdf")
    status, sentence = exit_for_error(error)
    assert status == 1
    assert "ada" not in sentence


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "The disk of --into (out) is full (No space left on device). Free some space"),
        (errno.EROFS, "--into (out) can't be written (Read-only file system). Name a path in a folder"),
    ],
)
@pytest.mark.parametrize("is_response_lost", [False, True])
def test_option_and_path_are_named_instead_of_a_temporary_file(
    number: int, sentence: str, is_response_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIRECTSUITE_VERBOSE", "1")
    error: Exception = OSError(number, "no", "out/.1f2e.tmp")
    if is_response_lost:
        error, cause = made(errors.OutcomeUnknownError), error
        error.__cause__ = cause
    with pytest.raises(NotDoneError) as caught, explain_file_errors("--into", Path("out")):
        raise error
    status, told = exit_for_error(caught.value)
    assert (status, told.startswith(sentence), ".tmp" in told) == (1, True, False)


@pytest.mark.parametrize("kind", [errors.DeadlineExceededError, errors.OutcomeUnknownError])
def test_error_of_the_service_is_not_taken_for_one_of_a_file(kind: type[errors.DirectSuiteError]) -> None:
    with pytest.raises(kind), explain_file_errors("--into", Path("out")):
        raise made(kind)


@pytest.mark.parametrize(("error", "status"), [(UsageError("give --to"), 2), (ItemNotFoundError("give --to"), 4)])
def test_our_own_words_are_reported_unchanged(error: Exception, status: int) -> None:
    assert exit_for_error(error) == (status, "give --to")


def test_help_has_the_complete_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert [status for status in ExitStatus if f"{status:d} {status.meaning}" not in told] == []


def refusal(message: str) -> errors.ServiceError:
    return errors.ServiceError(
        "it said no", status=400, message=message, body=b"", operation="GetUIDs", service="messaging"
    )


@pytest.mark.parametrize(("asked", "shown"), [("1", True), ("0", False), ("", False)])
def test_service_and_file_names_are_quoted_only_for_who_asks(
    asked: str, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIRECTSUITE_VERBOSE", asked)
    assert ('("no folder Ada")' in exit_for_error(refusal("no folder\r\n Ada"))[1]) is shown
    assert ("ada.toml" in exit_for_error(FileNotFoundError(errno.ENOENT, "No such file", "ada.toml"))[1]) is shown


def test_terminal_shows_service_text_and_file_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIRECTSUITE_VERBOSE", raising=False)
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: True))
    assert '("no folder")' in exit_for_error(refusal("no folder"))[1]


def test_service_text_is_printed_without_control_characters_and_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIRECTSUITE_VERBOSE", "1")
    sentence = exit_for_error(refusal("\x1b[2Jgone " + "x" * 1000))[1]
    assert "\x1b" not in sentence
    assert len(sentence) < 500
