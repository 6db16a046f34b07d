"""What programs and the command line are told from outside: variables, and one settings file with profiles.

    DIRECTSUITE_TIMEOUT ──► [profiles.NAME] of the file ──► the top of the file ──► the default

The file is TOML: the one that DIRECTSUITE_CONFIG names, or ~/.config/directsuite/config.toml where that exists.

    mailbox = "nurse@direct.example.org"
    message_url = "https://mail.example.org/message-rest/api/message"

    [profiles.test]
    message_url = "http://127.0.0.1:8025/message-rest/api/message"

It holds no secret: `token_file`, `mailbox_password_file` and `login_password_file` name the files that do, which only
their owner and group may read. Paths in it are relative to its folder.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
import sys
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

import attrs

from directsuite.core.failures import reason_of
from directsuite.core.files import find_path_problem
from directsuite.errors import ConfigurationError
from directsuite.secret import Secret

PREFIX = "DIRECTSUITE_"
MAX_SETTINGS_BYTES = 2**20
MAX_SECRETS_BYTES = 2**24
"""The size of a file of secrets: enough for the passwords of 100,000 mailboxes."""
DEFAULT_FILE = "~/.config/directsuite/config.toml"
"""The settings file where DIRECTSUITE_CONFIG names none; below XDG_CONFIG_HOME where that is set."""
CERTIFICATES = ("ca_bundle", "client_certificate", "client_key")
"""PEM files: whom to trust in place of the machine's authorities, and the client's own certificate and key."""
SECRETS = ("token", "mailbox_password", "login_password")
"""Each has a variable, or a file that a setting with `_file` at its end names."""
IDENTITY = ("mailbox", "login_username", *(f"{name}_file" for name in SECRETS))
"""Who calls: the settings of the file that are no parameters of Settings, beside CERTIFICATES."""


class Variables(Mapping[str, str]):
    """The environment, or a mapping in its place. Its `repr` shows nothing: frames that hold it may be printed."""

    def __init__(self, variables: Mapping[str, str] | None) -> None:
        if variables is not None and not isinstance(cast("object", variables), Mapping):
            variables = None  # this frame may stand in a traceback
            raise ConfigurationError("environ has to be a mapping of names to texts, such as os.environ")
        self._variables = os.environ if variables is None else variables

    def __getitem__(self, name: str) -> str:
        value = self._variables[name]
        if isinstance(cast("object", value), str):
            return value
        value = ""  # this frame may stand in a traceback
        raise ConfigurationError(f"{name} has to be a text")

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __repr__(self) -> str:
        return "Variables(...)"


@attrs.frozen(kw_only=True)
class Entry:
    """One setting as it was given."""

    value: Any = attrs.field(repr=False)
    """A text, where it is a variable's."""
    origin: str
    """The variable, or the file and the line."""
    is_variable: bool = False


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Configuration(Mapping[str, Entry]):
    """The settings that were given, by name; what has its default is not among them."""

    variables: Variables
    file: Path | None
    profile: str | None
    profiles: tuple[str, ...]
    """Those that the file has."""
    _entries: Mapping[str, Entry] = attrs.field(alias="entries")

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None, profile: str | None = None) -> Self:
        """Read the variables and the settings file. Raises ConfigurationError."""
        variables = Variables(environ)
        return cls._read(variables, _file_of(variables), profile or variables.get(f"{PREFIX}PROFILE") or None)

    @classmethod
    def of_file(cls, path: str | PathLike[str], profile: str | None = None) -> Self:
        """Read a settings file alone. Raises ConfigurationError."""
        return cls._read(Variables({}), _to_path(path, "the settings file"), profile)

    @classmethod
    def _read(cls, variables: Variables, file: Path | None, profile: str | None) -> Self:
        values, lines = _read_toml(file) if file is not None else ({}, {})
        profiles: dict[str, Any] = values.pop("profiles", {})
        if not isinstance(cast("object", profiles), dict) or any(
            not isinstance(each, dict) for each in profiles.values()
        ):
            raise ConfigurationError(f"{file}: profiles are tables, as [profiles.test]")
        names = tuple(profiles)
        if profile is not None and profile not in profiles:
            there = f"it has {', '.join(names)}" if names else "it has none"
            where = f"{file} has no profile of that name: {there}" if file else "there is no settings file"
            raise ConfigurationError(f"the profile that --profile or {PREFIX}PROFILE names: {where}")
        sections = {"": values, **({} if profile is None else {f"profiles.{profile}": profiles[profile]})}
        entries = dict[str, Entry]()
        for table, section in sections.items():
            for name, value in section.items():
                line = lines.get((table, name))
                entries[name] = Entry(value=value, origin=f"{file}, line {line}" if line else str(file))
        for variable in variables:
            name = variable.removeprefix(PREFIX).lower()
            if variable.startswith(PREFIX) and name not in SECRETS and (text := variables[variable]):
                entries[name] = Entry(value=text, origin=variable, is_variable=True)
        return cls(variables=variables, file=file, profile=profile, profiles=names, entries=entries)

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Configuration(<{len(self)}>)"

    def text(self, name: str) -> str | None:
        """A setting that is a text; None where it isn't given."""
        if name not in self:
            return None
        if isinstance(text := self[name].value, str) and text:
            return text
        raise ConfigurationError(f"{self[name].origin}: {name} has to be a text")

    def path(self, name: str) -> Path | None:
        """A setting that names a file; None where it isn't given."""
        text = self.text(name)
        if text is None:
            return None
        path = _to_path(text, f"{self[name].origin}: {name}")
        try:
            path = path.expanduser()
        except RuntimeError:
            text = "begins with the home folder of a user that this machine does not know"
            raise ConfigurationError(f"{self[name].origin}: {name} {text}: give an absolute path") from None
        return path if self.file is None or self[name].is_variable else self.file.parent / path

    def secret(self, name: str) -> Secret | None:
        """One of SECRETS: its variable, or what its file holds; None where neither is given."""
        if text := self.variables.get(f"{PREFIX}{name.upper()}"):
            return Secret(text)
        path = self.path(f"{name}_file")
        return None if path is None else secret_of_file(path, f"{name}_file of {self[f'{name}_file'].origin}")

    def tls(self) -> ssl.SSLContext | None:
        """The context that trusts `ca_bundle` and shows `client_certificate`; None where neither is given."""
        bundle, certificate, key = (self.path(name) for name in CERTIFICATES)
        if key is not None and certificate is None:
            raise ConfigurationError(f"{self['client_key'].origin}: client_key needs client_certificate beside it")
        name = "ca_bundle"
        try:
            context = None if bundle is None else ssl.create_default_context(cafile=bundle)
            if certificate is not None:
                name = "client_certificate"
                context = context or ssl.create_default_context()
                context.load_cert_chain(certificate, key, password="")  # else an encrypted key would be asked for
        except (OSError, ValueError) as error:
            what = "PEM that can be used" if isinstance(error, (ssl.SSLError, ValueError)) else reason_of(error)
            raise ConfigurationError(f"{self[name].origin}: {name} can't be read: {what}") from None
        return context


def _file_of(variables: Variables) -> Path | None:
    if named := variables.get(f"{PREFIX}CONFIG"):
        return _to_path(named, f"{PREFIX}CONFIG")
    home = variables.get("HOME") or variables.get("USERPROFILE")
    folder = variables.get("XDG_CONFIG_HOME") or (os.path.join(home, ".config") if home else "")  # noqa: PTH118
    path = os.path.join(folder, "directsuite", "config.toml")  # noqa: PTH118
    return Path(path) if folder and os.path.isfile(path) else None  # noqa: PTH113  Path.is_file raises for some names


def _to_path(path: str | PathLike[str], name: str) -> Path:
    """Return a path. Raise ConfigurationError with the name of what it should be if no file can have it."""
    problem = find_path_problem(path)
    if problem is not None:
        path = ""  # tracebacks expose local variables
        raise ConfigurationError(f"{name}: {problem}")
    return Path(path)


def _read_toml(path: Path) -> tuple[dict[str, Any], dict[tuple[str, str], int]]:
    """The settings of a file, and the line of each, by table and name."""
    import tomllib  # most programs have no such file

    try:
        with path.open("rb") as file:
            text = _read_limited(file, MAX_SETTINGS_BYTES).decode()
        return tomllib.loads(text), _lines_of(text)
    except FileNotFoundError:
        reason = "no such file"
    except _TooLargeError as error:
        reason = str(error)
    except (ValueError, RecursionError) as error:  # a path with a null byte among them; its text quotes the file
        line = re.search(r"\(at line (\d+), column \d+\)\Z", str(error))
        reason = f"not TOML, in line {line[1]}" if line else "not TOML"
    except OSError as error:
        reason = f"it can't be read ({type(error).__name__})"
    raise ConfigurationError(f"settings file {path}: {reason}")


class _TooLargeError(Exception):
    """A file has more bytes than one of its kind may have."""


def _read_limited(file: BinaryIO, limit: int) -> bytes:
    """Return the content of a file, which may be a device that never ends. Raise _TooLargeError beyond the limit."""
    content = file.read(limit + 1)
    if len(content) > limit:
        raise _TooLargeError(f"it has more than {limit:,} bytes")
    return content


def _lines_of(text: str) -> dict[tuple[str, str], int]:
    """The line of each setting, as far as it begins one: for errors alone."""
    lines, table = dict[tuple[str, str], int](), ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = "".join(header[1].replace('"', "").split())
        elif name := re.match(r"\s*\"?([A-Za-z0-9_-]+)\"?\s*=", line):
            lines.setdefault((table, name[1]), number)
    return lines


def private_bytes(path: Path, name: str) -> bytes:
    """What a file holds that only its owner and group may read. name: the file, for people."""
    try:
        with path.open("rb") as file:
            if sys.platform != "win32" and os.fstat(file.fileno()).st_mode & stat.S_IRWXO:
                raise ConfigurationError(f"others may read {name}: take that from them, with chmod o=")
            return _read_limited(file, MAX_SECRETS_BYTES)
    except _TooLargeError as error:
        reason = str(error)
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "its name can't be one"
    raise ConfigurationError(f"{name} can't be read, {reason}: give another")


def secret_of_file(path: Path, name: str) -> Secret:
    """The secret that stands alone in a file, on one line. name: the file, for people."""
    content = private_bytes(path, name)
    try:
        text = content.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        text = ""
    if not text or "\n" in text:
        content, text = b"", ""  # this frame may stand in a traceback
        raise ConfigurationError(f"{name} has to hold the secret alone, on one line: this one doesn't")
    return Secret(text)
