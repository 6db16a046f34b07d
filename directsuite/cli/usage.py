"""What is said of arguments that can't be."""

from __future__ import annotations

from collections.abc import Sequence

from cyclopts import CycloptsError, UnusedCliTokensError

_NEVER = ("--password", "--token", "--secret")


def secret_among(arguments: Sequence[str]) -> str | None:
    """A sentence, where a secret is given as an argument. It doesn't show it."""
    for argument in arguments:
        if argument == "--":
            break
        name, _, _ = argument.partition("=")
        if name in _NEVER:
            return (
                f"there is no {name}, for others can read the arguments of a command: "
                f"give {name}-file FILE, or set the variable that the command's --help names"
            )
    return None


def wrong_usage(error: CycloptsError) -> str:
    """A sentence that says what is wrong, and where it is told how it is right."""
    if isinstance(error, UnusedCliTokensError):  # unnamed: they may be the words of a message
        count = len(error.unused_tokens or ())
        said = f"{count} argument{'' if count == 1 else 's'} too many; what has blanks in it goes into quotes"
    else:
        said = " ".join(str(error).split())
        said = f"{said.removesuffix(', ...')} and more" if said.endswith(", ...") else said.rstrip(".")
    command = " ".join(("directsuite", *(error.command_chain or ()), "--help"))
    return f"{said}: see `{command}`"
