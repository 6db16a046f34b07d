"""Under which headings, and in which order, `directsuite --help` lists the commands."""

from __future__ import annotations

from cyclopts import Group

MAIL = Group("Mail", sort_key=1)
SERVICES = Group("Documents, faxes, patients", sort_key=2)
TRYING = Group("To try things, and to find what is wrong", sort_key=3)
OTHERS = Group("Other", sort_key=4)
COMMANDS = Group("Commands")
"""Of a command that has some below it."""

EPILOGUE = "The exit statuses stand in `directsuite --help`."
"""Below the help of each command."""
