"""`directsuite --install-completion`: the shell completes commands and options."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cyclopts import App
from cyclopts.completion.detect import ShellDetectionError, detect_shell

from directsuite.cli.exit_status import ExitStatus
from directsuite.cli.running import say

Shell = Literal["bash", "zsh", "fish", "powershell"]

_NEEDS = {"zsh": ", where ~/.zshrc runs compinit"}
_NEEDS_ELSEWHERE = {
    "zsh": ", where ~/.zshrc runs compinit, and the file is called _directsuite",
    "fish": ", where config.fish sources that file",
}
"""What else has to be so where the file isn't the shell's own: those of the others are sourced by what is installed."""


def install(app: App, shell: Shell | None, output: Path | None) -> int:
    """Write the script to where the shell finds it, or to output; the exit status. Raises OSError."""
    try:
        shell = detect_shell() if shell is None else shell
    except ShellDetectionError:
        say("nobody can tell which shell this is: give --shell bash, zsh, fish or powershell")
        return ExitStatus.REFUSED
    app.install_completion(shell=shell, output=output)
    needed = (_NEEDS if output is None else _NEEDS_ELSEWHERE).get(shell, "")
    say(f"{shell} completes commands and options from its next start on{needed}")
    return ExitStatus.DONE
