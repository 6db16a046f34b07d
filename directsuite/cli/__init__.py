"""The command `directsuite`: what the SDK does, for people at a terminal and for scripts.

    main ──► app ──► send      sends one message
              ├────► inbox     lists, shows and saves messages
              ├────► status    tells how far messages have come
              ├────► sync      runs a worker that synchronises mailboxes, and controls it
              ├────► sign      signs files and folders
              ├────► fax       tells how faxes stand
              ├────► patient   finds and adds patients, sets their passwords
              ├────► doctor    says what is wrong with URLs, credentials and clocks
              ├────► demo      uses all four services, checks what they did, and reports
              ├────► sandbox   serves until a signal comes
              ├────► guide     shows the guides
              └────► config    shows what is configured, and where

`app` and `options` say which commands and options there are. They import nothing of the client, so that `--help` is
quick; the module that does a command's work is imported when the command runs. What commands have in common:

    process      exit statuses, the process's streams, and the libraries that have to be installed
    usage        the sentence for arguments that are wrong
    command      runs a command from its beginning to its exit status, whatever ends it
    credentials  settings, passwords, tokens, and the private files that hold them
    errors       the exit status and the sentence for each kind of error
    output       tables and JSON on stdout, progress bars on stderr
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in directsuite itself: what is imported before `main` runs, Ctrl-C ends with a traceback

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; without `arguments`, the process's own."""
    try:
        return _run_command_line(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        from directsuite.cli import process

        process.prepare_streams()  # which Ctrl-C may have prevented
        process.end_line()
        process.echo_err("interrupted" if process.has_begun else f"stopped; {process.NOTHING_CHANGED}")
        return process.ExitStatus.INTERRUPTED


def _run_command_line(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit status, whatever but Ctrl-C ends it."""
    import contextlib

    from directsuite.cli import process
    from directsuite.cli.process import ExitStatus, MissingExtraError, echo_err

    process.has_begun = False
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
    except BrokenPipeError:  # as after `| head`: it has read what it wanted
        with contextlib.suppress(Exception):
            process.discard_stdout()
        return ExitStatus.FAILED
    except OSError as error:  # of files, where no command knows better
        from directsuite.cli.errors import exit_for_error

        try:
            sys.stdout.flush()
        except OSError:
            process.discard_stdout()  # else Python tries again when it ends
        echo_err(exit_for_error(error)[1])
        return ExitStatus.FAILED
    except Exception as error:  # noqa: BLE001  its text, and the values in its traceback, may be a patient's
        echo_err(f"directsuite itself is at fault ({_describe_location(error)}): report that, with the command's name")
        return ExitStatus.FAILED
    return status


def _describe_location(error: Exception) -> str:
    """The error's type, and the file and line that raised it, for whoever mends it."""
    from pathlib import Path

    place, trace = "", error.__traceback__
    while trace is not None:
        place = f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}{place}"
