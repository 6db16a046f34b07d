"""`directsuite patient`: files with persons, confirmation of costs, and lost responses."""

from __future__ import annotations

import shlex

import pytest

from tests.cli.conftest import CliRunner, CommandRunner

DOMAIN = ("--domain", "direct.example.test")
ADDRESS = "ada@direct.example.test"
AS_JSON = '{"first_name": "Ada", "last_name": "Example", "ssn4": "1234", "dob": "1980-02-29"}'
ADA = """
first_name = "Ada"
last_name = "Example"
ssn4 = "1234"
dob = 1980-02-29
direct_username = "ada"
direct_password = "Correct-Horse-1"
"""
TWICE = (("twice.json", '{"ada": "a", "ada": "b"}'), ("cases.toml", 'ada = "a"\nAda = "b"'))


async def debits(runner: CliRunner) -> int:
    return len(await runner.sandbox.ledger("ProvisionIDProofedPatient"))


async def added(runner: CliRunner) -> None:
    result = await runner.run("patient", "add", runner.write_private_file("ada.toml", ADA), *DOMAIN, "--yes")
    assert result.status == 0, result.err


async def test_paid_operation_is_confirmed_and_reports_payment(cli: CliRunner) -> None:
    file = cli.write_private_file("ada.toml", ADA)
    for typed in ("", "n\n", "perhaps\n", "\n"):
        result = await cli.run("patient", "add", file, *DOMAIN, stdin=typed, is_terminal=True)
        assert (result.status, result.out) == (2, "")
        assert "Nothing was provisioned or debited" in result.err
    assert await debits(cli) == 0
    result = await cli.run("patient", "add", file, *DOMAIN, stdin="y\n", is_terminal=True)
    assert result.status == 0
    assert "debits the login's account" in result.err
    assert "Ada" not in result.err
    assert {ADDRESS, "Ada", "Example", "Order", "Amount"} <= set(result.out.split())
    assert await debits(cli) == 1


async def test_without_terminal_confirmation_needs_an_option(cli: CliRunner) -> None:
    file = cli.write_private_file("ada.toml", ADA)
    await cli.fail(2, "--yes", "patient", "add", file, *DOMAIN, stdin="y\n")
    result = await cli.run("patient", "add", file, *DOMAIN, "--yes", "--json")
    document = result.document
    assert next(iter(document["users"][0].items())) == ("direct_address", ADDRESS)
    assert document["users"][0]["username"] == "ada"
    assert document["payment_confirmation"]["amount"] > 0
    assert "Correct-Horse" not in result.out
    assert await debits(cli) == 1


async def test_lost_response_shows_who_is_there_and_has_a_status_separately(cli: CliRunner) -> None:
    cli.sandbox.inject_fault("ProvisionIDProofedPatient", "reset_after")
    result = await cli.run("patient", "add", cli.write_private_file("ada.toml", ADA), *DOMAIN, "--yes")
    assert result.status == 7
    assert ADDRESS in result.out.split()
    assert "`directsuite patient find`" in result.err
    assert "Example" not in result.err
    assert await debits(cli) == 1


async def test_person_who_has_an_address_gets_another_only_where_that_is_said(cli: CliRunner) -> None:
    await added(cli)
    unnamed = ADA.replace('direct_username = "ada"\n', "")
    again = ("patient", "add", cli.write_private_file("again.toml", unnamed), *DOMAIN, "--yes")
    result = await cli.run(*again)
    assert (result.status, ADDRESS in result.out.split()) == (1, True)
    assert "or debited: use that address. To provision another one, give --another" in result.err
    result = await cli.run(*again, "--json")
    assert (result.status, result.document["payment_confirmation"]) == (1, None)
    assert [user["direct_address"] for user in result.document["users"]] == [ADDRESS]
    assert await debits(cli) == 1
    assert (await cli.run(*again, "--another")).status == 0
    assert await debits(cli) == 2


async def test_nothing_is_provisioned_if_address_lookup_fails(cli: CliRunner) -> None:
    cli.sandbox.inject_fault("GetPatientAddressByMeta", "status", status=405)
    result = await cli.run("patient", "add", cli.write_private_file("ada.toml", ADA), *DOMAIN, "--yes")
    assert (result.status, result.out, await debits(cli)) == (5, "", 0)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("002", "check direct_username: it must be the part before the @"),
        ("014", "the user name may be in use"),
        ("205", "identity-proofed"),
        ("012", "check the individual's file"),
    ],
)
async def test_advice_for_a_rejection_is_that_of_its_code(cli: CliRunner, code: str, advice: str) -> None:
    cli.sandbox.inject_fault("ProvisionIDProofedPatient", "status", status=200, body={"success": False, "code": code})
    err = await cli.fail(5, advice, "patient", "add", cli.write_private_file("ada.toml", ADA), *DOMAIN, "--yes")
    assert ("username" in err) == (code in ("002", "014"))


@pytest.mark.parametrize("command", [("find", "ada.toml"), ("by-username", "ada"), ("add", "ada.toml", "--yes")])
async def test_domain_that_the_service_does_not_know_is_not_taken_for_nobody(
    cli: CliRunner, command: tuple[str, ...]
) -> None:
    cli.write_private_file("ada.toml", ADA)
    result = await cli.run("patient", *command, "--domain", "elsewhere.example.test")
    assert (result.status, result.out) == (2, "")
    assert result.err == (
        "directsuite: --domain: the service has no organization with this Direct domain. Check the spelling, or ask "
        "the service's provider for your domains.\n"
    )


async def test_files_of_people_and_passwords_may_come_from_stdin(cli: CliRunner) -> None:
    assert (await cli.run("patient", "add", "-", *DOMAIN, "--yes", stdin=ADA)).status == 0
    assert (await cli.run("patient", "find", "-", *DOMAIN, stdin=AS_JSON)).status == 0
    assert (await cli.run("patient", "passwords", "-", *DOMAIN, stdin='ada = "Correct-Horse-2"')).status == 0


async def test_patient_is_found_by_who_that_is_and_by_username(cli: CliRunner) -> None:
    await added(cli)
    for arguments in (("find", "ada.toml"), ("by-username", "ada")):
        result = await cli.run("patient", *arguments, *DOMAIN, "--json")
        assert (result.status, [each["direct_address"] for each in result.document]) == (0, [ADDRESS])
    result = await cli.run("patient", "by-username", "-", *DOMAIN, stdin="ada\n")
    titles, patient = result.out.splitlines()
    assert (result.status, titles.split()[:2], patient.split()[0]) == (0, ["Direct", "address"], ADDRESS)
    assert "activated" in patient
    assert (await cli.run("patient", "find", cli.write_private_file("ada.json", AS_JSON), *DOMAIN)).status == 0


@pytest.mark.parametrize("arguments", [("find", "ada.toml"), ("by-username", "ada")])
async def test_nobody_is_status_4(cli: CliRunner, arguments: tuple[str, str]) -> None:
    cli.write_private_file("ada.toml", ADA)
    await cli.fail(4, "Check --domain", "patient", *arguments, *DOMAIN)


async def test_passwords_are_set_from_a_file(cli: CliRunner) -> None:
    await added(cli)
    result = await cli.run("patient", "passwords", cli.write_private_file("p.toml", 'ada = "Correct-Horse-2"'), *DOMAIN)
    assert (result.status, result.out, result.err) == (0, "", "directsuite: Passwords were set for 1 patient.\n")
    unknown = cli.write_private_file("p.toml", 'bob = "Correct-Horse-2"')
    err = await cli.fail(4, "check the usernames", "patient", "passwords", unknown, *DOMAIN)
    assert "may or may not have been set" in err


async def test_passwords_whose_responses_get_lost_may_be_set(cli: CliRunner) -> None:
    cli.monkeypatch.setenv("DIRECTSUITE_RETRY_ATTEMPTS", "1")
    await added(cli)
    cli.sandbox.inject_fault("SetPatientsPasswords", "status", status=500, processed=True, times=None)
    result = await cli.run("patient", "passwords", cli.write_private_file("p.toml", 'ada = "Correct-Horse-2"'), *DOMAIN)
    assert result.status == 6
    assert result.err.endswith("may or may not have been set; you can safely run the same command again\n")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "Ada Example",
            "Could not parse the individual's file: it is not valid TOML (line 1, column 5: expected '=' after a key "
            "in a key/value pair). Correct the file.",
        ),
        ('["Ada"]', "as JSON or TOML"),
        ('Ada = "Example"', "Unknown member in the individual's file"),
        ("ssn4 = 1234", "ssn4"),
        ('ssn4 = "12345"', "ssn4"),
        ('dob = "29.2.1980"', "dob"),
        ("dob = 1980-02-29T08:00:00", "dob"),
        ("first_name = 7", "first_name"),
        ('id = "Ada"', "id"),
        ('first_name = "Ada"', "an individual without an id needs last_name, ssn4, dob"),
        ("", "an individual without an id needs"),
        ("first_name = '\ufffe\x00", "it is not valid TOML"),
        ("# Ada\nfirst_name = Ada", "it is not valid TOML (line 2, column 14: invalid value; "),
        ('{"first_name":\n"Ada"\n;}', "it is not valid JSON (line 3 column 1: expecting ',' delimiter)"),
        ('{"first_name": "Ada", "first_name": "Ada"}', "a name is in it twice. List each name once."),
        ('frist_name = "Ada"', "Unknown member in the individual's file. Did you mean first_name? The members"),
    ],
)
async def test_file_that_is_wrong_is_reported_without_what_stands_in_it(
    offline: CommandRunner, text: str, named: str
) -> None:
    file = offline.write_private_file("ada-example.json" if text.startswith(("[", "{")) else "ada-example.toml", text)
    for command in (("find", file), ("add", file, "--yes")):
        err = await offline.fail(2, named, "patient", *command, *DOMAIN)
        assert not {"Ada", "ada-example", "1234", "29.2"} & set(err.replace(".", " ").split())


async def test_problem_of_a_file_is_named_on_a_terminal(offline: CommandRunner) -> None:
    offline.write_private_file("ada's.toml", 'frist_name = "Ada"')
    add = ("patient", "add", "ada's.toml", "--yes", *DOMAIN, "-v")
    await offline.fail(2, "Unknown member (frist_name) in the individual's file (ada's.toml). Did you mean", *add)
    offline.folder.joinpath("ada's.toml").chmod(0o644)
    err = await offline.fail(2, "is accessible to other users: run `chmod o= ", *add)
    (path,) = shlex.split(err.rpartition("`chmod o= ")[2].partition("`")[0])
    offline.folder.joinpath(path).chmod(0o640)
    await offline.fail(2, "Unknown member", *add)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("find", "none", *DOMAIN), "the individual's file can't be read"),
        (("passwords", "none", *DOMAIN), "the passwords file can't be read"),
        (("find", "open.toml", *DOMAIN), "the individual's file is accessible to other users"),
        (("passwords", "empty.toml", *DOMAIN), "lacks a username or a password"),
        (("passwords", "number.toml", *DOMAIN), "Not all usernames and passwords"),
        (("passwords", "twice.json", *DOMAIN), "a name is in it twice"),
        (("passwords", "cases.toml", *DOMAIN), "the passwords file: list each username once"),
        (("by-username", "ada@direct.example.test", *DOMAIN), "the part before the @"),
        (("by-username", "-", *DOMAIN), "the part before the @"),
        (("by-username", "ada", "--domain", "ada@direct.example.test"), "--domain"),
        (("by-username", "ada", "--domain", ""), "--domain"),
        (("find", "ada.toml"), "--domain"),
        (("by-username", "ada", *DOMAIN, "--password-file", "open.toml"), "is accessible to other users"),
    ],
)
async def test_invalid_arguments_are_rejected(offline: CommandRunner, arguments: tuple[str, ...], named: str) -> None:
    for name, text in (("ada.toml", ADA), ("empty.toml", 'ada = ""'), ("number.toml", "ada = 7"), *TWICE):
        offline.write_private_file(name, text)
    offline.folder.joinpath("open.toml").write_text(ADA)
    offline.folder.joinpath("open.toml").chmod(0o644)
    await offline.fail(2, named, "patient", *arguments)


async def test_who_logs_in_has_to_be_known(cli: CliRunner, no_keyring: None) -> None:
    cli.monkeypatch.delenv("DIRECTSUITE_LOGIN_PASSWORD")
    await cli.fail(2, "DIRECTSUITE_LOGIN_PASSWORD", "patient", "by-username", "ada", *DOMAIN)
    cli.monkeypatch.delenv("DIRECTSUITE_LOGIN_USERNAME")
    await cli.fail(2, "--login USERNAME", "patient", "by-username", "ada", *DOMAIN)
    login = ("--login", "somebody", "--password-file", cli.write_private_file("secret", "wrong"))
    await cli.fail(3, "password", "patient", "by-username", "ada", *DOMAIN, *login)
