"""The command `directsuite`: what the SDK does, for people at a terminal and for scripts.

    main ──► app ──► mail      send, inbox, status: one mailbox
              ├────► sync      runs a worker that keeps mailboxes in step, and looks after it
              ├────► sign      signs files and folders
              ├────► fax       tells how faxes stand
              ├────► patient   finds and adds patients, sets their passwords
              ├────► doctor    says what is wrong with URLs, credentials and clocks
              ├────► demo      uses all four services, checks what they did, and reports
              └────► sandbox   serves until a signal comes

A command reads its options in an `app` module and does its work in others, which are imported when it runs, so that
`--help` is quick and a missing extra can be named. What commands have in common:

    options        options that several have
    streams        stdin, stdout and stderr, whatever they are
    access         the settings, the mailbox, the token or login that a command needs
    secret_places  where passwords and tokens come from
    running        from the beginning to the exit status, whatever ends it
    signals        SIGTERM and Ctrl-C, where the system has them
    exit_status    the exit status and the sentence for each kind of error
    results        tables and JSON on stdout
    progress       bars on stderr
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in directsuite itself: what is imported before `main` runs, Ctrl-C ends with a traceback

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED = 1
"""The exit status where an extra is missing, nobody reads what a command prints, or directsuite is at fault."""
INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells count it: 128 and the number of SIGINT."""
AGAIN = "nothing was changed: give the same command again"
"""How a command goes on that only reads, or has not begun."""

begun = False
"""Whether the work of the command has begun, which `Command.run` notes: until then, modules are imported."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; without `arguments`, the process's own."""
    global begun
    begun = False
    try:
        return _status_of(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        from directsuite.cli.streams import prepare_streams

        prepare_streams()  # which Ctrl-C may have prevented
        line = "\n" if sys.stderr.isatty() else ""  # the terminal stands behind ^C
        sys.stderr.write(f"{line}directsuite: {'interrupted' if begun else f'stopped; {AGAIN}'}\n")
        return INTERRUPTED


def _status_of(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit status, whatever but Ctrl-C ends it."""
    import contextlib

    from directsuite.cli.extras import MissingExtraError, require
    from directsuite.cli.streams import prepare_streams, prepare_width

    try:
        prepare_streams()
        prepare_width()
        require("cli")
        from directsuite.cli.app import run

        status = run(arguments)
        sys.stdout.flush()
    except MissingExtraError as missing:
        sys.stderr.write(f"directsuite: {missing}\n")
        return FAILED
    except BrokenPipeError:  # as after `| head`: it has read what it wanted
        with contextlib.suppress(Exception):
            from directsuite.cli.results import write_nowhere

            write_nowhere()
        return FAILED
    except OSError as error:  # of files, where no command knows better
        from directsuite.cli.exit_status import ending_of
        from directsuite.cli.results import write_nowhere

        try:
            sys.stdout.flush()
        except OSError:
            write_nowhere()  # else Python tries again when it ends
        sys.stderr.write(f"directsuite: {ending_of(error)[1]}\n")
        return FAILED
    except Exception as error:  # noqa: BLE001  its text, and the values in its traceback, may be a patient's
        sys.stderr.write(f"directsuite: {_unexpected(error)}\n")
        return FAILED
    return status


def _unexpected(error: Exception) -> str:
    """Where it happened, for whoever mends it."""
    from pathlib import Path

    place, trace = "", error.__traceback__
    while trace is not None:
        place = f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"directsuite itself is at fault ({type(error).__name__}{place}): report that, with the command's name"
