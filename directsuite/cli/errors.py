"""The exit status and the sentence for each kind of error that ends a command.

The sentence says what to do next. It names files and quotes the service only if `is_verbose()`. It follows
`directsuite: `.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Generator, Mapping
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType

from directsuite import errors
from directsuite.cli import process
from directsuite.cli.process import ExitStatus, is_verbose, make_printable
from directsuite.core.files import explain_os_error
from directsuite.core.outcome import ErrorScope, find_error_scope

Advice = Mapping[type[BaseException] | int | str, str]
"""What to do, by the service's code, the HTTP status, or the error's class; the first of these takes precedence."""

NOT_TEXT_PROBLEM = (
    "is not text in this machine's encoding: set LC_ALL to a suitable locale such as en_US.UTF-8, or enter it again"
)
"""The predicate of the sentence about input that can't be decoded."""

_TIMEOUT_SETTING = "the timeout (DIRECTSUITE_TIMEOUT, or timeout in the settings file)"
HINT_RENEW_CREDENTIAL = (
    "the token is wrong or has expired: get a new one from the service's provider, and set it with --token-file or "
    "DIRECTSUITE_TOKEN"
)
"""What to do if a service rejects a token."""
HINT_CHECK_CLIENT = (
    "check the settings token_url and client_id, and client_secret or refresh_token, of which "
    "`directsuite config show` shows the sources"
)
"""What to do if the token endpoint rejects an OAuth client."""
_SECRETS = {"signing": "token", "fax": "token", "messaging": "mailbox_password", "registration": "login_password"}
"""The secret of each service."""
_MAX_QUOTED_CHARS = 300
_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
_HINT_FREE_SPACE = "Free some space, then run the same command again."


class UsageError(Exception):
    """An option, a file or the environment is invalid. The text says what to do."""


class NotDoneError(UsageError):
    """The command has begun, but did not do everything. The text has the reason."""


class ItemNotFoundError(Exception):
    """The requested item does not exist. The text says how to find the existing ones."""


_EXIT_TABLE: Mapping[type[BaseException], tuple[ExitStatus, str]] = {
    UsageError: (ExitStatus.USAGE_ERROR, ""),
    NotDoneError: (ExitStatus.FAILED, ""),
    ItemNotFoundError: (ExitStatus.NOT_FOUND, ""),
    errors.ConfigurationError: (ExitStatus.USAGE_ERROR, ""),
    errors.DirectSuiteError: (ExitStatus.FAILED, ""),
    errors.TransportError: (ExitStatus.UNAVAILABLE, "try again"),
    errors.ConnectFailedError: (ExitStatus.UNAVAILABLE, "`directsuite doctor` shows what is wrong"),
    errors.CircuitOpenError: (ExitStatus.UNAVAILABLE, "the service is down: try again later"),
    errors.DeadlineExceededError: (ExitStatus.UNAVAILABLE, f"try again, or raise {_TIMEOUT_SETTING}"),
    errors.OutcomeUnknownError: (ExitStatus.UNKNOWN, ""),
    errors.ServiceError: (ExitStatus.REJECTED, "ask the service's provider what it means"),
    errors.AuthenticationError: (
        ExitStatus.DENIED,
        "check that the name or address is right, and that the password or token belongs to it",
    ),
    errors.PermissionDeniedError: (
        ExitStatus.DENIED,
        "ask the service's provider for the permission, or use another account",
    ),
    errors.NotFoundError: (ExitStatus.NOT_FOUND, "check the command's arguments"),
    errors.ConflictError: (ExitStatus.REJECTED, "choose another domain"),
    errors.AddressError: (ExitStatus.REJECTED, "check the addresses"),
    errors.BadRequestError: (ExitStatus.REJECTED, "check the arguments and options of the command"),
    errors.PaymentError: (ExitStatus.REJECTED, "settle the account with the service's provider"),
    errors.RateLimitedError: (ExitStatus.UNAVAILABLE, "wait a while and try again"),
    errors.ServerError: (ExitStatus.UNAVAILABLE, "the service has a problem: try again later, or ask its provider"),
    errors.ResponseDecodeError: (
        ExitStatus.UNAVAILABLE,
        "check that the service's URL is right; if it is, ask its provider",
    ),
}
"""The exit status and what to do, by the error's class or nearest base. Empty: the error's text says what to do."""


def with_value(label: str, value: object) -> str:
    """Return `label`, followed by `value` in parentheses if it is not empty and stderr may show it."""
    return f"{label} ({make_printable(text)})" if (text := str(value)) and is_verbose() else label


def validate_text(text: str | None, source: str) -> None:
    """Raise UsageError if `text` has undecodable bytes. source: the text's option or variable."""
    with contextlib.suppress(UnicodeEncodeError):  # as a context, the error would expose the text
        (text or "").encode()
        return
    raise UsageError(f"{source} {NOT_TEXT_PROBLEM}.")


def exit_for_error(
    error: Exception,
    *,
    option_names: Mapping[str, str] = MappingProxyType({}),
    recovery_hint: str = "",
    advice: Advice = MappingProxyType({}),
) -> tuple[ExitStatus, str]:
    """Return the exit status and the sentence for an error that ended a command.

    option_names: the option of each parameter that an InvalidArgumentError may name.
    recovery_hint: what to do after an OutcomeUnknownError; if empty, the error's own hint is used.
    advice: replaces the usual advice for its errors.
    """
    if isinstance(error, OSError) and not isinstance(error, errors.DirectSuiteError):
        return ExitStatus.FAILED, _explain_file_error(error)
    if isinstance(error, errors.InvalidArgumentError):
        option = option_names.get(error.parameter.partition("[")[0], error.parameter)
        return ExitStatus.USAGE_ERROR, f"{option}: {error.explanation.removeprefix(f'{error.parameter}: ')}"
    kind, (status, what_to_do) = next((kind, _EXIT_TABLE[kind]) for kind in type(error).__mro__ if kind in _EXIT_TABLE)
    if not isinstance(error, errors.DirectSuiteError):
        return status, str(error)
    if isinstance(error, errors.OutcomeUnknownError):
        late = f"; raise {_TIMEOUT_SETTING}" if isinstance(error.__cause__, errors.DeadlineExceededError) else ""
        return status, f"{explain_error(error)}: {recovery_hint or error.how_to_find_out}{late}"
    code = error.code if isinstance(error, errors.ServiceError) else None
    status_code = error.status if isinstance(error, errors.ServiceError) else None
    given = next((advice[key] for key in (code, status_code, kind) if key is not None and key in advice), None)
    what_to_do = _find_advice(error, what_to_do) if given is None else given
    variable = _get_url_variable(error.service)
    is_endpoint_wrong = code is None and (_is_redirect(error) or status_code == HTTPStatus.NOT_FOUND)
    if is_endpoint_wrong and variable not in what_to_do:
        what_to_do = f"{what_to_do}, and check {variable} (`directsuite config show`)"
    if error.retry_after is not None:
        what_to_do = f"wait {error.retry_after:.0f} s and try again"
    if isinstance(error, errors.ConnectFailedError) and not error.explanation.endswith(" was not sent"):
        what_to_do = f"nothing was sent; {what_to_do}"
    explanation = f"{explain_error(error)}{quote_service_message(error)}"
    return status, f"{explanation}: {what_to_do}" if what_to_do else explanation


def _find_advice(error: errors.DirectSuiteError, default: str) -> str:
    if isinstance(error, errors.AuthenticationError | errors.BadRequestError) and error.service == "oauth":
        return HINT_CHECK_CLIENT if isinstance(error, errors.AuthenticationError) else "check the setting scope"
    if isinstance(error, errors.AuthenticationError) and _SECRETS.get(error.service or "") == "token":
        return f"{HINT_RENEW_CREDENTIAL}{describe_secret_source(error)}"
    if error.advice and isinstance(error, errors.ConnectFailedError):
        return f"{error.advice}. `directsuite doctor` shows more"
    if _is_redirect(error):
        return "ask the service's provider for the right URL"
    if find_error_scope(error) is ErrorScope.ENDPOINT:
        url = _get_url_variable(error.service)
        return f"another server responded: check {url} and the proxy with `directsuite doctor`"
    if isinstance(error, errors.ResponseDecodeError) and error.service:
        return default.replace("URL is", f"URL ({_get_url_variable(error.service)}) is")
    if isinstance(error, errors.BadRequestError) and error.message and not is_verbose():
        return f"{default}; --verbose adds the service's message"
    return f"{default}{describe_secret_source(error)}" if isinstance(error, errors.AuthenticationError) else default


def _is_redirect(error: errors.DirectSuiteError) -> bool:
    return isinstance(error, errors.ServiceError) and 300 <= error.status < 400


def describe_secret_source(error: errors.DirectSuiteError) -> str:
    """Return the source of the secret that a service rejected, in parentheses; empty if it is unknown."""
    secret = _SECRETS.get(error.service or "", "")
    kind = secret.rpartition("_")[2]
    owners, sources = process.state.secret_owners, process.state.secret_sources
    if secret in owners and is_verbose():
        kind = f"{kind} of {make_printable(owners[secret])}"
    return f" (the {kind} is from {sources[secret]})" if secret in sources else ""


def quote_service_message(error: errors.DirectSuiteError) -> str:
    """Return the service's message in quotes and parentheses; empty if it has none or stderr may not show it."""
    return quote_message(error.message) if isinstance(error, errors.ServiceError) and is_verbose() else ""


def quote_message(message: str | None) -> str:
    """Return a service's message in quotes and parentheses; empty if there is none."""
    words = make_printable(" ".join((message or "").split()))
    if len(words) > _MAX_QUOTED_CHARS:
        words = f"{words[: _MAX_QUOTED_CHARS - 1]}…"
    return f' ("{words}")' if words else ""


def _get_url_variable(service: str | None) -> str:
    name = {"messaging": "message", "oauth": "token"}.get(service or "", service)
    return f"DIRECTSUITE_{name.upper()}_URL" if name else "the URL"


def explain_error(error: errors.DirectSuiteError) -> str:
    """Return the problem without the advice."""
    explanation = error.explanation.rstrip(".")
    for variable, option in process.state.options_of_variables.items():
        explanation = explanation.replace(variable, option)
    return explanation if error.operation is None else f"{error.operation}: {explanation}"


def _explain_file_error(error: OSError) -> str:
    reason = explain_os_error(error)
    if error.filename is not None and is_verbose():
        reason = f"{reason}: {make_printable(os.fsdecode(error.filename))}"
    if error.errno in _DISK_FULL_ERRNOS:
        return f"The disk is full ({reason}). {_HINT_FREE_SPACE}"
    return f"A file can't be read or written ({reason}). Check the files and folders that you named."


def explain_write_error(error: OSError, label: str) -> str:
    """Return the sentences about a file or folder that can't be written. label: its option, with the path."""
    reason = explain_os_error(error)
    if error.errno in _DISK_FULL_ERRNOS:
        return f"The disk of {label} is full ({reason}). {_HINT_FREE_SPACE}"
    return f"{label} can't be written ({reason}). Name a path in a folder that this user may write to."


@contextlib.contextmanager
def explain_file_errors(option: str, path: Path) -> Generator[None]:
    """Convert an OSError to a NotDoneError with the option and its path, instead of the name of a temporary file."""
    try:
        yield
    except (OSError, errors.OutcomeUnknownError) as error:
        cause = error.__cause__ if isinstance(error, errors.OutcomeUnknownError) else error
        if not isinstance(cause, OSError) or isinstance(cause, errors.DirectSuiteError):
            raise
        raise NotDoneError(explain_write_error(cause, with_value(option, path))) from None


def create_folder(option: str, path: Path, *, mode: int = 0o700) -> None:
    """Create the folder of an option, if it does not exist. Raises UsageError."""
    label = with_value(option, path)
    try:
        path.mkdir(parents=True, exist_ok=True, mode=mode)
    except FileExistsError:
        raise UsageError(f"{label} is a file. Name a folder.") from None
    except NotADirectoryError:
        raise UsageError(f"{label} is inside a file. Name a folder.") from None
    except OSError as error:
        raise UsageError(explain_write_error(error, label)) from None


def require_writable_folder(option: str, file: Path) -> None:
    """Raise UsageError if the file of an option can't be created in its folder."""
    if not os.access(file.parent, os.W_OK | os.X_OK):
        problem = "can't be written" if file.parent.is_dir() else "does not exist"
        raise UsageError(f"{with_value(option, file)}: its folder {problem}. Name a file in a different folder.")
