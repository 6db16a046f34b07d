"""The sentence for invalid arguments: what is wrong, and which `--help` explains it.

It quotes typed values only if `process.is_verbose()`, because they may be the text of a message or a person's name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
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
            too_many = _with_value(f"{len(unused)} argument{'s' * (len(unused) != 1)} too many", unused)
            return f"{too_many}; put an option's name before its value, and a value with spaces in quotes"
        case UnknownCommandError():
            typed = next(iter(error.unused_tokens or ()), "")
            return _explain_unknown_command(cast("App", error.app), typed)
        case UnknownOptionError():
            name = (error.token.keyword or error.token.value).partition("=")[0]
            options = [each for argument in error.argument_collection if argument.show for each in argument.names]
            is_named = process.is_verbose() or _OPTION_PATTERN.fullmatch(name)
            label = f"option {_shorten(name)}" if is_named else "such option"
            return f"There is no {label}{_suggest_name(name, (each for each in options if each.startswith('-')))}"
        case MissingArgumentError(keyword=None):
            return f"{_get_argument_name(error, None)} is missing"
        case MissingArgumentError():
            has_dash = any(
                option == error.keyword and value.startswith("-")
                for option, value in pairwise(error.unused_tokens or ())
            )
            hint = f"; write a value that begins with - as {error.keyword}=…" if has_dash else ""
            return f"{_get_argument_name(error, error.keyword)} has no value{hint}"
        case RepeatArgumentError():
            return f"{_get_argument_name(error, error.token.keyword)} is given more than once"
        case CoercionError():
            return _explain_coercion_error(error)
        case ValidationError() if error.argument is not None:
            tokens, limit = error.argument.tokens, error.exception_message.rstrip(".")
            for sign, words in _COMPARISON_TEXTS.items():
                limit = limit.replace(f"Must be {sign} ", f"give {words} ")
            name = _get_argument_name(error, next((each.keyword for each in tokens), None))
            return f"{_with_value(name, [each.value for each in tokens])}: {limit}"
        case ValidationError():  # of an option group; its message contains only options
            return f"These options can't be combined: {error.exception_message.partition(': ')[2].strip('{}.')}"
        case _:
            return "The arguments are invalid"


def _explain_coercion_error(error: CoercionError) -> str:
    token, kind = error.token, error.target_type
    name = _get_argument_name(error, None if token is None else token.keyword)
    if error.msg is not None:
        expected = error.msg
    elif get_origin(kind) is Literal:
        choices = sorted(map(str, get_args(kind)))  # because typing caches the order that it sees first
        expected = f"give one of {', '.join(choices)}"
    else:  # other types have a converter, which sets msg
        expected = "give an integer" if kind is int else "it takes no value"
    is_list = error.argument is not None and get_origin(error.argument.hint) is tuple
    separator_hint = "; separate several by spaces" if is_list and token and "," in token.value else ""
    return f"{_with_value(name, [token.value] if token else [])}: {expected}{separator_hint}"


def _list_commands(app: App) -> list[str]:
    return [name for name in app if not name.startswith("-")]


def _explain_unknown_command(app: App, typed: str) -> str:
    commands = _list_commands(app)
    known = f"The commands are {', '.join(commands)}"
    if typed.startswith("-"):
        return f"Give the command before its options. {known}"
    command = f"command {_shorten(typed)}" if process.is_verbose() else "such command"
    return f"There is no {command}{_suggest_name(typed, commands)}. {known}"


def _with_value(label: str, typed: Iterable[str]) -> str:
    text = " ".join(typed)
    return f"{label} ({_shorten(text)})" if text and process.is_verbose() else label


def _shorten(typed: str) -> str:
    return process.make_printable(typed if len(typed) <= _MAX_QUOTED_CHARS else f"{typed[: _MAX_QUOTED_CHARS - 1]}…")


def _suggest_name(typed: str, available_names: Iterable[str]) -> str:
    return "".join(f" (did you mean {each}?)" for each in find_similar(typed, available_names))


def _get_argument_name(error: CycloptsError, keyword: str | None) -> str:
    if keyword is not None:
        return keyword.partition("=")[0]
    name = "An argument" if error.argument is None else error.argument.name
    return name if name.startswith(("--", "An ")) else name.removesuffix("…").upper()
