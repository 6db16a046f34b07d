"""What is set, what isn't, and what is set wrongly."""

from __future__ import annotations

from importlib.metadata import requires

import pytest

from directsuite.cli import doctor_checks, process
from directsuite.sandbox.server import Sandbox
from tests.cli.doctor.conftest import Machine, server
from tests.integration.world import ALICE, PASSWORD

SECRET = "hunter-2-of-nobody"


async def test_where_nothing_is_set_it_says_what_to_set(machine: Machine) -> None:
    told = await machine.doctor()
    assert told.status == 1
    result, said = told.checks["this machine", "settings"]
    assert result == "failed"
    assert said.startswith("no service has a URL: set DIRECTSUITE_MESSAGE_URL, or the same with SIGNING, FAX")
    assert told.checks["fax", "URL"] == (
        "not checked",
        "there is no URL; if you use this service, set DIRECTSUITE_FAX_URL, or fax_url in the settings file",
    )


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mail.example.org", "has to be a URL that starts with https://"),
        (
            "http://mail.example.org",
            "would send secrets in clear: use https://, or set allow_insecure_http = true in the settings file",
        ),
        (f"https://nurse:{SECRET}@mail.example.org", "must not hold credentials"),
    ],
    ids=["no scheme", "in clear", "with a password"],
)
async def test_a_wrong_url_is_told_without_showing_it_and_others_are_checked(
    machine: Machine, url: str, sentence: str
) -> None:
    async with server() as right:
        machine.set("DIRECTSUITE_REGISTRATION_URL", right)
        machine.set("DIRECTSUITE_MESSAGE_URL", url)
        told = await machine.doctor()
    assert told.status == 1
    result, said = told.checks["messaging", "URL"]
    assert result == "failed"
    assert said.startswith(f"DIRECTSUITE_MESSAGE_URL, or message_url in the settings file, {sentence}")
    assert told.results("registration")["answer"] == "ok"
    assert SECRET not in told.out + told.err


async def test_wrong_urls_of_the_file_are_told_each(machine: Machine) -> None:
    (machine.folder / "suite.toml").write_text('fax_url = "fax"\nsigning_url = "sign"\n')
    machine.set("DIRECTSUITE_CONFIG", "suite.toml")
    told = await machine.doctor()
    assert (told.results("fax"), told.results("signing")) == ({"URL": "failed"}, {"URL": "failed"})
    assert told.results("this machine")["settings"] == "ok"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "settings file suite.toml: no such file"),
        ("timeout =", "settings file suite.toml: not TOML"),
        ('mesage_url = "https://mail.example.org"', "suite.toml, line 1: unknown setting mesage_url; known: "),
        ("timeout = 0", "suite.toml, line 1: timeout has to be more than 0: a finite number"),
    ],
    ids=["missing", "not TOML", "misspelt", "zero"],
)
async def test_a_wrong_settings_file_is_told(machine: Machine, text: str | None, sentence: str) -> None:
    if text is not None:
        (machine.folder / "suite.toml").write_text(text)
    machine.set("DIRECTSUITE_CONFIG", "suite.toml")
    told = await machine.doctor()
    result, said = told.checks["this machine", "settings"]
    assert (told.status, result) == (1, "failed")
    assert said.startswith(sentence)


async def test_without_its_settings_file_the_urls_of_variables_are_checked(machine: Machine) -> None:
    machine.set("DIRECTSUITE_CONFIG", "suite.toml")
    machine.set("DIRECTSUITE_MAILBOX_PASSWORD", SECRET)
    async with server() as url:
        machine.set("DIRECTSUITE_REGISTRATION_URL", url)
        told = await machine.doctor("--mailbox", "nurse@direct.example.org")
    assert told.checks["this machine", "settings"] == ("failed", "settings file suite.toml: no such file")
    assert told.results("registration")["answer"] == "ok"
    unknown = ("not checked", "its URL may stand in the settings file: see to that one first")
    assert [told.checks[service, "URL"] for service in ("messaging", "fax", "signing")] == [unknown] * 3
    assert told.document["failed"] == 1


async def test_a_wrong_url_of_one_service_leaves_the_mailbox_of_another_alone(
    machine: Machine, sandbox: Sandbox
) -> None:
    machine.set("DIRECTSUITE_MESSAGE_URL", sandbox.message_url)
    machine.set("DIRECTSUITE_FAX_URL", "fax")
    machine.set("DIRECTSUITE_MAILBOX_PASSWORD", PASSWORD)
    told = await machine.doctor("--mailbox", ALICE)
    assert told.results("fax") == {"URL": "failed"}
    assert told.results("messaging")["mailbox"] == "ok"


async def test_secrets_that_are_not_given_are_not_checked_and_it_says_how_to_give_them(machine: Machine) -> None:
    async with server() as url:
        for service in ("SIGNING", "FAX", "MESSAGE", "REGISTRATION"):
            machine.set(f"DIRECTSUITE_{service}_URL", url)
        told = await machine.doctor()
    token = ("not checked", "there is no token: set DIRECTSUITE_TOKEN, or give --token-file FILE")
    assert told.checks["signing", "token"] == told.checks["fax", "token"] == token
    assert told.checks["messaging", "mailbox"] == ("not checked", "no mailbox is named: give --mailbox ADDRESS")
    assert told.checks["registration", "login"][1].startswith("there is no login: set DIRECTSUITE_LOGIN_USERNAME")
    assert told.status == 0


async def test_secrets_that_are_given_wrongly_are_told(machine: Machine) -> None:
    open_to_all = machine.folder / "token"
    open_to_all.write_text(SECRET)
    open_to_all.chmod(0o644)
    async with server() as url:
        for service in ("SIGNING", "MESSAGE", "REGISTRATION"):
            machine.set(f"DIRECTSUITE_{service}_URL", url)
        told = await machine.doctor(
            "--token-file", "token", "--mailbox", "nobody", "--login", "desk", "--login-password-file", "missing"
        )
    assert told.status == 1
    result, said = told.checks["signing", "token"]
    assert result == "failed"
    assert said.startswith("others may read ")
    assert told.checks["messaging", "mailbox"][1].startswith("--mailbox is no address")
    assert told.checks["registration", "login"][0] == "failed"
    assert SECRET not in told.out + told.err


async def test_a_mailbox_without_the_service_s_url_is_told(machine: Machine) -> None:
    machine.set("DIRECTSUITE_MAILBOX_PASSWORD", SECRET)
    async with server() as url:
        machine.set("DIRECTSUITE_FAX_URL", url)
        told = await machine.doctor("--mailbox", "nurse@direct.example.org")
    assert told.checks["messaging", "URL"][0] == "failed"
    assert told.status == 1


async def test_variables_of_certificates_and_proxies_are_looked_at(machine: Machine) -> None:
    machine.set("DIRECTSUITE_MESSAGE_URL", "https://127.0.0.1:1")
    machine.set("HTTPS_PROXY", f"http://me:{SECRET}@proxy.example.org:3128")
    machine.set("SSL_CERT_FILE", "nowhere.pem")
    told = await machine.doctor()
    assert told.checks["this machine", "trusted certificates"] == (
        "failed",
        "SSL_CERT_FILE names what isn't there, so that no certificate is trusted: correct or unset it",
    )
    result, said = told.checks["this machine", "proxy variables"]
    assert result == "warning"
    assert said.startswith("HTTPS_PROXY is not looked at")
    assert SECRET not in told.out + told.err
    (machine.folder / "nowhere.pem").write_text("no certificate")
    told = await machine.doctor()
    assert told.checks["this machine", "trusted certificates"][1].startswith("the file of SSL_CERT_FILE holds no")


async def test_an_extra_that_is_there_in_part_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_checks, "EXTRAS", {"storage": ("attrs", "no_such_library")})
    told = await machine.doctor()
    assert told.checks["this machine", "extras"] == (
        "warning",
        "installed: none; storage lacks no_such_library: pip install 'directsuite[storage]'",
    )
    assert "directsuite " in told.checks["this machine", "versions"][1]


def test_every_extra_and_each_of_its_libraries_is_looked_for() -> None:
    libraries: dict[str, set[str]] = {}
    for requirement in requires("directsuite") or ():
        library, _, extra = requirement.partition("; extra == ")
        if extra and not library.startswith(("directsuite", "tzdata")):
            libraries.setdefault(extra.strip("'\""), set()).add(library)
    del libraries["dev"], libraries["all"]
    for extra in ("hsm", "testing"):  # who has the sandbox without the other half lacks nothing
        libraries[extra] -= libraries["sandbox"]
    assert {extra: len(modules) for extra, modules in process.EXTRAS.items()} == {
        extra: len(named) for extra, named in libraries.items()
    }
