"""The hierarchy of errors, which contain no text of the service or the user."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import traceback
from typing import Any, TypeVar

import pytest

import directsuite as ds
from directsuite import errors
from directsuite.jobs.signing.documents import SourceError
from directsuite.jobs.signing.job import JobStoppedError
from directsuite.jobs.signing.steps import StagingError
from directsuite.jobs.signing.storage import StorageError
from directsuite.sandbox.client import ControlError
from directsuite.sync.model import SinkError
from directsuite.sync.sinks.maildir import MaildirError
from directsuite.wire.parsing import MismatchError
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import make_settings

E = TypeVar("E", bound=Exception)

PARENTS: dict[str, str] = {
    "ConfigurationError": "DirectSuiteError",
    "InvalidArgumentError": "DirectSuiteError",
    "UnreadableFileError": "InvalidArgumentError",
    "MissingFileError": "UnreadableFileError",
    "ClosedError": "DirectSuiteError",
    "TransportError": "DirectSuiteError",
    "ConnectFailedError": "TransportError",
    "CircuitOpenError": "ConnectFailedError",
    "ConnectionLostError": "TransportError",
    "DeadlineExceededError": "TransportError",
    "OutcomeUnknownError": "TransportError",
    "ServiceError": "DirectSuiteError",
    "AuthenticationError": "ServiceError",
    "PermissionDeniedError": "ServiceError",
    "NotFoundError": "ServiceError",
    "ConflictError": "ServiceError",
    "AddressError": "ServiceError",
    "BadRequestError": "ServiceError",
    "DocumentNotFoundError": "BadRequestError",
    "PaymentError": "ServiceError",
    "RateLimitedError": "ServiceError",
    "ServerError": "ServiceError",
    "ResponseDecodeError": "DirectSuiteError",
}

ALSO: dict[str, list[type[BaseException]]] = {
    "InvalidArgumentError": [ValueError],
    "UnreadableFileError": [OSError],
    "MissingFileError": [FileNotFoundError],
    "DeadlineExceededError": [TimeoutError],
}

PRIVATE = "Zaphod's letter"


def made(name: str) -> errors.DirectSuiteError:
    cls: type[errors.DirectSuiteError] = getattr(errors, name)
    error: errors.DirectSuiteError
    if issubclass(cls, errors.ServiceError):
        error = cls(
            "the service rejected the request (code 2)",
            status=200,
            code=2,
            message=PRIVATE,
            body=PRIVATE.encode(),
            retry_after=7.0,
            operation="Send",
            service="messaging",
            outcome=ds.Outcome.FAILED,
        )
    elif issubclass(cls, errors.ResponseDecodeError):
        error = cls("no JSON", path="$.uids[1]", body=PRIVATE.encode(), operation="GetUIDs", service="messaging")
    elif issubclass(cls, errors.OutcomeUnknownError):
        error = cls("it may have happened.", how_to_find_out="look in INBOX.Sent.", operation="Send")
    elif issubclass(cls, errors.InvalidArgumentError):
        error = cls("give an address", parameter="recipients")
    else:
        error = cls("no answer", operation="Send", service="messaging", outcome=ds.Outcome.NOT_SENT)
    error.call, error.attempts, error.elapsed = 7, 3, 1.25
    return error


every_error = pytest.mark.parametrize("name", ["DirectSuiteError", *PARENTS])


def test_tree_is_the_one_drawn() -> None:
    classes = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, BaseException)]
    tree = {cls.__name__: [base.__name__ for base in cls.__bases__] for cls in classes}
    assert [name for name in tree if getattr(ds, name) is not getattr(errors, name)] == []
    assert tree.pop("DirectSuiteError") == ["Exception"]
    assert tree == {
        name: [parent, *(other.__name__ for other in ALSO.get(name, []))] for name, parent in PARENTS.items()
    }


def _copies(error: E) -> list[E]:
    pickled: list[E] = [
        pickle.loads(pickle.dumps(error, protocol))  # noqa: S301  from here
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ]
    return [*pickled, copy.copy(error), copy.deepcopy(error)]


@every_error
def test_error_survives_pickle_and_copy(name: str) -> None:
    error = made(name)
    error.add_note("tried on Monday")
    for again in (*_copies(error), error.copy()):
        assert type(again) is type(error)
        assert again.__notes__ == error.__notes__
        assert vars(again).keys() == vars(error).keys()
        assert str(again) == str(error)
        assert repr(again) == repr(error)
        assert again.args == error.args
        assert _told(again) == _told(error)
        assert again.__traceback__ is None


def test_copies_keep_what_was_found_out() -> None:
    error = ds.OutcomeUnknownError("it may have happened.", how_to_find_out="look.", happened=True)
    error.reason = "connection reset"
    error = error.with_details("it happened.", how_to_find_out="look there.", found={"user": PRIVATE})
    error.looked = True
    for again in _copies(error):
        assert (again.found, again.happened, again.looked) == ({"user": PRIVATE}, True, True)
        assert again.reason == "connection reset"


OTHERS: list[Exception] = [
    StorageError("PermissionError", 13),
    SourceError("no such file", is_document_specific=True),
    StagingError("no space left"),
    MismatchError("a string", "$.uid"),
    JobStoppedError("the journal is full"),
    SinkError("the sink failed", is_general=True),
    MaildirError("the disk is full", errno=28),
    ControlError("no sandbox", 503),
]


@pytest.mark.parametrize("error", OTHERS, ids=lambda error: type(error).__name__)
def test_errors_outside_the_tree_survive_pickle_and_copy(error: Exception) -> None:
    for again in _copies(error):
        assert type(again) is type(error)
        assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
        assert getattr(again, "errno", None) == getattr(error, "errno", None)


@pytest.mark.parametrize("name", [*PARENTS, "DirectSuiteError"])
def test_help_names_every_attribute(name: str) -> None:
    error = made(name)
    shown = " ".join(kind.__doc__ or "" for kind in type(error).__mro__ if issubclass(kind, errors.DirectSuiteError))
    properties = [name for name in dir(type(error)) if isinstance(getattr(type(error), name), property)]
    attributes = [attribute for attribute in (*vars(error), *properties) if not attribute.startswith("_")]
    assert [attribute for attribute in attributes if not re.search(rf"\b{attribute}\b", shown)] == []


def _told(error: errors.DirectSuiteError) -> dict[str, object]:
    names = (
        "explanation operation service outcome retry_after call attempts elapsed parameter how_to_find_out status code"
    )
    return {name: getattr(error, name, None) for name in [*names.split(), "message", "body", "path", "too_large"]}


def test_copy_has_no_traceback_of_the_first_caller() -> None:
    with pytest.raises(errors.TransportError) as caught:
        raise made("TransportError")
    assert caught.value.__traceback__ is not None
    assert caught.value.copy().__traceback__ is None


@every_error
def test_no_error_shows_what_the_service_wrote(name: str) -> None:
    error = made(name)
    shown = [
        str(error),
        repr(error),
        f"{error}",
        repr(error.args),
        repr(vars(error)),
        *traceback.format_exception(error),
    ]
    assert not any(PRIVATE in text or "Zaphod" in text for text in shown)


def test_what_the_service_wrote_is_there_for_those_who_ask() -> None:
    error = made("AddressError")
    assert isinstance(error, errors.ServiceError)
    assert (error.message, error.body) == (PRIVATE, PRIVATE.encode())
    unreadable = made("ResponseDecodeError")
    assert isinstance(unreadable, errors.ResponseDecodeError)
    assert unreadable.body == PRIVATE.encode()


TEXTS = {
    "TransportError": "Send: no answer (call 7, 3 attempts, 1.2 s)",
    "OutcomeUnknownError": "Send: it may have happened. (call 7, 3 attempts, 1.2 s). What to do: look in INBOX.Sent.",
    "InvalidArgumentError": "recipients: give an address",
    "NotFoundError": "Send: the service rejected the request (code 2) (call 7, 3 attempts, 1.2 s)",
}


@pytest.mark.parametrize(("name", "text"), TEXTS.items())
def test_text_names_operation_call_and_attempts(name: str, text: str) -> None:
    assert str(made(name)) == text
    assert repr(made(name)) == f"{name}({text!r})"


def test_one_attempt_is_not_attempts() -> None:
    error = made("ClosedError")
    error.attempts = 1
    assert "(call 7, 1 attempt, " in str(error)
    error.call = None
    assert "(1 attempt, " in str(error)


def test_unknown_outcome_says_so() -> None:
    assert made("OutcomeUnknownError").outcome is ds.Outcome.UNKNOWN
    assert made("ResponseDecodeError").outcome is ds.Outcome.UNKNOWN


WORDS = "The widget  of Ada Example\nis outside the page."
MENTIONS: list[tuple[str, Any, str]] = [
    ("hidden", {"error": WORDS}, ". To see the service's reason, print .message. Check "),
    ("shown", {"error": WORDS}, ". The service's own words: The widget of Ada Example is outside the page. Check "),
    ("shown", {"error": "word " * 1000}, " word … Check "),
    ("hidden", {"error": " "}, ". The body of the response is in .body. Check "),
    ("shown", b"<html>Ada is on the page of a proxy.", ". The body of the response is in .body ("),
    ("hidden", b"", "(HTTP 400) (call "),
]


@pytest.mark.parametrize(("mode", "body", "mention"), MENTIONS)
async def test_text_has_the_words_of_the_service_only_if_the_program_allows_it(
    mode: Any, body: Any, mention: str
) -> None:
    async with ScriptedServer(responses.respond(body, 400)) as server:
        settings = make_settings(server, error_messages=mode)
        async with ds.DirectSuite(settings, token="token") as suite:
            with pytest.raises(ds.BadRequestError) as caught:
                await suite.signing.get_doc("d1")
    for error in (caught.value, *_copies(caught.value)):
        assert mention in str(error)
        assert len(str(error)) < 1200
        assert ("Ada" in repr(error)) == ("Ada" in mention)


@pytest.mark.parametrize(
    ("mode", "body", "ending"),
    [
        ("hidden", {"error": "The mail store is full."}, "reason, print .__cause__.message"),
        ("shown", {"error": "The mail store is full."}, "own words: The mail store is full."),
        ("shown", b"<html>", "The body of the response is in .__cause__.body"),
    ],
)
async def test_text_of_an_unknown_outcome_mentions_the_words_of_the_service(mode: Any, body: Any, ending: str) -> None:
    async with ScriptedServer(responses.respond(body, 500)) as server:
        settings = make_settings(server, error_messages=mode, settle=0.0)
        async with ds.DirectSuite(settings) as suite:
            with pytest.raises(ds.OutcomeUnknownError) as caught:
                await suite.mailbox("ada@direct.example.test", "pw").send(to="bob@direct.example.test", body="Hello")
    assert str(caught.value).endswith(ending)


def test_other_values_of_error_messages_are_rejected() -> None:
    mode: Any = "Zaphod"
    with pytest.raises(ds.ConfigurationError, match=r'^error_messages must be "hidden" or "shown"$'):
        ds.Settings(error_messages=mode)
    assert ds.Settings.from_env({"DIRECTSUITE_ERROR_MESSAGES": "shown"}).error_messages == "shown"
    with pytest.raises(ds.ConfigurationError, match=r"^DIRECTSUITE_ERROR_MESSAGES: error_messages must be"):
        ds.Settings.from_env({"DIRECTSUITE_ERROR_MESSAGES": "Zaphod"})


def test_error_with_other_details_keeps_its_cause_and_has_the_new_text() -> None:
    error = ds.OutcomeUnknownError("lost", how_to_find_out="look")
    error.__cause__ = cause = ds.ConnectionLostError("reset")
    again = error.with_details("found", how_to_find_out="list")
    assert (again.args, again.explanation, again.__cause__) == (("found",), "found", cause)
    assert str(error) == "lost. What to do: look"
