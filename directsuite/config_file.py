"""Read settings from environment variables and from a settings file with profiles.

The first of these that contains a setting determines its value:

    DIRECTSUITE_TIMEOUT ──► [profiles.NAME] of the file ──► the top of the file ──► the default

The file is in TOML format. Its path is given by DIRECTSUITE_CONFIG. If that is not set,
~/.config/directsuite/config.toml is used if it exists. An example:

    mailbox = "nurse@direct.example.org"
    message_url = "https://mail.example.org/message-rest/api/message"

    [profiles.test]
    message_url = "http://127.0.0.1:8025/message-rest/api/message"

The file contains no secrets. `token_file`, `client_secret_file` and similar settings are paths of files with secrets,
which only their owner and group may access. Paths in the settings file are relative to its folder.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import secrets
import ssl
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Self, cast

import attrs

from directsuite.core.files import explain_os_error, find_path_problem, replace_file, run_in_thread, sync_folder
from directsuite.core.privacy import scrub_class, scrub_traceback
from directsuite.core.similar import find_similar
from directsuite.errors import ConfigurationError
from directsuite.wire.models import Secret

if TYPE_CHECKING:  # OAuth is imported only if it is used, to start faster
    from directsuite.oauth.grants import ClientCredentials, RefreshToken

PREFIX = "DIRECTSUITE_"
MAX_SETTINGS_BYTES = 2**20
MAX_SECRETS_BYTES = 2**24
"""The maximum size of a file of secrets: enough for the passwords of 100,000 mailboxes."""
_HOME_VARIABLES = ("XDG_CONFIG_HOME", "HOME", "USERPROFILE")
DEFAULT_FILE = "~/.config/directsuite/config.toml"
"""XDG_CONFIG_HOME replaces ~/.config if it is set."""
CERTIFICATES = ("ca_bundle", "client_certificate", "client_key")
"""Paths of PEM files. `ca_bundle` replaces the machine's trusted authorities. The others are for the client."""
SECRETS = ("token", "mailbox_password", "login_password", "client_secret", "refresh_token")
"""The secrets. Each is read from a variable, or from the file given by the setting `NAME_file`."""
IDENTITY = ("mailbox", "login_username", "token_url", "client_id", "scope", *(f"{name}_file" for name in SECRETS))
"""The settings that identify the caller. Like CERTIFICATES, they are not parameters of Settings."""


class SettingSource(enum.IntEnum):
    """The source of a setting. A source with a higher number has precedence."""

    FILE = 1
    PROFILE = 2
    VARIABLE = 3


@attrs.frozen(kw_only=True)
class SettingEntry:
    """A setting from a variable or a file."""

    value: Any = attrs.field(repr=False)
    """The value in the file, or the text of the variable."""
    origin: str
    """The name of the variable, or the file and, if known, the line."""
    source: SettingSource = SettingSource.VARIABLE

    @property
    def is_variable(self) -> bool:
        """True if the setting is from a variable."""
        return self.source is SettingSource.VARIABLE


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Configuration(Mapping[str, SettingEntry]):
    """The settings from variables and the settings file, by name. Unset ones are not included."""

    variables: Mapping[str, str]
    """The environment variables of the package, also empty ones."""
    file: Path | None
    profile: str | None
    profiles: tuple[str, ...]
    """All profiles in the file."""
    _entries: Mapping[str, SettingEntry] = attrs.field(alias="entries")

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None, profile: str | None = None) -> Self:
        """Read the variables and the settings file.

        environ, profile: as for `Settings.from_env`.

        Raises ConfigurationError if the file cannot be read, is invalid, or does not have the profile.
        """
        variables = _read_variables(environ)
        file, variable = _find_settings_file(variables), f"{PREFIX}PROFILE"
        if profile is None and variables.get(variable):
            return cls._read(variables, file, variables[variable], profile_origin=variable)
        return cls._read(variables, file, profile or None)

    @classmethod
    def from_file(cls, path: str | PathLike[str], profile: str | None = None) -> Self:
        """Read a settings file, but no variables. Raises ConfigurationError in the cases of `read`."""
        return cls._read({}, _to_path(path, "the settings file"), profile)

    @classmethod
    def _read(
        cls, variables: Mapping[str, str], file: Path | None, profile: str | None, profile_origin: str = "profile"
    ) -> Self:
        values, lines = _read_toml(file) if file is not None else ({}, {})
        profiles: dict[str, Any] = values.pop("profiles", {})
        if not isinstance(cast("object", profiles), dict) or any(
            not isinstance(each, dict) for each in profiles.values()
        ):
            raise ConfigurationError(f"{file}: profiles must be tables, such as [profiles.test]")
        names = tuple(profiles)
        if profile is not None and profile not in profiles:
            there = f"has the profiles {', '.join(names)}" if names else "has no profiles"
            missing = (
                f", because there is no settings file: create {DEFAULT_FILE} with the section [profiles.{profile}], "
                f"or name a file with {PREFIX}CONFIG"
            )
            hint = "".join(f"; did you mean {each}?" for each in find_similar(profile, names))
            where = f": {file} {there}{hint}" if file else missing
            raise ConfigurationError(f"{profile_origin}: there is no profile {profile!r}{where}")
        sections = [(SettingSource.FILE, "", values)]
        if profile is not None:
            sections.append((SettingSource.PROFILE, f"profiles.{profile}", profiles[profile]))
        entries = dict[str, SettingEntry]()
        for source, table, section in sections:
            for name, value in section.items():
                line = lines.get((table, name))
                origin = f"{file}, line {line}" if line else str(file)
                entries[name] = SettingEntry(value=value, origin=origin, source=source)
        for variable, text in variables.items():
            name = variable.removeprefix(PREFIX).lower()
            if variable.startswith(PREFIX) and variable.isupper() and text:
                entries[name] = SettingEntry(value=text, origin=variable)
        return cls(variables=variables, file=file, profile=profile, profiles=names, entries=entries)

    def __getitem__(self, name: str) -> SettingEntry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Configuration(<{len(self)}>)"

    def get_text(self, name: str) -> str | None:
        """Return a setting, or None if it is not set.

        Raises ConfigurationError if it is empty or not a text, or its variable ends with a line break.
        """
        if name not in self:
            return None
        if isinstance(text := self[name].value, str) and text:
            _validate_line_end(self[name])
            return text
        raise ConfigurationError(f"{self[name].origin}: {name} must be a non-empty string")

    def get_path(self, name: str) -> Path | None:
        """Return a path, or None if it is not set.

        `~` is expanded, and paths in the file are relative to its folder. Raises ConfigurationError if one is invalid.
        """
        text = self.get_text(name)
        if text is None:
            return None
        path = _to_path(text, f"{self[name].origin}: {name}")
        try:
            path = path.expanduser()
        except RuntimeError:
            text = "starts with a home folder that is unknown on this machine"
            raise ConfigurationError(f"{self[name].origin}: {name} {text}: give an absolute path") from None
        return path if self.file is None or self[name].is_variable else self.file.parent / path

    def read_secret(self, name: str) -> Secret | None:
        """Return a secret from its variable or its file, or None if neither is set.

        name: one of SECRETS.

        Raises ConfigurationError if the variable ends with a line break, the file does not contain only the secret, or
        it is not private.
        """
        if (entry := self.get(name)) is not None and entry.is_variable:
            _validate_line_end(entry)
            return Secret(entry.value)
        path = self.get_path(f"{name}_file")
        return None if path is None else read_secret_file(path, f"{name}_file of {self[f'{name}_file'].origin}")

    def prefers_grant(self) -> bool:
        """Return True if the OAuth 2.0 client is used, False if a token is used or there is no client.

        If both are set, the one from the source with precedence is used. Raises ConfigurationError if both are from the
        same source.
        """
        client, token = self.get("token_url"), self.get("token") or self.get("token_file")
        if client is None or token is None:
            return client is not None
        if client.source is token.source:
            raise ConfigurationError(
                f"{token.origin} sets a token, and {client.origin} sets the token_url of an OAuth client: remove one"
            )
        return client.source > token.source

    def read_token(self, *, allow_insecure_http: bool = False) -> Secret | ClientCredentials | RefreshToken | None:
        """Return the token, or else the OAuth 2.0 grant. Raises ConfigurationError as their methods do."""
        token = None if self.prefers_grant() else self.read_secret("token")
        return self.read_grant(allow_insecure_http=allow_insecure_http) if token is None else token

    def read_grant(self, *, allow_insecure_http: bool = False) -> ClientCredentials | RefreshToken | None:
        """Return the OAuth 2.0 grant, or None if `token_url` is not set.

        It is a RefreshToken if a refresh token is set. If the server replaces a refresh token that was read from a
        file, the new one is written to this file.

        Raises ConfigurationError if a setting is missing or invalid, a file is not private, or the file of the refresh
        token cannot be replaced.
        """
        token_url, client_id, scope = (self.get_text(name) for name in ("token_url", "client_id", "scope"))
        client_secret, refresh_token = self.read_secret("client_secret"), self.read_secret("refresh_token")
        if token_url is None:
            names = {"client_id": client_id, "client_secret": client_secret, "refresh_token": refresh_token}
            for name in (name for name, value in names.items() if value is not None):
                raise ConfigurationError(f"{self.find_origin(name)}: {name} is set without token_url: set both")
            return None
        origin = self.find_origin("token_url")
        if client_id is None:
            raise ConfigurationError(f"{origin}: token_url is set without client_id: set both")
        if client_secret is None and refresh_token is None:
            state = " (which is empty)" if f"{PREFIX}CLIENT_SECRET" in self.variables else ""
            raise ConfigurationError(
                f"{origin}: token_url is set without a credential: set client_secret_file in the settings file, or "
                f"{PREFIX}CLIENT_SECRET{state}. For an earlier consent of a user, set refresh_token_file"
            )
        from directsuite.oauth import grants

        grant: ClientCredentials | RefreshToken
        if refresh_token is None:
            grant = grants.ClientCredentials(token_url, client_id, cast("Secret", client_secret), scope)
        else:
            save = self._make_refresh_token_saver()
            grant = grants.RefreshToken(token_url, client_id, client_secret, refresh_token, scope, on_rotated=save)
        try:
            grants.validate_grant(grant, allow_insecure_http=allow_insecure_http)
        except ConfigurationError as error:
            problem = error.explanation.removeprefix("the grant's ")
        else:
            return grant
        raise ConfigurationError(f"{self.find_origin(problem.partition(' ')[0])}: {problem}")

    def find_origin(self, name: str) -> str:
        """Return where a setting or secret is from, for errors. If it is not set, return its variable."""
        found = (self[each].origin for each in (name, f"{name}_file") if each in self)
        return next(found, f"{PREFIX}{name.upper()}")

    def find_empty_variables(self) -> list[str]:
        """Return the names of the variables that are set but empty, which count as not set."""
        return [name for name, value in self.variables.items() if name.startswith(PREFIX) and not value]

    def _make_refresh_token_saver(self) -> Callable[[Secret], Awaitable[None]] | None:
        """Return a function that replaces the file of the refresh token, or None if the token is not from a file.

        Raises ConfigurationError if the file cannot be replaced.
        """
        path = self.get_path("refresh_token_file")
        if path is None or not path.is_file() or "refresh_token" in self:
            return None
        place = path.resolve()
        if (problem := _find_replacement_problem(place)) is not None:
            raise ConfigurationError(
                f"{self['refresh_token_file'].origin}: refresh_token_file can't be replaced, because {problem}. If the "
                "server replaces the refresh token, the new one would be lost: move the file into a folder in which "
                f"this user may create files, or, if the server never does this, set {PREFIX}REFRESH_TOKEN instead"
            )
        return lambda token: run_in_thread(_replace_secret_file, place, token)

    def make_tls_context(self) -> ssl.SSLContext | None:
        """Return a TLS context with `ca_bundle` and `client_certificate`, or None if neither is set.

        Raises ConfigurationError if a file cannot be used, or `client_key` is set without `client_certificate`.
        """
        bundle, certificate, key = (self.get_path(name) for name in CERTIFICATES)
        if key is not None and certificate is None:
            raise ConfigurationError(
                f"{self['client_key'].origin}: client_key is set without client_certificate: set both, or neither"
            )
        name = "ca_bundle"
        try:
            context = None if bundle is None else ssl.create_default_context(cafile=bundle)
            if certificate is not None:
                name = "client_certificate"
                context = context or ssl.create_default_context()
                # Without a password argument, OpenSSL would prompt for the password of an encrypted key.
                context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:
            what = (
                "not valid PEM, or an encrypted key"
                if isinstance(error, (ssl.SSLError, ValueError))
                else explain_os_error(error)
            )
            raise ConfigurationError(f"{self[name].origin}: {name} can't be read ({what}): give another file") from None
        return context


def _validate_line_end(entry: SettingEntry) -> None:
    if entry.is_variable and entry.value.endswith(("\n", "\r")):
        raise ConfigurationError(f"{entry.origin} ends with a line break, which is not part of the value: remove it")


def _read_variables(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the variables of the package, and those of the home folder."""
    if environ is not None and not isinstance(cast("object", environ), Mapping):
        raise ConfigurationError("environ must be a mapping of names to strings, such as os.environ")
    variables = os.environ if environ is None else environ
    names = [name for name in variables if name.startswith(PREFIX) or name in _HOME_VARIABLES]
    for name in names:
        if not isinstance(cast("object", variables[name]), str):
            raise ConfigurationError(f"{name} must be a string")
    return {name: variables[name] for name in names}


def _find_settings_file(variables: Mapping[str, str]) -> Path | None:
    if named := variables.get(f"{PREFIX}CONFIG"):
        return _to_path(named, f"{PREFIX}CONFIG")
    home = variables.get("HOME") or variables.get("USERPROFILE")
    folder = variables.get("XDG_CONFIG_HOME") or (os.path.join(home, ".config") if home else "")  # noqa: PTH118
    path = os.path.join(folder, "directsuite", "config.toml")  # noqa: PTH118
    return Path(path) if folder and os.path.isfile(path) else None  # noqa: PTH113  Path.is_file raises for some names


def _to_path(path: str | PathLike[str], name: str) -> Path:
    problem = find_path_problem(path)
    if problem is not None:
        raise ConfigurationError(f"{name}: {problem}")
    return Path(path)


def _read_toml(path: Path) -> tuple[dict[str, Any], dict[tuple[str, str], int]]:
    """Return the settings of a file, and the known line numbers, by table and name."""
    import tomllib  # imported only if needed: most programs have no settings file

    try:
        with path.open("rb") as file:
            text = _read_limited(file, MAX_SETTINGS_BYTES, f"settings file {path}").decode()
        return tomllib.loads(text), _find_line_numbers(text)
    except FileNotFoundError:
        reason = "it does not exist: give another file, or create it"
    # The error is not chained, because its text quotes the file. A path with a null byte also raises ValueError.
    except (ValueError, RecursionError) as error:
        reason = explain_syntax_error(error, "TOML")
    except OSError as error:
        reason = f"it can't be read ({explain_os_error(error)}): give another file"
    raise ConfigurationError(f"settings file {path}: {reason}")


_SYNTAX_ERROR = re.compile(
    r"(?P<reason>.*?)(?: at)?(?: \(at |: )(?P<place>end of document|line \d+,? column \d+)(?: \(char \d+)?\)?"
)
_REASON_WITHOUT_CONTENT = re.compile(r"""(?:[A-Za-z /-]|'[][{}=,.:]+'|"[][{}=,.:]+")*""")  # of tomllib and json


def explain_syntax_error(error: Exception, language: Literal["JSON", "TOML"]) -> str:
    """Return the explanation of a parser's error, with the place, and the reason up to what it quotes from the file."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    found = _SYNTAX_ERROR.fullmatch(str(error))
    if found is None:
        return f"it is not valid {language}"
    reason = cast("re.Match[str]", _REASON_WITHOUT_CONTENT.match(found["reason"]))[0]
    shown = f"{reason.lower()}{'' if reason == found['reason'] else '…'}"
    hint = "; texts must be in quotes, and true and false in lower case" if reason == "Invalid value" else ""
    return f"it is not valid {language} ({found['place']}: {shown}{hint})"


def _read_limited(file: BinaryIO, limit: int, name: str) -> bytes:
    content = file.read(limit + 1)
    if len(content) > limit:
        raise ConfigurationError(f"{name} has more than {limit:,} bytes: give another file")
    return content


def _find_line_numbers(text: str) -> dict[tuple[str, str], int]:
    lines, table = dict[tuple[str, str], int](), ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = "".join(header[1].replace('"', "").split())
        elif name := re.match(r"\s*\"?([A-Za-z0-9_-]+)\"?\s*=", line):
            lines.setdefault((table, name[1]), number)
    return lines


@scrub_traceback
def read_private_file(path: Path, name: str, *, is_path_shown: bool = False) -> bytes:
    """Return the content of a file that only its owner and group may access.

    name: describes the file in the error's text. is_path_shown: True if the text may contain the path.

    Raises ConfigurationError if the file cannot be read, is larger than MAX_SECRETS_BYTES, or is accessible to other
    users. The permissions are not checked on Windows.
    """
    try:
        with path.open("rb") as file:
            if sys.platform != "win32" and os.fstat(file.fileno()).st_mode & stat.S_IRWXO:
                import shlex  # imported only for this error

                command = f"run `chmod o= {shlex.quote(str(path))}`" if is_path_shown else "run `chmod o=` on it"
                raise ConfigurationError(f"{name} is accessible to other users: {command}")
            return _read_limited(file, MAX_SECRETS_BYTES, name)
    except (OSError, ValueError) as error:
        reason = explain_os_error(error) if isinstance(error, OSError) else "its path is not valid"
    raise ConfigurationError(f"{name} can't be read ({reason}): give another file")


@scrub_traceback
def read_secret_file(path: Path, name: str) -> Secret:
    """Return the secret in a file.

    Raises ConfigurationError as `read_private_file` does, and if the file is empty, has several lines, or is not UTF-8.
    """
    content = read_private_file(path, name, is_path_shown=True)
    text, problem = "", "is not text in UTF-8"
    with contextlib.suppress(UnicodeDecodeError):
        text = content.decode("utf-8-sig").rstrip("\r\n")
        problem = "has several lines" if text else "is empty"
    if not text or "\n" in text:
        raise ConfigurationError(f"{name} {problem}: it must contain only the secret, on one line")
    return Secret(text)


def _find_replacement_problem(path: Path) -> str | None:
    """Return why `_replace_secret_file` would fail, as far as that is known in advance, or None."""
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return "this user may not create files in its folder"
    # Containers often mount single files with secrets. The kernel does not rename another file to such a name.
    with contextlib.suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        quoted = re.sub(r"[\s\\]", lambda found: f"\\{ord(found[0]):03o}", str(path))  # as proc(5) describes
        if any(mount.split(" ")[4] == quoted for mount in mounts):
            return "it is mounted as a single file"
    return None


def _replace_secret_file(path: Path, secret: Secret) -> None:
    """Write a secret into a new file with the same access rights, which then replaces the existing file."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.new")
    with replace_file(path, temporary=temporary, synced=True) as file:
        if sys.platform != "win32":
            with contextlib.suppress(FileNotFoundError):  # it was removed: only the owner may read the new file
                _copy_access_rights(path.stat(), file.fileno())
        file.write(secret.reveal().encode() + b"\n")
    sync_folder(path.parent)


def _copy_access_rights(status: os.stat_result, descriptor: int) -> None:
    """Give a new file the owner, group and mode of another one. If its group can't be set, deny access to all groups.

    The group of a new file is otherwise that of this process, which may have other members.
    """
    mode = stat.S_IMODE(status.st_mode)
    for owner in (status.st_uid, -1):  # only root can set the owner
        with contextlib.suppress(OSError):
            os.fchown(descriptor, owner, status.st_gid)
            break
    else:
        mode &= ~stat.S_IRWXG
    os.fchmod(descriptor, mode)
