"""The sentence for arguments that are wrong: what is wrong, and which `--help` says how it is right.

It quotes what was typed only where `shows_details` allows that: elsewhere it names nothing but options, since the rest
may be the words of a message, or somebody's name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Literal, get_args, get_origin

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)

from directsuite.cli import process

_SECRET_OPTIONS = ("--password", "--token", "--secret")
_SECRET_FILE_OPTIONS = ("--password-file", "--token-file", "--passwords")
_MAX_QUOTED_CHARS = 100  # characters of what was typed
_MIN_SIMILARITY = 0.75  # of 1: a letter too many, too few or in another's place
_OPTION_PATTERN = re.compile(r"--?[a-z]+(?:-[a-z]+)*")
_EXPECTED_FORMATS: Mapping[object, str] = {
    int: "give an integer",
    float: "give a number",
    bool: "it takes no value",
    datetime: "give a date such as 2026-05-01, or a date and time such as 2026-05-01T08:00",
}
_COMPARISON_TEXTS = {">=": "at least", ">": "more than", "<=": "at most", "<": "less than"}


def find_secret_argument(app: App, arguments: Sequence[str]) -> str | None:
    """The sentence for a secret among the arguments; None where there is none."""
    for argument in arguments:
        if argument == "--":
            break
        name, _, _ = argument.partition("=")
        if name in _SECRET_OPTIONS:
            chain, _, _ = app.parse_commands(arguments)
            available_options = (
                _list_options(app[chain[0]] if len(chain) == 1 else app[chain[0]][chain[1]]) if chain else ()
            )
            files = "".join(
                f"give {option} FILE, or " for option in _SECRET_FILE_OPTIONS if option in available_options
            )
            return (
                f"there is no {name}, for others can read the arguments of a command: {files}set the variable that "
                f"the command's --help names: see `{' '.join(('directsuite', *chain, '--help'))}`"
            )
    return None


def _list_options(command: App) -> Sequence[str]:
    """The names of a command's options; a group of commands has none."""
    if command.default_command is None:
        return ()
    return [name for argument in command.assemble_argument_collection() for name in argument.names]


def explain_usage_error(error: CycloptsError) -> str:
    """The sentence for arguments that cyclopts refuses."""
    command = " ".join(("directsuite", *(error.command_chain or ()), "--help"))
    return f"{_explain_problem(error)}: see `{command}`"


def _explain_problem(error: CycloptsError) -> str:
    match error:
        case UnusedCliTokensError():
            unused = error.unused_tokens or ()
            too_many = _with_value(f"{len(unused)} argument{'s' * (len(unused) != 1)} too many", " ".join(unused))
            return f"{too_many}; what has blanks in it goes into quotes"
        case UnknownCommandError():
            return _explain_unknown_command(error)
        case UnknownOptionError():
            return _explain_unknown_option(error)
        case MissingArgumentError():
            name = _get_argument_name(error, error.keyword)
            return (
                f"{name} is missing"
                if error.keyword is None
                else f"{name} is given without a value{_make_dash_hint(error)}"
            )
        case RepeatArgumentError():
            return f"{_get_argument_name(error, error.token.keyword)} is given more than once"
        case CoercionError():
            token = error.token
            name = _get_argument_name(error, None if token is None else token.keyword)
            name = name if token is None else _with_value(name, token.value)
            return (
                f"{name}: {error.msg}" if error.msg is not None else f"{name}: {_describe_expected(error.target_type)}"
            )
        case ValidationError() if error.argument is not None:
            token = next(iter(error.argument.tokens), None)
            name = _get_argument_name(error, None if token is None else token.keyword)
            typed = " ".join(each.value for each in error.argument.tokens)
            return f"{_with_value(name, typed)}: {_describe_limit(error.exception_message)}"
        case ValidationError():  # of a group, whose message names options alone
            return f"not all of these go together: {error.exception_message.partition(': ')[2].strip('{}.')}"
        case _:
            return "the arguments can't be understood"


def _explain_unknown_command(error: UnknownCommandError) -> str:
    available_commands = [name for name in error.app or () if not name.startswith("-")]
    typed = next(iter(error.unused_tokens or ()), "")
    if typed.startswith("-"):
        return f"options stand behind the command; there are {', '.join(available_commands)}"
    command = f"command {_shorten(typed)}" if process.is_verbose() else "such command"
    return f"there is no {command}{_suggest_name(typed, available_commands)}; there are {', '.join(available_commands)}"


def _explain_unknown_option(error: UnknownOptionError) -> str:
    name = (error.token.keyword or error.token.value).partition("=")[0]
    available_options = [
        each for argument in error.argument_collection for each in argument.names if each.startswith("-")
    ]
    is_named = process.is_verbose() or _OPTION_PATTERN.fullmatch(name)
    label = f"option {_shorten(name)}" if is_named else "such option"
    return f"there is no {label}{_suggest_name(name, available_options)}"


def _with_value(label: str, typed: str) -> str:
    """`what`, with what was typed where stderr may show it."""
    return f"{label} ({_shorten(typed)})" if typed and process.is_verbose() else label


def _shorten(typed: str) -> str:
    return process.make_printable(typed if len(typed) <= _MAX_QUOTED_CHARS else f"{typed[: _MAX_QUOTED_CHARS - 1]}…")


def _make_dash_hint(error: MissingArgumentError) -> str:
    pairs = pairwise(error.unused_tokens or ())
    if not any(option == error.keyword and behind.startswith("-") for option, behind in pairs):
        return ""
    return f"; a value that begins with - is given as {error.keyword}=…"


def _suggest_name(typed: str, available_names: Sequence[str]) -> str:
    if typed in available_names:
        return ""
    completions = [each for each in available_names if each.startswith(typed) and typed.strip("-")]
    similar_names = (
        completions
        if len(completions) == 1
        else difflib.get_close_matches(typed, available_names, n=1, cutoff=_MIN_SIMILARITY)
    )
    return f" (did you mean {similar_names[0]}?)" if similar_names else ""


def _get_argument_name(error: CycloptsError, keyword: str | None) -> str:
    """The option, or what stands in its place in a command's help."""
    if keyword is not None:
        return keyword.partition("=")[0]
    if error.argument is None:
        return "an argument"
    name = error.argument.name
    return name if name.startswith("--") else name.upper()


def _describe_expected(kind: object) -> str:
    if get_origin(kind) is Literal:
        choices = sorted(map(str, get_args(kind)))  # typing has one order for all of the same members: the first seen
        return f"give one of {', '.join(choices)}"
    return _EXPECTED_FORMATS.get(kind, "it can't be understood")


def _describe_limit(message: str) -> str:
    for sign, words in _COMPARISON_TEXTS.items():
        message = message.replace(f"Must be {sign} ", f"give {words} ")
    return message.rstrip(".")
