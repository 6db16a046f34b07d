"""Settings that are given, missing or invalid."""

from __future__ import annotations

from importlib.metadata import requires

import pytest
from aiohttp import web

import directsuite as ds
from directsuite.cli import credentials, process
from tests.cli.doctor.conftest import DoctorRunner

SECRET = "hunter-2-of-nobody"


async def test_where_nothing_is_set_it_says_what_to_set(cli: DoctorRunner) -> None:
    told = await cli.run_json()
    assert told.status == 1
    words = "No service has a URL. Set DIRECTSUITE_MESSAGE_URL, or the same with SIGNING, FAX"
    told.expect("this machine", "settings", "failed", words)
    words = "There is no URL. If you use this service, set DIRECTSUITE_FAX_URL."
    told.expect("fax", "connection", "not checked", words)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mail.example.org", "must be a URL that starts with https://"),
        ("http://mail.example.org", "would send secrets unencrypted: use https://, or set allow_insecure_http to true"),
        (f"https://nurse:{SECRET}@mail.example.org", "must not contain credentials"),
    ],
    ids=["no scheme", "in clear", "with a password"],
)
async def test_wrong_url_is_explained_without_showing_it(cli: DoctorRunner, url: str, sentence: str) -> None:
    cli.set_env("DIRECTSUITE_MESSAGE_URL", url)
    told = await cli.run_json()
    assert told.status == 1
    told.expect("this machine", "settings", "failed", f"DIRECTSUITE_MESSAGE_URL: message_url {sentence}")
    told.expect("fax", "connection", "not checked", "The settings are invalid: see the check of the settings.")
    assert told.get_results("messaging") == {"connection": "not checked"}
    assert SECRET not in told.out + told.err


async def test_variable_that_is_not_used_is_a_warning(cli: DoctorRunner) -> None:
    cli.set_env("DIRECTSUITE_TIMOUT", "7")
    told = await cli.run_json()
    words = "Nothing reads DIRECTSUITE_TIMOUT (did you mean DIRECTSUITE_TIMEOUT?). Correct the name or unset it."
    told.expect("this machine", "variables", "warning", words)


async def test_missing_secrets_are_skipped_with_instructions(cli: DoctorRunner) -> None:
    told = await cli.run_against(services=("SIGNING", "FAX", "MESSAGE", "REGISTRATION"))
    token = ("not checked", "There is no token. Set DIRECTSUITE_TOKEN, or give --token-file FILE.")
    assert told.checks["signing", "token"] == told.checks["fax", "token"] == token
    words = "No mailbox is named. Set DIRECTSUITE_MAILBOX, or give --mailbox ADDRESS."
    told.expect("messaging", "mailbox", "not checked", words)
    assert told.checks["registration", "login"][1].startswith("There is no login. Set DIRECTSUITE_LOGIN_USERNAME")
    assert told.status == 0


async def test_no_password_is_requested_for_a_service_without_a_url(cli: DoctorRunner) -> None:
    asked = list[str]()

    def type_secret(description: str, _: str) -> ds.Secret:
        asked.append(description)
        return ds.Secret(SECRET)

    cli.monkeypatch.setattr(credentials, "is_interactive", lambda: True)
    cli.monkeypatch.setattr(credentials, "ask_for_secret", type_secret)
    await cli.run_json("--mailbox", "nurse@direct.example.org", "--login", "front-runner")
    assert asked == []


async def test_secrets_that_are_given_wrongly_are_reported(cli: DoctorRunner) -> None:
    open_to_all = cli.folder / "token"
    open_to_all.write_text(SECRET)
    open_to_all.chmod(0o644)
    options = ("--token-file", "token", "--mailbox", "nobody", "--login", "runner", "--login-password-file", "missing")
    told = await cli.run_against(web.Response, *options, services=("SIGNING", "MESSAGE", "REGISTRATION"))
    assert told.status == 1
    told.expect("signing", "token", "failed", "the file of --token-file is accessible to other users")
    assert told.checks["messaging", "mailbox"][1].startswith("--mailbox is not an e-mail address")
    assert told.checks["registration", "login"][0] == "failed"
    assert SECRET not in told.out + told.err


async def test_ignored_proxy_variable_is_a_warning(cli: DoctorRunner) -> None:
    cli.set_env("HTTPS_PROXY", f"http://me:{SECRET}@proxy.example.org:3128")
    told = await cli.run_json()
    told.expect("this machine", "proxy variables", "warning", "HTTPS_PROXY is ignored.")
    assert SECRET not in told.out + told.err
    assert "directsuite " in told.checks["this machine", "versions"][1]


def test_each_library_of_the_extras_is_searched() -> None:
    libraries: dict[str, set[str]] = {}
    for requirement in requires("directsuite") or ():
        library, _, extra = requirement.partition("; extra == ")
        if not library.startswith(("directsuite", "tzdata")):
            libraries.setdefault(extra.strip("'\""), set()).add(library)
    assert {extra: len(modules) for extra, modules in process.EXTRAS.items()} == {
        extra: len(libraries[extra]) for extra in process.EXTRAS
    }
