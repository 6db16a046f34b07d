"""How a command ends: one exit status and one sentence for each kind of error.

The sentence says what to do next. It is made of our own words only: no answer of a service, no address, no file name.
"""

from __future__ import annotations

import enum
import errno
import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

from directsuite import errors
from directsuite.cli.refusal import NO_TEXT, NotThereError, RefusedError
from directsuite.core.system_errors import reason_of

_INSECURE = "allow_insecure_http = true in the file that DIRECTSUITE_CONFIG names"
_CHECK_THE_URL = "check the URL in the settings"
_UNKNOWN = "it may or may not have happened"
_TIMEOUT = "timeout in the file that DIRECTSUITE_CONFIG names"
_SEEN = re.compile(r" \((?P<kind>[A-Za-z]+)(?:, errno (?P<number>-?\d+))?\)\Z")
_CONNECTIONS = {
    "ClientConnectorCertificateError": "this machine doesn't trust its certificate, or that one is for another host or "
    "has expired",
    "ClientConnectorDNSError": "its name has no address",
    "ClientConnectorSSLError": "it doesn't speak the TLS of this machine",
    "ClientHttpProxyError": "the proxy refuses",
    "ConnectionTimeoutError": "nobody answers there",
    "InvalidURL": "the proxy's URL is wrong",
}
"""What a connection failed for, by the name of aiohttp's error."""


class ExitStatus(enum.IntEnum):
    """What a command's exit status says."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> Self:
        """A number, and what it stands for."""
        status = int.__new__(cls, number)
        status._value_ = number
        status.meaning = meaning
        return status

    DONE = 0, "done"
    FAILED = 1, "not done, or not all of it: stderr says why"
    REFUSED = 2, "an option, a file or a variable is wrong: nothing was sent"
    DENIED = 3, "the password, token or login is refused, or may not do this"
    NOT_FOUND = 4, "there is no such message, fax, patient or address"
    DECLINED = 5, "the service declines what was asked of it"
    UNAVAILABLE = 6, "no usable answer from the service; the same command again does no harm"
    UNKNOWN = 7, f"{_UNKNOWN}: look before you repeat it"
    INTERRUPTED = 130, "Ctrl-C"
    TERMINATED = 143, "SIGTERM"


TABLE = "\n".join(f"    {status:>3}  {status.meaning}" for status in ExitStatus)
"""All of them, as Markdown for `directsuite --help`."""

_ENDS: Mapping[type[BaseException], tuple[ExitStatus, str]] = {
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
    errors.ConflictError: (ExitStatus.DECLINED, "the name is taken: choose another"),
    errors.AddressError: (ExitStatus.DECLINED, "check the addresses"),
    errors.BadRequestError: (ExitStatus.DECLINED, "check what you gave"),
    errors.PaymentError: (ExitStatus.DECLINED, "see to the account with the service's provider"),
    errors.RateLimitedError: (ExitStatus.UNAVAILABLE, "wait a while and try again"),
    errors.ServerError: (ExitStatus.UNAVAILABLE, "the service itself fails: try again later, or ask its provider"),
    errors.ResponseDecodeError: (
        ExitStatus.UNAVAILABLE,
        "check that the service's URL is right; if it is, ask its provider",
    ),
}
"""By the kind of error, or the nearest that it is a kind of. Those without a sentence say in their own what to do."""


def ending_of(
    error: Exception,
    *,
    options: Mapping[str, str] = MappingProxyType({}),
    find_out: str = "",
    advice: Mapping[type[BaseException], str] = MappingProxyType({}),
) -> tuple[ExitStatus, str]:
    """The exit status and the sentence for what ended a command.

    options: the option of each parameter that an InvalidArgumentError may name. find_out: how one finds out, with
    commands, what became of a change whose answer was lost. advice: what to do, in place of the table's.
    """
    if isinstance(error, OSError) and not isinstance(error, errors.DirectSuiteError):
        return ExitStatus.FAILED, _of_a_file(error)
    if isinstance(error, errors.InvalidArgumentError):
        said = in_own_words(error.explanation.removeprefix(f"{error.parameter}: "))
        return ExitStatus.REFUSED, f"{options.get(error.parameter, error.parameter)}: {said}"
    kind, (status, what_to_do) = next((kind, _ENDS[kind]) for kind in type(error).__mro__ if kind in _ENDS)
    if isinstance(error, errors.DirectSuiteError) and _CHECK_THE_URL in error.explanation:
        what_to_do = ""  # it says that itself
    what_to_do = advice.get(kind, what_to_do)
    if isinstance(error, errors.OutcomeUnknownError):
        said = _said(error)
        unknown = "" if "may or may not have" in said else f"; {_UNKNOWN}"
        late = f"; raise {_TIMEOUT}" if isinstance(error.__cause__, errors.DeadlineExceededError) else ""
        return status, f"{said}{unknown}: {find_out or error.how_to_find_out}{late}"
    if isinstance(error, errors.DirectSuiteError):
        if error.retry_after is not None:
            what_to_do = f"wait {error.retry_after:.0f} s and try again"
        return status, f"{_said(error)}: {what_to_do}" if what_to_do else _said(error)
    return status, str(error)


def in_own_words(explanation: str) -> str:
    """An error's explanation, for people who write TOML and no Python."""
    explanation = explanation.replace("set allow_insecure_http=True", f"set {_INSECURE}")
    return explanation.replace("it holds half a surrogate pair, which has no UTF-8", f"it {NO_TEXT}")


def _said(error: errors.DirectSuiteError) -> str:
    said = in_own_words(error.explanation.rstrip("."))
    if isinstance(error, errors.ConnectFailedError):
        said = _SEEN.sub(_seen, said)
    return said if error.operation is None else f"{error.operation}: {said}"


def _seen(found: re.Match[str]) -> str:
    number = int(found["number"] or 0)
    words = _CONNECTIONS.get(found["kind"]) or (os.strerror(number) if number > 0 else "")
    return f" ({words})" if words else ""


def _of_a_file(error: OSError) -> str:
    """Without the file's name, which may be a patient's."""
    reason = reason_of(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full ({reason}): free some space and give the same command again"
    return f"a file can't be read or written ({reason}): see to the files and folders that you named"
