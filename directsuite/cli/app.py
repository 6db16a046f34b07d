"""The entry point of the command line: finds the command that the arguments name, and runs it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, cast

from cyclopts import App, CycloptsError, Group

from directsuite._version import __version__
from directsuite.cli import process
from directsuite.cli.options import EPILOGUE, CommonOptions
from directsuite.cli.process import ExitStatus, echo_err
from directsuite.cli.usage import explain_usage_error

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAIL = Group("Mail", sort_key=1)
_SERVICES = Group("Documents, faxes, patients", sort_key=2)
_TOOLS = Group("Trial and troubleshooting", sort_key=3)
_MISC = Group("Other", sort_key=4)

_COMMANDS = {
    "send": ("send", _MAIL, "Send a message, with attachments."),
    "inbox": ("mailbox", _MAIL, "List, read, save, move, delete, forward and answer messages."),
    "status": ("status", _MAIL, "Show the delivery status of messages for each recipient."),
    "sync": ("sync", _MAIL, "Run and control a worker that synchronises mailboxes."),
    "sign": ("document", _SERVICES, "Sign PDF files and the PDFs in folders."),
    "fax": ("fax", _SERVICES, "Show the status of faxes."),
    "patient": ("patient", _SERVICES, "Find and add patients, and set their passwords."),
    "doctor": ("doctor", _TOOLS, "Find problems, and explain how to fix them."),
    "demo": ("demo", _TOOLS, "Use all four services of a sandbox, and check their effects."),
    "sandbox": ("sandbox", _TOOLS, "Run the four services on this machine, with sample content."),
    "guide": ("guide", _TOOLS, "Show a guide, or list the guides."),
    "config": ("config", _TOOLS, "Show the configuration."),
}
"""The module of each command, its heading in `directsuite --help`, and the first line of its help.

A module is only imported if the arguments name its command, so that `directsuite --help` is fast.
"""
_INSTALL_COMPLETION = "--install-completion"
_EXIT_STATUSES = "\n".join(f"    {status:>3}  {status.meaning}" for status in ExitStatus)


@functools.cache
def build_app(only: str | None = None) -> App:
    """Return the application with all commands. only: the command whose module is imported; None for all modules."""
    app = App(
        name="directsuite",
        help="Secure health communication: PDF signing, fax status, Direct messaging, patients.",
        help_epilogue=f"""The URLs of the services are in DIRECTSUITE_MESSAGE_URL, DIRECTSUITE_SIGNING_URL,
DIRECTSUITE_FAX_URL and DIRECTSUITE_REGISTRATION_URL, or in the settings file, ~/.config/directsuite/config.toml or the
one named by DIRECTSUITE_CONFIG. `config show` shows each setting and its source. Passwords and tokens come from a
file, the environment, the keyring or a question on the terminal: they are never arguments. Each command has its own
`--help`, and `directsuite guide terminal` explains what the commands have in common.

Exit status:

{_EXIT_STATUSES}
""",
        version=__version__,
        help_format="markdown",
        version_format="plaintext",  # faster
        suppress_keyboard_interrupt=False,
        result_action="return_value",
        group_commands=_MISC,
    )
    for position, (name, (module, group, summary)) in enumerate(_COMMANDS.items()):
        command = App(name=name, help=summary)
        if only in (None, name):
            command = importlib.import_module(f"directsuite.cli.{module}").app
        if command.default_command is None:
            command.help = summary
        command.group, command.sort_key = group, position
        app.command(command)
    # The type of this method is incomplete.
    cast("Any", app).register_install_completion_command(_INSTALL_COMPLETION, group=_MISC, help_epilogue=EPILOGUE)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status. Invalid arguments are reported on stderr."""
    name = arguments[0] if arguments else ""
    app = build_app(None if name == _INSTALL_COMPLETION else name)
    try:
        function, bound, injected = app.parse_args(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        verbose = len({"-v", "-vv", "--verbose"}.intersection(arguments))
        with _apply_common_options(CommonOptions(verbose=verbose)):
            echo_err(explain_usage_error(error))
            return ExitStatus.USAGE_ERROR
    with _apply_common_options(bound.arguments.get("options")):
        if name not in _COMMANDS:
            return int(function(*bound.args, **bound.kwargs) or 0)
        from directsuite.cli.command import Command  # slow to import

        command = Command()
        extra = {"command": command} if "command" in injected else {}
        return command.run(lambda: function(*bound.args, **bound.kwargs, **extra))


@contextlib.contextmanager
def _apply_common_options(options: object) -> Generator[None]:
    previous_variables = dict(os.environ)
    if isinstance(options, CommonOptions):
        variables = {"DIRECTSUITE_PROFILE": options.profile, "DIRECTSUITE_VERBOSE": str(options.verbose or "")}
        os.environ.update({name: text for name, text in variables.items() if text})
        process.state.options_of_variables.update({"DIRECTSUITE_PROFILE": "--profile"} if options.profile else {})
    try:
        yield
    finally:
        for name in {"DIRECTSUITE_PROFILE", "DIRECTSUITE_VERBOSE"} - previous_variables.keys():
            os.environ.pop(name, None)
        os.environ.update(previous_variables)
