"""The settings file, its profiles, and which source has precedence."""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

import directsuite as ds
from directsuite.config_file import CERTIFICATES, IDENTITY, SECRETS, Configuration, read_secret_file
from directsuite.settings import PLAIN_SETTINGS
from tests.core.certificates import LOOPBACK, make_certificate, make_server_context

FILE = """
timeout = 5
mailbox = "nurse@direct.example.test"
token_file = "secrets/token"

[profiles.test]
timeout = 7
message_url = "https://mail.example.test"
login_username = "reseller"
"""


def written(folder: Path, text: str = FILE) -> dict[str, str]:
    (folder / "config.toml").write_text(text)
    return {"DIRECTSUITE_CONFIG": str(folder / "config.toml")}


def test_file_in_the_home_folder_is_read_where_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "directsuite").mkdir()
    written(tmp_path / "directsuite")
    assert ds.Settings.from_env({"XDG_CONFIG_HOME": str(tmp_path)}).timeout == 5
    (tmp_path / ".config").mkdir()
    (tmp_path / "directsuite").rename(tmp_path / ".config" / "directsuite")
    assert ds.Settings.from_env({"HOME": str(tmp_path)}).timeout == 5
    assert ds.Settings.from_env({"HOME": str(tmp_path / "elsewhere")}).timeout == 60


def test_variable_overrides_profile_and_profile_overrides_file(tmp_path: Path) -> None:
    environ = written(tmp_path)
    assert ds.Settings.from_env(environ).timeout == 5
    assert ds.Settings.from_env(environ, profile="test").timeout == 7
    assert ds.Settings.from_toml(tmp_path / "config.toml", profile="test").message_url == "https://mail.example.test"
    environ["DIRECTSUITE_PROFILE"] = "test"
    assert ds.Settings.from_env(environ).timeout == 7
    environ["DIRECTSUITE_TIMEOUT"] = "9"
    assert ds.Settings.from_env(environ).timeout == 9
    assert Configuration.read(environ).get_text("mailbox") == "nurse@direct.example.test"


def test_no_frame_of_an_error_shows_a_secret() -> None:
    environ = {"DIRECTSUITE_TOKEN": "sentinel", "DIRECTSUITE_PROFILE": "unknown"}
    with pytest.raises(ds.ConfigurationError, match="unknown") as caught:
        Configuration.read(environ)
    for frame, _ in list(traceback.walk_tb(caught.value.__traceback__))[1:]:
        assert "sentinel" not in repr(frame.f_locals)
    del environ["DIRECTSUITE_PROFILE"]
    assert "sentinel" not in repr(dict(Configuration.read(environ)))


def test_variable_is_read_only_by_its_exact_name() -> None:
    environ = {"DIRECTSUITE_TOKEN": "upper", "DIRECTSUITE_token": "lower"}
    environ |= {"DIRECTSUITE_TIMEOUT": "5", "DIRECTSUITE_timeout": "9", "DIRECTSUITE_Settle": "1"}
    settings = ds.Settings.from_env(environ)
    assert (settings.timeout, settings.settle) == (5.0, ds.Settings().settle)
    assert Configuration.read(environ).read_secret("token") == ds.Secret("upper")
    del environ["DIRECTSUITE_TOKEN"]
    assert Configuration.read(environ).read_token() is None


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        (
            {"DIRECTSUITE_PROFILE": "tset"},
            "^DIRECTSUITE_PROFILE: there is no profile 'tset': .* has the profiles test; did you mean test",
        ),
        (
            {"DIRECTSUITE_PROFILE": "test", "DIRECTSUITE_CONFIG": ""},
            "profile 'test', because there is no settings file",
        ),
    ],
)
def test_profile_that_is_not_there_is_rejected(tmp_path: Path, environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(ds.ConfigurationError, match=sentence):
        ds.Settings.from_env(written(tmp_path) | environ)


@pytest.mark.parametrize(
    ("text", "explanation"),
    [
        ("a = Zaphod", "line 1, column 5: invalid value; texts must be in quotes, and true and false in lower case"),
        ('a = "Zaphod', "end of document: unterminated string"),
        ('a = "Zaphod\n', "line 1, column 12: illegal character …"),
        ("a = {Zaphod = 1, Zaphod = 2}", "line 1, column 28: duplicate inline table key …"),
        ("Zaphod", "end of document: expected '=' after a key in a key/value pair"),
    ],
)
def test_syntax_error_has_the_parsers_reason_without_the_content(tmp_path: Path, text: str, explanation: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ds.ConfigurationError) as caught:
        ds.Settings.from_toml(tmp_path / "config.toml")
    assert str(caught.value).endswith(f"it is not valid TOML ({explanation})")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("timeout = 5\n\ntimeout = !\n", "config.toml: it is not valid TOML (line 3, column 11: invalid value; "),
        ("# one\ntimeout = 0", "config.toml, line 2: timeout must be a finite number greater than 0"),
        ("[profiles.test]\n\nretry_attempts = 0", "config.toml, line 3: retry_attempts must be a whole number, 1 or"),
        ("[profiles.test]\ntimout = 0", "config.toml, line 2: unknown setting timout; did you mean timeout?"),
        ("colour = 5", "config.toml, line 1: unknown setting colour; known: allow_insecure_http, attempt_timeout, "),
        (
            "client_secret = 'Zaphod'",
            "config.toml, line 1: client_secret is a secret, which does not belong in the settings file: set "
            "client_secret_file to the path of a file that contains it, or set DIRECTSUITE_CLIENT_SECRET",
        ),
        ('profiles = "test"', "config.toml: profiles must be tables"),
        ("profiles.test = 5", "config.toml: profiles must be tables"),
        (
            "[profiles.test]\nclient_key = 'key.pem'",
            "config.toml, line 2: client_key is set without client_certificate",
        ),
        ("[profiles.test]\nca_bundle = 'none.pem'", "config.toml, line 2: ca_bundle can't be read ("),
        ("[profiles.test]\nca_bundle = 'config.toml'", "config.toml, line 2: ca_bundle can't be read (not valid PEM"),
        ("[profiles.test]\nca_bundle = 5", "config.toml, line 2: ca_bundle must be a non-empty string"),
    ],
)
def test_invalid_value_is_rejected_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ds.ConfigurationError) as caught:
        ds.Settings.from_env(written(tmp_path, text), profile="test" if "[profiles.test]" in text else None)
    assert sentence in str(caught.value)
    assert "Zaphod" not in str(caught.value)


def test_http_url_error_names_setting_that_allows_it(tmp_path: Path) -> None:
    url, in_code = "http://mail.example.test", "or set allow_insecure_http to true"
    with pytest.raises(ds.ConfigurationError, match=f"{in_code}, or DIRECTSUITE_ALLOW_INSECURE_HTTP=true$"):
        ds.Settings.from_env({"DIRECTSUITE_MESSAGE_URL": url})
    with pytest.raises(ds.ConfigurationError, match=f"{in_code}$"):
        ds.Settings.from_env(written(tmp_path, f'message_url = "{url}"'))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("timeout", "2.5", 2.5),
        ("max_connections", "7", 7),
        ("keep_alive", "1", True),
        ("allow_insecure_http", "FALSE", False),
        ("signing_url", "https://s.example.test", "https://s.example.test"),
    ],
)
def test_variable_gives_a_setting(name: str, text: str, value: object) -> None:
    assert getattr(ds.Settings.from_env({f"DIRECTSUITE_{name.upper()}": text}), name) == value
    assert ds.Settings.from_env({"DIRECTSUITE_RETRY_ATTEMPTS": "2"}).retry.attempts == 2


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("timeout", "Zaphod", "DIRECTSUITE_TIMEOUT: timeout must be a finite number greater than 0"),
        ("max_connections", "1.5", "DIRECTSUITE_MAX_CONNECTIONS: max_connections must be "),
        ("keep_alive", "Zaphod", "DIRECTSUITE_KEEP_ALIVE: keep_alive must be true or false"),
        ("retry_attempts", "no", "DIRECTSUITE_RETRY_ATTEMPTS: retry_attempts must be a whole number, 1 or more"),
    ],
)
def test_variable_that_cannot_be_right_is_rejected_by_its_name(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ds.ConfigurationError) as caught:
        ds.Settings.from_env({f"DIRECTSUITE_{name.upper()}": text})
    assert str(caught.value).startswith(sentence)
    assert "Zaphod" not in str(caught.value)


def write_token(folder: Path, mode: int) -> Path:
    """Write the file of FILE's token_file."""
    token = folder / "secrets" / "token"
    token.parent.mkdir()
    token.write_text("Zaphod\n")
    token.chmod(mode)
    return token


def test_secret_is_a_variable_or_is_in_a_file_beside_the_settings(tmp_path: Path) -> None:
    environ = written(tmp_path)
    write_token(tmp_path, 0o600)
    assert Configuration.read(environ).read_secret("token") == ds.Secret("Zaphod")
    assert Configuration.read(environ | {"DIRECTSUITE_TOKEN": "Trillian"}).read_secret("token") == ds.Secret("Trillian")
    assert Configuration.read({}).read_secret("token") is None
    assert isinstance(ds.DirectSuite.from_env(environ), ds.DirectSuite)
    assert "Zaphod" not in repr(Configuration.read(environ))


@pytest.mark.parametrize("name", [*SECRETS, "mailbox", "login_username", "client_id", "token_file"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_variable_may_not_end_with_a_line_break(name: str, end: str) -> None:
    variable = f"DIRECTSUITE_{name.upper()}"
    configuration = Configuration.read({variable: f"Zaphod{end}"})
    read = configuration.read_secret if name in SECRETS else configuration.get_text
    with pytest.raises(ds.ConfigurationError, match=f"^{variable} ends with a line break, .*: remove it$"):
        read(name)


def test_login_of_the_file_needs_its_password(tmp_path: Path) -> None:
    with pytest.raises(ds.ConfigurationError, match="login_password_file"):
        ds.DirectSuite.from_env(written(tmp_path), profile="test")


@pytest.mark.skipif(sys.platform == "win32", reason="modes are a matter of POSIX")
def test_file_of_a_secret_that_others_may_read_is_rejected(tmp_path: Path) -> None:
    environ, token = written(tmp_path), write_token(tmp_path, 0o644)
    with pytest.raises(ds.ConfigurationError, match=r"token_file of .* is accessible to other users") as caught:
        ds.DirectSuite.from_env(environ)
    assert str(caught.value).endswith(f": run `chmod o= {token}`")
    assert "Zaphod" not in str(caught.value)


_GROUP = 4711
"""A group that is not that of this process."""


def make_grant(folder: Path) -> tuple[ds.RefreshToken, Path]:
    """Return a grant with a refresh token from a file, and this file."""
    file = folder / "refresh.token"
    file.write_text("Zaphod\n")
    file.chmod(0o640)
    text = 'token_url = "https://login.example.test/token"\nclient_id = "me"\nrefresh_token_file = "refresh.token"\n'
    grant = Configuration.read(written(folder, text)).read_grant()
    assert isinstance(grant, ds.RefreshToken)
    return grant, file


async def rotate(grant: ds.RefreshToken) -> None:
    assert grant.on_rotated is not None
    saving: Any = grant.on_rotated(ds.Secret("Trillian"))
    await saving


@pytest.mark.skipif(sys.platform == "win32", reason="modes are a matter of POSIX")
@pytest.mark.parametrize(("is_member", "mode"), [(True, 0o640), (False, 0o600)])
async def test_new_refresh_token_is_not_readable_by_another_group(
    is_member: bool, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, real_stat = list[int](), Path.stat

    def read_status(path: Path, **options: bool) -> os.stat_result:
        values = list(real_stat(path, **options))
        values[5] = _GROUP if path.name == "refresh.token" else values[5]
        return os.stat_result(values)

    def change_owner(_: int, owner: int, group: int) -> None:
        if owner != -1 or not is_member:
            raise PermissionError
        groups.append(group)

    grant, file = make_grant(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", read_status)
        patch.setattr(os, "fchown", change_owner)
        await rotate(grant)
    assert file.read_text() == "Trillian\n"
    assert (stat.S_IMODE(file.stat().st_mode), groups) == (mode, [_GROUP] if is_member else [])


async def test_new_refresh_token_is_kept_if_its_file_was_removed(tmp_path: Path) -> None:
    grant, file = make_grant(tmp_path)
    file.unlink()
    await rotate(grant)
    assert read_secret_file(file, "the file") == ds.Secret("Trillian")
    assert sys.platform == "win32" or stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_bundle_is_trusted_and_the_certificate_shown(tmp_path: Path) -> None:
    pair = make_certificate(tmp_path)
    demanding = make_server_context(pair)
    demanding.verify_mode = ssl.CERT_REQUIRED
    demanding.load_verify_locations(pair[0])
    shown = list[object]()

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown.append(writer.get_extra_info("peercert")["subject"])
        writer.close()

    names = {"ca_bundle": pair[0], "client_certificate": pair[0], "client_key": pair[1]}
    tls = ds.Settings.from_env({f"DIRECTSUITE_{name.upper()}": str(path) for name, path in names.items()}).tls
    assert isinstance(tls, ssl.SSLContext)
    assert ds.Settings.from_env({}).tls is None
    async with await asyncio.start_server(note, LOOPBACK, 0, ssl=demanding) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=tls)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    assert shown == [((("commonName", "loopback"),),)]


def test_encrypted_key_is_rejected_and_nobody_is_asked(tmp_path: Path) -> None:
    public, private = make_certificate(tmp_path)
    key = serialization.load_pem_private_key(private.read_bytes(), None)
    sealed = serialization.BestAvailableEncryption(b"hunter2")
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealed))
    environ = {"DIRECTSUITE_CLIENT_CERTIFICATE": str(public), "DIRECTSUITE_CLIENT_KEY": str(private)}
    with pytest.raises(ds.ConfigurationError, match="DIRECTSUITE_CLIENT_CERTIFICATE: client_certificate can't be read"):
        ds.Settings.from_env(environ)


def test_no_setting_has_two_meanings() -> None:
    assert not set(PLAIN_SETTINGS) & (set(CERTIFICATES) | set(IDENTITY) | set(SECRETS))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no file without an end")
def test_file_without_an_end_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ds.ConfigurationError, match="settings file /dev/zero has more than 1,048,576 bytes"):
        Configuration.read({"DIRECTSUITE_CONFIG": "/dev/zero"})
    monkeypatch.setattr("directsuite.config_file.stat.S_IRWXO", 0)
    with pytest.raises(ds.ConfigurationError, match="the file has more than"):
        read_secret_file(Path("/dev/zero"), "the file")
