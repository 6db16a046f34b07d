"""The sentence for invalid arguments: what is wrong, and which `--help` explains it.

It quotes typed values only if `process.is_verbose()`, because they may be the text of a message or a person's name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Literal, cast, get_args, get_origin

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
from directsuite.core.similar import find_similar

_MAX_QUOTED_CHARS = 100
_OPTION_PATTERN = re.compile(r"--?[a-z]+(?:-[a-z]+)*")
_EXPECTED_FORMATS: Mapping[object, str] = {
    int: "give an integer",
    float: "give a number",
    bool: "it takes no value",
    datetime: "give a date such as 2026-05-01, or a date and time such as 2026-05-01T08:00",
}
_COMPARISON_TEXTS = {">=": "at least", ">": "more than", "<=": "at most", "<": "less than"}


def explain_usage_error(error: CycloptsError) -> str:
    """Return the sentence for arguments that cyclopts rejects."""
    chain = error.command_chain or ()
    command = " ".join(("directsuite", *chain, "--help"))
    first = next(iter((error.root_input_tokens or ())[len(chain) :]), "")
    misspelt = explain_misspelt_command(error.app, first) if error.app is not None else None
    return f"{misspelt or _explain_problem(error)}. See `{command}`."


def explain_misspelt_command(app: App, typed: str) -> str | None:
    """Return the problem of an argument that is not a file, but similar to a command of `app`, else None."""
    if typed.startswith("-") or os.path.lexists(typed) or not find_similar(typed, _list_commands(app)):
        return None
    return _explain_unknown_command(app, typed)


def _explain_problem(error: CycloptsError) -> str:
    match error:
        case UnusedCliTokensError():
            unused = error.unused_tokens or ()
            too_many = _with_value(f"{len(unused)} argument{'s' * (len(unused) != 1)} too many", " ".join(unused))
            return f"{too_many}; put an option's name before its value, and a value with spaces in quotes"
        case UnknownCommandError():
            typed = next(iter(error.unused_tokens or ()), "")
            return _explain_unknown_command(cast("App", error.app), typed)
        case UnknownOptionError():
            return _explain_unknown_option(error)
        case MissingArgumentError():
            name = _get_argument_name(error, error.keyword)
            return f"{name} is missing" if error.keyword is None else f"{name} has no value{_make_dash_hint(error)}"
        case RepeatArgumentError():
            return f"{_get_argument_name(error, error.token.keyword)} is given more than once"
        case CoercionError():
            token = error.token
            name = _get_argument_name(error, None if token is None else token.keyword)
            name = name if token is None else _with_value(name, token.value)
            expected = _describe_expected(error.target_type) if error.msg is None else error.msg
            is_list = error.argument is not None and get_origin(error.argument.hint) is tuple
            separator_hint = "; separate several by spaces" if is_list and token and "," in token.value else ""
            return f"{name}: {expected}{separator_hint}"
        case ValidationError() if error.argument is not None:
            token = next(iter(error.argument.tokens), None)
            name = _get_argument_name(error, None if token is None else token.keyword)
            typed = " ".join(each.value for each in error.argument.tokens)
            return f"{_with_value(name, typed)}: {_describe_limit(error.exception_message)}"
        case ValidationError():  # of an option group; its message contains only options
            return f"These options can't be combined: {error.exception_message.partition(': ')[2].strip('{}.')}"
        case _:
            return "The arguments are invalid"


def _list_commands(app: App) -> list[str]:
    return [name for name in app if not name.startswith("-")]


def _explain_unknown_command(app: App, typed: str) -> str:
    available_commands = _list_commands(app)
    if typed.startswith("-"):
        return f"Give the command before its options. The commands are {', '.join(available_commands)}"
    command = f"command {_shorten(typed)}" if process.is_verbose() else "such command"
    return (
        f"There is no {command}{_suggest_name(typed, available_commands)}. The commands are "
        f"{', '.join(available_commands)}"
    )


def _explain_unknown_option(error: UnknownOptionError) -> str:
    name = (error.token.keyword or error.token.value).partition("=")[0]
    shown = [argument for argument in error.argument_collection if argument.show]
    available_options = [each for argument in shown for each in argument.names if each.startswith("-")]
    is_named = process.is_verbose() or _OPTION_PATTERN.fullmatch(name)
    label = f"option {_shorten(name)}" if is_named else "such option"
    return f"There is no {label}{_suggest_name(name, available_options)}"


def _with_value(label: str, typed: str) -> str:
    return f"{label} ({_shorten(typed)})" if typed and process.is_verbose() else label


def _shorten(typed: str) -> str:
    return process.make_printable(typed if len(typed) <= _MAX_QUOTED_CHARS else f"{typed[: _MAX_QUOTED_CHARS - 1]}…")


def _make_dash_hint(error: MissingArgumentError) -> str:
    pairs = pairwise(error.unused_tokens or ())
    if not any(option == error.keyword and behind.startswith("-") for option, behind in pairs):
        return ""
    return f"; write a value that begins with - as {error.keyword}=…"


def _suggest_name(typed: str, available_names: Sequence[str]) -> str:
    return "".join(f" (did you mean {each}?)" for each in find_similar(typed, available_names))


def _get_argument_name(error: CycloptsError, keyword: str | None) -> str:
    if keyword is not None:
        return keyword.partition("=")[0]
    if error.argument is None:
        return "An argument"
    name = error.argument.name
    return name if name.startswith("--") else name.removesuffix("…").upper()


def _describe_expected(kind: object) -> str:
    if get_origin(kind) is Literal:
        choices = sorted(map(str, get_args(kind)))  # because typing caches the order that it sees first
        return f"give one of {', '.join(choices)}"
    return _EXPECTED_FORMATS.get(kind, "the value is invalid")


def _describe_limit(message: str) -> str:
    for sign, words in _COMPARISON_TEXTS.items():
        message = message.replace(f"Must be {sign} ", f"give {words} ")
    return message.rstrip(".")
