"""Arguments of DirectSuite, before any request."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.config_file import Configuration
from directsuite.core.operation import Service
from directsuite.settings import SettingsOptions
from tests.core import responses
from tests.core.scripted_server import ScriptedServer

ENVIRON = {
    "DIRECTSUITE_SIGNING_URL": "https://signing.example.test/",
    "DIRECTSUITE_FAX_URL": "https://fax.example.test",
    "DIRECTSUITE_MESSAGE_URL": "https://mail.example.test/message-rest/api/message",
    "DIRECTSUITE_REGISTRATION_URL": "https://mail.example.test/DirectRegistrationRESTful/rest/Patient",
    "DIRECTSUITE_TOKEN": "a-token",
    "DIRECTSUITE_LOGIN_USERNAME": "reseller",
    "DIRECTSUITE_LOGIN_PASSWORD": "a-password",
}


def test_environment_gives_urls_token_and_login() -> None:
    suite = ds.DirectSuite.from_env(ENVIRON)
    urls = {str(service): endpoint.base_url for service, endpoint in suite._transport._endpoints.items()}
    variables = {"signing": "SIGNING", "fax": "FAX", "messaging": "MESSAGE", "registration": "REGISTRATION"}
    assert urls == {name: ENVIRON[f"DIRECTSUITE_{part}_URL"].rstrip("/") for name, part in variables.items()}
    assert len(suite._caches) == 2


@pytest.mark.parametrize("missing", ["DIRECTSUITE_LOGIN_USERNAME", "DIRECTSUITE_LOGIN_PASSWORD"])
def test_half_a_login_is_rejected(missing: str) -> None:
    with pytest.raises(ds.ConfigurationError, match="both"):
        ds.DirectSuite.from_env({name: text for name, text in ENVIRON.items() if name != missing})


def test_variables_that_are_set_but_empty_are_named() -> None:
    environ = {"DIRECTSUITE_TOKEN": "", "DIRECTSUITE_TOKEN_URL": "", "DIRECTSUITE_FAX_URL": ""}
    with pytest.raises(ds.ConfigurationError) as caught:
        ds.DirectSuite.from_env(environ, require=["fax"])
    assert "or DIRECTSUITE_FAX_URL (which is empty);" in str(caught.value)
    assert "set DIRECTSUITE_TOKEN (which is empty), or set DIRECTSUITE" in str(caught.value)
    assert str(caught.value).count("(which is empty)") == 3


@pytest.mark.parametrize("origin", ["DIRECTSUITE_TOKEN", "token=... of the suite"])
def test_malformed_token_is_named_with_its_origin(origin: str) -> None:
    token = "two\nlines" if origin.startswith("token=") else None
    words = f"^{re.escape(origin)}: the token contains a line break: remove it$"
    with pytest.raises(ds.ConfigurationError, match=words):
        ds.DirectSuite.from_env({"DIRECTSUITE_TOKEN": "two\nlines"}, token=token)


SERVICES: list[Any] = ["signing", "fax", "message", "registration"]


@pytest.mark.parametrize(
    ("service", "missing", "named"),
    [
        *(
            (service, f"DIRECTSUITE_{service.upper()}_URL", f"DIRECTSUITE_{service.upper()}_URL")
            for service in SERVICES
        ),
        ("signing", "DIRECTSUITE_TOKEN", "DIRECTSUITE_TOKEN"),
        ("fax", "DIRECTSUITE_TOKEN", "DIRECTSUITE_TOKEN"),
        ("registration", "DIRECTSUITE_LOGIN", "DIRECTSUITE_LOGIN_USERNAME and DIRECTSUITE_LOGIN_PASSWORD"),
    ],
)
def test_what_a_required_service_lacks_is_named_immediately(service: Any, missing: str, named: str) -> None:
    environ = {name: text for name, text in ENVIRON.items() if not name.startswith(missing)}
    with pytest.raises(ds.ConfigurationError, match=rf"{named}($|, or set DIRECTSUITE_TOKEN_URL| \(read by)"):
        ds.DirectSuite.from_env(environ, require=[service])
    others = {"signing", "fax"} if missing == "DIRECTSUITE_TOKEN" else {service}
    ds.DirectSuite.from_env(environ, require=[each for each in SERVICES if each not in others])


def test_all_that_required_services_lack_is_named_in_one_error() -> None:
    with pytest.raises(ds.ConfigurationError) as caught:
        ds.DirectSuite.from_env({}, require=SERVICES)
    names = re.findall(r"DIRECTSUITE_\w+", str(caught.value))
    oauth = {"DIRECTSUITE_TOKEN_URL", "DIRECTSUITE_CLIENT_ID", "DIRECTSUITE_CLIENT_SECRET"}
    assert set(names) == ENVIRON.keys() | oauth
    assert len(names) == len(ENVIRON) + len(oauth)


async def test_call_names_url_and_token_in_one_error() -> None:
    async with ds.DirectSuite.from_env({}) as suite:
        words = r"^GetDoc needs .*DIRECTSUITE_SIGNING_URL; and a token: .*_TOKEN, "
        with pytest.raises(ds.ConfigurationError, match=words):
            await suite.signing.get_doc("d")


async def test_token_and_login_in_code_replace_those_of_the_environment() -> None:
    async def read_token() -> str:
        return "from-the-function"

    async with ScriptedServer(responses.respond({})) as server:
        environ = ENVIRON | {"DIRECTSUITE_SIGNING_URL": server.url("signing"), "DIRECTSUITE_TOKEN_FILE": "missing"}
        del environ["DIRECTSUITE_LOGIN_USERNAME"]  # a password without it is an error, unless it is not used
        del environ["DIRECTSUITE_TOKEN"]
        suite = ds.DirectSuite.from_env(environ, token=read_token, login=ds.Login("me", "secret"), require=SERVICES)
        async with suite:
            await suite.signing.delete("d")
    assert server.requests[0].headers["authorization"] == "Bearer from-the-function"


@pytest.mark.parametrize("require", [["sining"], ["messaging"], ["oauth"], [5], [["signing"]], 5, "signing"])
def test_requiring_a_service_that_there_is_not_is_rejected(require: Any) -> None:
    with pytest.raises(ds.ConfigurationError, match=r"^require must be some of signing, fax"):
        ds.DirectSuite.from_env(ENVIRON, require=require)


class Source:
    """A token source, as an object."""

    renewable = False

    async def fetch(self) -> ds.AccessToken:
        raise NotImplementedError


ODD_ARGUMENTS: list[tuple[str, object]] = [
    *(("settings", value) for value in ("", {}, 0, False, {"signing_url": "Zaphod"}, ds.Settings)),
    *(("token", value) for value in (b"Zaphod", 5, False, ["Zaphod"], Source, len, lambda: "Zaphod")),
    *(("login", value) for value in (0, "", ds.Login, "Zaphod", ("reseller", "Zaphod"), {"password": "Zaphod"})),
    ("login", ds.UserPassword("reseller", "Zaphod")),
    *(("listeners", value) for value in (5, print, ["Zaphod"], [None])),
    *(("clock", value) for value in (5, "", False, object(), ds.Settings)),
    *(("shared_limits", value) for value in (5, "Zaphod", False, object())),
]


@pytest.mark.parametrize(("name", "value"), ODD_ARGUMENTS)
def test_argument_that_is_none_is_rejected_and_shown_nowhere(name: str, value: object) -> None:
    odd: dict[str, Any] = {name: value}
    with pytest.raises(ds.ConfigurationError, match=f"^({name}|a listener) ") as caught:
        ds.DirectSuite(**odd)
    frames = [line.frame.f_locals for line in caught.traceback if line.path != Path(__file__)]
    assert "Zaphod" not in f"{caught.value!r} {frames!r}"
    assert caught.value.__context__ is None


async def test_suite_and_facades_tell_their_services_and_whether_they_are_open() -> None:
    suite = ds.DirectSuite(ds.Settings(message_url="https://mail.example.test/api"))
    assert repr(suite) == "<DirectSuite of messaging: not open>"
    async with suite:
        assert repr(suite.mailbox("zaphod@x.test", "Zaphod1")) == "<Mailbox of a suite that is open>"
    assert repr(suite) == "<DirectSuite of messaging: closed>"
    assert repr(ds.DirectSuite()) == "<DirectSuite of no services: not open>"


@pytest.mark.process
def test_suite_that_is_never_opened_leaves_no_complaint(tmp_path: Path) -> None:
    script = "import directsuite as ds; ds.DirectSuite(token='t', login=ds.Login('u', 'p')).mailbox('a@b.test', 'p')"
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", script]
    reported = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, cwd=tmp_path)
    assert reported.stderr == ""


def test_options_replace_single_settings_and_keep_token_and_login() -> None:
    converter, retry = ds.make_converter(), ds.RetryPolicy.none()
    environ = {**ENVIRON, "DIRECTSUITE_TIMEOUT": "wrong", "DIRECTSUITE_RETRY_ATTEMPTS": "wrong"}
    options: dict[str, Any] = {"timeout": 5, "retry": retry, "converter": converter}
    suite = ds.DirectSuite.from_env(environ, require=SERVICES, fax_url="https://other.example.test", **options)
    transport = suite._transport
    assert (transport.environment.timeout, transport._retry) == (5, retry)
    assert transport._endpoints[Service.FAX].base_url == "https://other.example.test"
    assert transport._endpoints[Service.SIGNING].base_url == "https://signing.example.test"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"timeout": 0}, "^timeout must be a finite number"),
        ({"signing_url": "http://example.test"}, "^signing_url would send secrets unencrypted"),
        ({"retry": 5}, "^retry must be a RetryPolicy"),
    ],
)
def test_invalid_option_is_rejected_without_naming_a_variable(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ds.ConfigurationError, match=sentence):
        ds.DirectSuite.from_env({**ENVIRON, "DIRECTSUITE_TIMEOUT": "9"}, **options)


def test_options_are_the_parameters_of_settings() -> None:
    fields = {field.name: field.type for field in attrs.fields(ds.Settings)}
    assert {name: each.__forward_arg__ for name, each in SettingsOptions.__annotations__.items()} == fields


@pytest.mark.parametrize(
    ("service", "named"), [("signing", "DIRECTSUITE_TOKEN"), ("registration", "DIRECTSUITE_LOGIN")]
)
def test_missing_credential_error_explains_that_settings_contain_none(service: Any, named: str) -> None:
    with pytest.raises(ds.ConfigurationError, match=rf"{named}.* \(read by .* not by Settings"):
        ds.DirectSuite(ds.Settings.from_env(ENVIRON))._transport.require_services([Service(service)])


async def test_view_of_a_suite_has_its_options_in_all_facades() -> None:
    async with ds.DirectSuite.from_env(ENVIRON) as suite:
        view = suite.with_options(timeout=5).with_options(retry=ds.RetryPolicy.none()).with_options()
        for each, timeout in ((view, 5), (suite, 60)):
            facades = [each.signing, each.fax, each.registration]
            facades += [each.mailbox("a@b.test", "p"), each.tuser("u", "p", "a@b.test")]
            assert {facade.resolve_timeout() for facade in facades} == {timeout}
        assert view.mailbox("a@b.test", "p")._options.retry == ds.RetryPolicy.none()
        with pytest.raises(ds.InvalidArgumentError, match=r"^timeout"):
            suite.with_options(timeout=0)
    assert repr(view).endswith("closed>")


OAUTH = {
    "DIRECTSUITE_TOKEN_URL": "https://login.example.test/token",
    "DIRECTSUITE_CLIENT_ID": "client",
    "DIRECTSUITE_CLIENT_SECRET": "Zaphod",
    "DIRECTSUITE_SCOPE": "pdf fax",
}


def test_grant_is_read_from_the_configuration(tmp_path: Path) -> None:
    credentials = ds.ClientCredentials("https://login.example.test/token", "client", "Zaphod", "pdf fax")
    assert Configuration.read(OAUTH).read_grant() == credentials
    (tmp_path / "refresh").write_text("Trillian\n")
    (tmp_path / "refresh").chmod(0o600)
    (tmp_path / "config.toml").write_text(
        'token_url = "https://login.example.test/token"\nclient_id = "client"\nrefresh_token_file = "refresh"\n'
    )
    grant = Configuration.from_file(tmp_path / "config.toml").read_grant()
    assert isinstance(grant, ds.RefreshToken)
    assert grant.client_secret is None
    assert grant.refresh_token == ds.Secret("Trillian")
    ds.DirectSuite.from_env({**OAUTH, "DIRECTSUITE_SIGNING_URL": "https://signing.example.test"}, require=["signing"])


_TOKEN, _CLIENT = 'token_file = "token"\n', 'token_url = "https://login.example.test/token"\nclient_id = "client"\n'
_PROFILE = "[profiles.test]\n"


@pytest.mark.parametrize(
    ("file", "variables", "expected"),
    [
        (_CLIENT, {"TOKEN": "Trillian"}, "token"),
        (_TOKEN, {name.removeprefix("DIRECTSUITE_"): text for name, text in OAUTH.items()}, "client"),
        (_TOKEN + _PROFILE + _CLIENT, {}, "client"),
        (_CLIENT + _PROFILE + _TOKEN, {}, "token"),
        (_TOKEN + _CLIENT + _PROFILE, {}, "config.toml, line 1 sets a token, and FILE, line 2 sets the token_url"),
        (_PROFILE + _CLIENT + _TOKEN, {}, "config.toml, line 4 sets a token, and FILE, line 2 sets the token_url"),
        (
            _PROFILE,
            {"TOKEN": "Trillian", "TOKEN_URL": "https://login.example.test/token"},
            "DIRECTSUITE_TOKEN sets a token, and DIRECTSUITE_TOKEN_URL sets the token_url",
        ),
    ],
)
def test_token_and_oauth_client_of_one_source_are_an_error(
    tmp_path: Path, file: str, variables: dict[str, str], expected: str
) -> None:
    (tmp_path / "token").write_text("Zaphod")
    (tmp_path / "token").chmod(0o600)
    path = tmp_path / "config.toml"
    path.write_text(file)
    environ = {"DIRECTSUITE_CLIENT_SECRET": "Zaphod", "DIRECTSUITE_CONFIG": str(path), "DIRECTSUITE_PROFILE": "test"}
    if _PROFILE not in file:
        path.write_text(file + _PROFILE)
    environ |= {f"DIRECTSUITE_{name}": text for name, text in variables.items()}
    configuration = Configuration.read(environ)
    if expected in ("token", "client"):
        assert isinstance(configuration.read_token(), ds.Secret) is (expected == "token")
        return
    with pytest.raises(ds.ConfigurationError) as caught:
        ds.DirectSuite.from_env(environ)
    assert expected in str(caught.value).replace(f"and {path}", "and FILE")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"DIRECTSUITE_TOKEN_URL": ""}, "^DIRECTSUITE_CLIENT_ID: client_id is set without token_url: set both$"),
        (
            {"DIRECTSUITE_TOKEN_URL": "", "DIRECTSUITE_CLIENT_ID": ""},
            "^DIRECTSUITE_CLIENT_SECRET: client_secret is set without token_url: set both$",
        ),
        ({"DIRECTSUITE_CLIENT_ID": ""}, "^DIRECTSUITE_TOKEN_URL: token_url is set without client_id: set both$"),
        (
            {"DIRECTSUITE_CLIENT_SECRET": ""},
            r"^DIRECTSUITE_TOKEN_URL: .* without a credential: .*, or DIRECTSUITE_CLIENT_SECRET \(which is empty\)\.",
        ),
        ({"DIRECTSUITE_CLIENT_SECRET": " "}, "^DIRECTSUITE_CLIENT_SECRET: client_secret .* neither empty nor blank$"),
        ({"DIRECTSUITE_TOKEN_URL": "http://login.test"}, "^DIRECTSUITE_TOKEN_URL: token_url would send secrets"),
    ],
)
def test_incomplete_grant_is_rejected(changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(ds.ConfigurationError, match=sentence) as caught:
        ds.DirectSuite.from_env({**OAUTH, **changes})
    assert "Zaphod" not in str(caught.value)
