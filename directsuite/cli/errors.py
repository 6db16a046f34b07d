"""The exit status and the sentence for each kind of error that ends a command.

The sentence says what to do next. It names files and quotes the service only where `shows_details` allows that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Mapping
from types import MappingProxyType

from directsuite import errors
from directsuite.cli.process import ExitStatus, printable, shows_details
from directsuite.configuration import Configuration
from directsuite.core.failures import Scope, reason_of, scope_of

Advice = Mapping[type[BaseException] | int | str, str]
"""What to do, by the error's class in the table below, or before that by the service's own code."""

NO_TEXT = "is no text in this machine's encoding: see to LC_ALL, as en_US.UTF-8, or write it anew"
"""The predicate of the sentence about text that came as other bytes."""

_INSECURE = "allow_insecure_http = true in the settings file"
_CHECK_THE_URL = "check the URL in the settings"
_SHOWN = " (`directsuite config show`)"
_UNKNOWN = "it may or may not have happened"
_TIMEOUT = "timeout in the settings file"
RENEW = (
    "the token is wrong or has run out: get a new one from the service's provider, and give it with --token-file "
    "or DIRECTSUITE_TOKEN"
)
"""What to do where a service refuses an access token."""
_WITH_TOKEN = ("signing", "fax")  # services that take an access token
_QUOTED = 300  # characters of a service's words
_CONNECTION_ERROR = re.compile(r" \((?P<kind>[A-Za-z]+)(?:, errno (?P<number>-?\d+))?\)\Z")
_CONNECTIONS = {
    "ClientConnectorCertificateError": "this machine doesn't trust its certificate, or that one is for another host or "
    "has expired",
    "ClientConnectorDNSError": "its name has no address",
    "ClientConnectorSSLError": "it doesn't speak the TLS of this machine, or none: a sandbox's URL begins with http://",
    "ClientHttpProxyError": "the proxy refuses",
    "ConnectionTimeoutError": "nobody answers there",
    "InvalidURL": "the proxy's URL is wrong",
}
"""Why a connection failed, by the name of aiohttp's error."""


class RefusedError(Exception):
    """Options, files or the environment are not as they have to be; the text says what to do."""


class NotThereError(Exception):
    """What was asked for isn't there; the text says how to find what is."""


_ENDINGS: Mapping[type[BaseException], tuple[ExitStatus, str]] = {
    RefusedError: (ExitStatus.REFUSED, ""),
    NotThereError: (ExitStatus.NOT_FOUND, ""),
    errors.ConfigurationError: (ExitStatus.REFUSED, ""),
    errors.InvalidArgumentError: (ExitStatus.REFUSED, ""),
    errors.DirectSuiteError: (ExitStatus.FAILED, ""),
    errors.TransportError: (ExitStatus.UNAVAILABLE, "try again"),
    errors.ConnectFailedError: (
        ExitStatus.UNAVAILABLE,
        "nothing was sent; `directsuite doctor` says what is wrong",
    ),
    errors.CircuitOpenError: (ExitStatus.UNAVAILABLE, "nothing was sent; the service is down: try again later"),
    errors.ConnectionLostError: (ExitStatus.UNAVAILABLE, "try again"),
    errors.DeadlineExceededError: (
        ExitStatus.UNAVAILABLE,
        f"try again, or raise {_TIMEOUT}",
    ),
    errors.OutcomeUnknownError: (ExitStatus.UNKNOWN, ""),
    errors.ServiceError: (ExitStatus.DECLINED, "ask the service's provider what it means"),
    errors.AuthenticationError: (
        ExitStatus.DENIED,
        "check that the name or address is right, and that the password or token belongs to it",
    ),
    errors.PermissionDeniedError: (ExitStatus.DENIED, "ask the service's provider to allow it, or use another account"),
    errors.NotFoundError: (ExitStatus.NOT_FOUND, "check what you asked for, and the service's URL"),
    errors.ConflictError: (ExitStatus.DECLINED, "choose another domain"),
    errors.AddressError: (ExitStatus.DECLINED, "check the addresses"),
    errors.BadRequestError: (ExitStatus.DECLINED, "check the arguments and options of the command"),
    errors.PaymentError: (ExitStatus.DECLINED, "see to the account with the service's provider"),
    errors.RateLimitedError: (ExitStatus.UNAVAILABLE, "wait a while and try again"),
    errors.ServerError: (ExitStatus.UNAVAILABLE, "the service itself fails: try again later, or ask its provider"),
    errors.ResponseDecodeError: (
        ExitStatus.UNAVAILABLE,
        "check that the service's URL is right; if it is, ask its provider",
    ),
}
"""The exit status and what to do, by the error's class or its nearest base; empty where the error's text says it."""


def naming(what: str, value: object) -> str:
    """`what`, with the value that was typed where stderr may show it."""
    return f"{what} ({printable(str(value))})" if shows_details() else what


def _with_value(explanation: str) -> str:
    """The explanation of a ConfigurationError, with the value of its setting after the setting's name.

    The value of `proxy`, and a URL with an @, may hold a password.
    """
    with contextlib.suppress(errors.ConfigurationError):
        for name, entry in Configuration.read().items():
            beginning = f"{entry.origin}: {name}"
            if explanation.startswith(f"{beginning} ") and name != "proxy" and "@" not in str(entry.value):
                return f"{naming(beginning, entry.value)}{explanation.removeprefix(beginning)}"
    return explanation


def refuse_no_text(text: str | None, source: str) -> None:
    """Raise RefusedError where `text` came as bytes that are no text here. source: its option or variable."""
    with contextlib.suppress(UnicodeEncodeError):  # the error would hold the text, as a cause or context
        (text or "").encode()
        return
    raise RefusedError(f"{source} {NO_TEXT}")


def ending_of(
    error: Exception,
    *,
    options: Mapping[str, str] = MappingProxyType({}),
    find_out: str = "",
    advice: Advice = MappingProxyType({}),
) -> tuple[ExitStatus, str]:
    """The exit status and the sentence for what ended a command.

    options: the option of each parameter that an InvalidArgumentError may name. find_out: how one finds out, with
    commands, what became of a change whose answer was lost. advice: what to do, in place of the table's.
    """
    if isinstance(error, OSError) and not isinstance(error, errors.DirectSuiteError):
        return ExitStatus.FAILED, _file_sentence(error)
    if isinstance(error, errors.InvalidArgumentError):
        said = in_own_words(error.explanation.removeprefix(f"{error.parameter}: "))
        option = options.get(error.parameter.partition("[")[0], error.parameter)
        return ExitStatus.REFUSED, f"{option}: {said}"
    kind, (status, what_to_do) = next((kind, _ENDINGS[kind]) for kind in type(error).__mro__ if kind in _ENDINGS)
    if isinstance(error, errors.DirectSuiteError):
        if _CHECK_THE_URL in error.explanation:
            what_to_do = ""  # it says that itself
        elif scope_of(error) is Scope.ENDPOINT:
            url = _variable_of(error.service) or "the URL"
            what_to_do = f"this isn't the service: check {url} and the proxy with `directsuite doctor`"
        elif isinstance(error, errors.ResponseDecodeError) and error.service:
            what_to_do = what_to_do.replace("URL is", f"URL ({_variable_of(error.service)}) is")
    if isinstance(error, errors.AuthenticationError) and error.service in _WITH_TOKEN:
        what_to_do = RENEW
    code = error.code if isinstance(error, errors.ServiceError) else None
    known_better = kind if code is None or code not in advice else code
    what_to_do = advice.get(known_better, what_to_do)
    if isinstance(error, errors.OutcomeUnknownError):
        said = explanation_of(error)
        unknown = "" if "may or may not have" in said else f"; {_UNKNOWN}"
        late = f"; raise {_TIMEOUT}" if isinstance(error.__cause__, errors.DeadlineExceededError) else ""
        return status, f"{said}{unknown}: {find_out or error.how_to_find_out}{late}"
    if isinstance(error, errors.DirectSuiteError):
        if error.retry_after is not None:
            what_to_do = f"wait {error.retry_after:.0f} s and try again"
        said = f"{explanation_of(error)}{words_of(error)}"
        withheld = isinstance(error, errors.BadRequestError) and error.message and not shows_details()
        if withheld and known_better not in advice:
            what_to_do = f"{what_to_do}; --verbose adds what the service says"
        return status, f"{said}: {what_to_do}" if what_to_do else said
    return status, str(error)


def words_of(error: errors.DirectSuiteError) -> str:
    """What the service says itself, in quotes; empty where it says nothing or nobody may see it."""
    if not isinstance(error, errors.ServiceError) or not shows_details():
        return ""
    return quoted(error.message)


def quoted(message: str | None) -> str:
    """What the service says itself, in quotes after a sentence of ours; empty where it says nothing."""
    words = printable(" ".join((message or "").split()))
    if not words:
        return ""
    return f' ("{words if len(words) <= _QUOTED else f"{words[: _QUOTED - 1]}…"}")'


def in_own_words(explanation: str) -> str:
    """Rewrite an error's explanation for people who write TOML and no Python."""
    explanation = explanation.replace("set allow_insecure_http=True", f"set {_INSECURE}")
    explanation = explanation.replace(_CHECK_THE_URL, f"{_CHECK_THE_URL}{_SHOWN}")
    return explanation.replace("it holds half a surrogate pair, which has no UTF-8", f"it {NO_TEXT}")


def _variable_of(service: str | None) -> str:
    """The variable of a service's URL; empty for None."""
    name = "message" if service == "messaging" else service
    return f"DIRECTSUITE_{name.upper()}_URL" if name else ""


def explanation_of(error: errors.DirectSuiteError) -> str:
    """What went wrong, without what to do about it."""
    said = error.explanation.rstrip(".")
    if isinstance(error, errors.ConfigurationError) and shows_details():
        said = _with_value(said)
    if error.service:
        said = said.replace(_CHECK_THE_URL, f"the URL may be wrong, so check {_variable_of(error.service)}{_SHOWN}")
    said = in_own_words(said)
    if isinstance(error, errors.TransportError):
        said = _CONNECTION_ERROR.sub(_connection_words, said)
    return said if error.operation is None else f"{error.operation}: {said}"


def _connection_words(match: re.Match[str]) -> str:
    number = int(match["number"] or 0)
    words = _CONNECTIONS.get(match["kind"]) or (os.strerror(number) if number > 0 else "")
    return f" ({words})" if words else ""


def _file_sentence(error: OSError) -> str:
    """The sentence has the file's name, which may be a patient's, only where `shows_details` allows that."""
    reason = reason_of(error)
    if error.filename is not None and shows_details():
        reason = f"{reason}: {printable(os.fsdecode(error.filename))}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full ({reason}): free some space and give the same command again"
    return f"a file can't be read or written ({reason}): see to the files and folders that you named"
