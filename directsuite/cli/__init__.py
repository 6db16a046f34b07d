"""The command `directsuite`.

`app` lists the commands. The module of a command has its options, examples, help and function, which returns the exit
status, None for 0, or a coroutine that does. It is imported if the arguments name the command, so that
`directsuite --help` is fast. Shared modules:

    options      making commands, and options of several commands
    process      exit statuses, the process's streams, and required libraries
    usage        the sentence for invalid arguments
    command      runs a command from its start to its exit status
    credentials  settings, passwords, tokens, and private files
    errors       the exit status and the sentence for each kind of error
    output       tables and JSON on stdout, progress bars on stderr
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # instead of importing `typing`: Ctrl-C during an import before `main` would print a traceback

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status. arguments: None for those of the process."""
    try:
        return _run_command_line(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        from directsuite.cli import process

        process.prepare_streams()  # because Ctrl-C may have prevented it before
        process.end_line()
        process.echo_err("interrupted" if process.state.has_begun else f"stopped; {process.NOTHING_CHANGED}")
        return process.ExitStatus.INTERRUPTED


def _run_command_line(arguments: Sequence[str]) -> int:
    import contextlib
    import traceback
    from pathlib import Path

    from directsuite.cli import process
    from directsuite.cli.process import ExitStatus, MissingExtraError, echo_err

    process.state = process.RunState()
    try:
        process.prepare_streams()
        process.prepare_width()
        process.require_extra("cli")
        from directsuite.cli.app import run

        status = run(arguments)
        sys.stdout.flush()
    except MissingExtraError as missing:
        echo_err(str(missing))
        return ExitStatus.FAILED
    except BrokenPipeError:  # such as with `| head`, which closes the pipe early
        with contextlib.suppress(Exception):
            process.discard_stdout()
        return ExitStatus.FAILED
    except OSError as error:  # of files or stdout
        from directsuite.cli.errors import exit_for_error

        try:
            sys.stdout.flush()
        except OSError:
            process.discard_stdout()  # otherwise Python flushes it again at exit
        echo_err(exit_for_error(error)[1])
        return ExitStatus.FAILED
    except Exception as error:  # noqa: BLE001  its text and traceback may contain a patient's data
        frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
        place = f"{type(error).__name__} at {Path(frame.f_code.co_filename).name}:{line}"
        echo_err(f"This is a bug in directsuite ({place}). Report it with the command's name.")
        return ExitStatus.FAILED
    return status
