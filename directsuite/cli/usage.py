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

_SECRETS = ("--password", "--token", "--secret")
_FILES = ("--password-file", "--token-file", "--passwords")
_QUOTED = 100  # characters of what was typed
_SIMILAR = 0.75  # of 1: a letter too many, too few or in another's place
_OPTION = re.compile(r"--?[a-z]+(?:-[a-z]+)*")
_FORMS: Mapping[object, str] = {
    int: "give a whole number",
    float: "give a number",
    bool: "it takes no value",
    datetime: "give a day, as 2026-05-01, or a time, as 2026-05-01T08:00",
}
_LIMITS = {">=": "at least", ">": "more than", "<=": "at most", "<": "less than"}


def secret_among(app: App, arguments: Sequence[str]) -> str | None:
    """The sentence for a secret among the arguments; None where there is none."""
    for argument in arguments:
        if argument == "--":
            break
        name, _, _ = argument.partition("=")
        if name in _SECRETS:
            chain, _, _ = app.parse_commands(arguments)
            there = _options_of(app[chain[0]] if len(chain) == 1 else app[chain[0]][chain[1]]) if chain else ()
            files = "".join(f"give {option} FILE, or " for option in _FILES if option in there)
            return (
                f"there is no {name}, for others can read the arguments of a command: {files}set the variable that "
                f"the command's --help names: see `{' '.join(('directsuite', *chain, '--help'))}`"
            )
    return None


def _options_of(command: App) -> Sequence[str]:
    """The names of a command's options; a group of commands has none."""
    if command.default_command is None:
        return ()
    return [name for argument in command.assemble_argument_collection() for name in argument.names]


def wrong_usage(error: CycloptsError) -> str:
    """The sentence for arguments that cyclopts refuses."""
    command = " ".join(("directsuite", *(error.command_chain or ()), "--help"))
    return f"{_problem(error)}: see `{command}`"


def _problem(error: CycloptsError) -> str:
    match error:
        case UnusedCliTokensError():
            unused = error.unused_tokens or ()
            too_many = _naming(f"{len(unused)} argument{'s' * (len(unused) != 1)} too many", " ".join(unused))
            return f"{too_many}; what has blanks in it goes into quotes"
        case UnknownCommandError():
            return _no_such_command(error)
        case UnknownOptionError():
            return _no_such_option(error)
        case MissingArgumentError():
            name = _name_of(error, error.keyword)
            return (
                f"{name} is missing" if error.keyword is None else f"{name} is given without a value{_dash_hint(error)}"
            )
        case RepeatArgumentError():
            return f"{_name_of(error, error.token.keyword)} is given more than once"
        case CoercionError():
            token = error.token
            name = _name_of(error, None if token is None else token.keyword)
            name = name if token is None else _naming(name, token.value)
            return f"{name}: {error.msg}" if error.msg is not None else f"{name}: {_expected(error.target_type)}"
        case ValidationError() if error.argument is not None:
            token = next(iter(error.argument.tokens), None)
            name = _name_of(error, None if token is None else token.keyword)
            typed = " ".join(each.value for each in error.argument.tokens)
            return f"{_naming(name, typed)}: {_limit_in_words(error.exception_message)}"
        case ValidationError():  # of a group, whose message names options alone
            return f"not all of these go together: {error.exception_message.partition(': ')[2].strip('{}.')}"
        case _:
            return "the arguments can't be understood"


def _no_such_command(error: UnknownCommandError) -> str:
    there = [name for name in error.app or () if not name.startswith("-")]
    typed = next(iter(error.unused_tokens or ()), "")
    if typed.startswith("-"):
        return f"options stand behind the command; there are {', '.join(there)}"
    command = f"command {_shortened(typed)}" if process.shows_details() else "such command"
    return f"there is no {command}{_suggestion(typed, there)}; there are {', '.join(there)}"


def _no_such_option(error: UnknownOptionError) -> str:
    name = (error.token.keyword or error.token.value).partition("=")[0]
    there = [each for argument in error.argument_collection for each in argument.names if each.startswith("-")]
    is_named = process.shows_details() or _OPTION.fullmatch(name)
    return f"there is no {f'option {_shortened(name)}' if is_named else 'such option'}{_suggestion(name, there)}"


def _naming(what: str, typed: str) -> str:
    """`what`, with what was typed where stderr may show it."""
    return f"{what} ({_shortened(typed)})" if typed and process.shows_details() else what


def _shortened(typed: str) -> str:
    return process.printable(typed if len(typed) <= _QUOTED else f"{typed[: _QUOTED - 1]}…")


def _dash_hint(error: MissingArgumentError) -> str:
    pairs = pairwise(error.unused_tokens or ())
    if not any(option == error.keyword and behind.startswith("-") for option, behind in pairs):
        return ""
    return f"; a value that begins with - is given as {error.keyword}=…"


def _suggestion(typed: str, there: Sequence[str]) -> str:
    if typed in there:
        return ""
    begun = [each for each in there if each.startswith(typed) and typed.strip("-")]
    near = begun if len(begun) == 1 else difflib.get_close_matches(typed, there, n=1, cutoff=_SIMILAR)
    return f" (did you mean {near[0]}?)" if near else ""


def _name_of(error: CycloptsError, keyword: str | None) -> str:
    """The option, or what stands in its place in a command's help."""
    if keyword is not None:
        return keyword.partition("=")[0]
    if error.argument is None:
        return "an argument"
    name = error.argument.name
    return name if name.startswith("--") else name.upper()


def _expected(kind: object) -> str:
    if get_origin(kind) is Literal:
        choices = sorted(map(str, get_args(kind)))  # typing has one order for all of the same members: the first seen
        return f"give one of {', '.join(choices)}"
    return _FORMS.get(kind, "it can't be understood")


def _limit_in_words(message: str) -> str:
    for sign, words in _LIMITS.items():
        message = message.replace(f"Must be {sign} ", f"give {words} ")
    return message.rstrip(".")
