"""The signing key in a token: SoftHSM2, a PKCS #11 token in files, with a folder of its own for each test."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from pkcs11 import Attribute, ObjectClass
from pkcs11.exceptions import AttributeSensitive

from directsuite.cli import main as directsuite_main
from directsuite.sandbox.__main__ import main as sandbox_main
from directsuite.sandbox.refusals import KeyUnavailableError
from directsuite.sandbox.serving import PIN_VARIABLE
from directsuite.sandbox.signing.token import TokenKeyStore
from tests.sandbox.test_command import command, ready

from . import documents
from .caller import Caller, check_by_openssl, valid_by_pdfsig

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULE = Path("/usr/lib/softhsm/libsofthsm2.so")
PIN = "9173"
_BYTE_RANGE = re.compile(rb"/ByteRange *\[ *(\d+) +(\d+) +(\d+) +(\d+) *\]")

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not MODULE.exists(), reason="SoftHSM is not installed: apt-get install softhsm2"),
]


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a SoftHSM that has one token."""
    folder = tmp_path / "tokens"
    folder.mkdir()
    configuration = tmp_path / "softhsm2.conf"
    configuration.write_text(f"directories.tokendir = {folder}\nlog.level = ERROR\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(configuration))
    command = ["softhsm2-util", "--init-token", "--free", "--label", "clinic", "--so-pin", "5678", "--pin", PIN]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture
def keys(tokens: Path) -> Iterator[TokenKeyStore]:
    """The key in the token: what the fixture `signing` signs with here."""
    store = a_store()
    yield store
    store.close()


def a_store(*, label: str = "clinic", module: Path = MODULE, pin: str | None = PIN) -> TokenKeyStore:
    return TokenKeyStore(module, label, key="sandbox", pin=pin)


def take_away(tokens: Path) -> None:
    tokens.rename(tokens.with_name("away"))
    tokens.mkdir()


def bring_back(tokens: Path) -> None:
    tokens.rmdir()
    tokens.with_name("away").rename(tokens)


async def test_signatures_of_a_token_are_valid_to_pdfsig_and_openssl(
    signing: Caller, keys: TokenKeyStore, tmp_path: Path
) -> None:
    identifier = await signing.save(documents.consent())
    body = {"Signatures": [{"name": "PatientSig", "gsName": "alice"}, {"name": "WitnessSig"}]}
    await signing.ok("PATCH", f"/{identifier}/multiSign", json=body)
    assert await signing.signatures(identifier) == {"PatientSig": True, "WitnessSig": True, "UnusedSig": None}
    content = await signing.pull(identifier)
    assert valid_by_pdfsig(content, tmp_path) == 2
    (tmp_path / "ca.pem").write_bytes(keys.authority_pem())
    ranges = list(_BYTE_RANGE.finditer(content))
    assert len(ranges) == 2
    for each in ranges:
        check_by_openssl(content, [int(number) for number in each.groups()], tmp_path)


def test_the_key_is_made_once_and_cannot_be_exported(keys: TokenKeyStore) -> None:
    authority = keys.authority_pem()
    keys.close()
    assert keys.authority_pem() == authority
    again = a_store()
    assert again.authority_pem() == authority
    session: Any = again._opened().pkcs11_session
    [private] = session.get_objects({Attribute.CLASS: ObjectClass.PRIVATE_KEY})
    assert (private[Attribute.EXTRACTABLE], private[Attribute.SENSITIVE]) == (False, True)
    with pytest.raises(AttributeSensitive):
        _ = private[Attribute.PRIVATE_EXPONENT]
    again.close()


async def test_a_token_that_goes_away_is_answered_with_500_until_it_is_back(
    signing: Caller, keys: TokenKeyStore, tokens: Path, tmp_path: Path
) -> None:
    identifier = await signing.save(documents.consent())
    await signing.ok("PATCH", f"/{identifier}/sign", json={"name": "PatientSig"})
    before = await signing.info(identifier)
    take_away(tokens)
    for _ in range(2):
        status, answer = await signing.call("PATCH", f"/{identifier}/sign", json={"name": "WitnessSig"})
        assert (status, answer["error"]) == (500, "Internal Server Error")
        assert "the token that holds the signing key cannot be used" in answer["description"]
        assert PIN not in str(answer)
    assert (await signing.info(identifier))["documentDigest"] == before["documentDigest"]
    bring_back(tokens)
    await signing.ok("PATCH", f"/{identifier}/sign", json={"name": "WitnessSig"})
    assert valid_by_pdfsig(await signing.pull(identifier), tmp_path) == 2
    assert len(await signing.effects("Sign")) == 2


async def test_a_session_that_has_ended_is_opened_anew_unnoticed(signing: Caller, keys: TokenKeyStore) -> None:
    identifier = await signing.save(documents.consent())
    keys.open()
    session: Any = keys._opened().pkcs11_session
    session.close()
    await signing.ok("PATCH", f"/{identifier}/sign", json={"name": "PatientSig"})
    assert (await signing.signatures(identifier))["PatientSig"] is True


def test_a_refused_pin_is_given_once(tokens: Path) -> None:
    store = a_store(pin="0000")
    with pytest.raises(KeyUnavailableError, match=r"PinIncorrect"):
        store.open()
    with pytest.raises(KeyUnavailableError, match="isn't asked again") as refused:
        store.open()
    assert "0000" not in f"{refused.value!r} {store!r}"


def test_a_missing_token_and_a_missing_library_are_named(tokens: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyUnavailableError, match="cannot be used"):
        a_store(label="another").open()
    with pytest.raises(KeyUnavailableError, match="cannot be used"):
        a_store(module=tmp_path / "absent.so").open()


def test_a_certificate_of_the_tokens_own_is_taken(tokens: Path) -> None:
    """A key that another tool has made, as users of a token have one."""
    tool = shutil.which("pkcs11-tool")
    if tool is None:
        pytest.skip("pkcs11-tool is not installed: apt-get install opensc")
    command = [tool, "--module", str(MODULE), "--login", "--pin", PIN, "--token-label", "clinic", "--keypairgen"]
    command += ["--key-type", "rsa:2048", "--label", "sandbox", "--id", "07"]
    subprocess.run(command, check=True, capture_output=True)
    store = a_store()
    session: Any = store._opened().pkcs11_session
    assert len(list(session.get_objects({Attribute.CLASS: ObjectClass.PRIVATE_KEY}))) == 1
    assert len(list(session.get_objects({Attribute.CLASS: ObjectClass.CERTIFICATE}))) == 2
    store.close()


@pytest.mark.parametrize("pin_in", ["file", "environment"])
async def test_the_command_signs_with_the_token(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pin_in: str
) -> None:
    options = ["--memory", "--pkcs11-module", str(MODULE), "--pkcs11-token", "clinic"]
    if pin_in == "file":
        options += ["--pkcs11-pin-file", str(pin_file(tmp_path, PIN))]
    else:
        monkeypatch.setenv(PIN_VARIABLE, PIN)
    async with command(*options) as process, aiohttp.ClientSession() as http:
        environment, urls = await ready(process)
        headers = {"Authorization": f"Bearer {environment['DIRECTSUITE_TOKEN']}", "Content-Type": "application/json"}
        content = base64.b64encode(documents.consent())
        async with http.post(f"{urls['signing']}/pdf", data=content, headers=headers) as answer:
            identifier = (await answer.json())["identifier"]
        path = f"{urls['signing']}/pdf/{identifier}/sign/pull"
        async with http.patch(path, json={"name": "PatientSig"}, headers=headers) as answer:
            signed = base64.b64decode(await answer.read())
        process.terminate()
        _, errors = await process.communicate()
        assert (process.returncode, errors) == (0, b"")
    assert valid_by_pdfsig(signed, tmp_path) == 1


@pytest.mark.parametrize("module", ["directsuite.sandbox", "directsuite"])
def test_the_command_says_what_is_wrong_with_the_token(
    tokens: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], module: str
) -> None:
    token = ["--memory", "--port", "0", "--pkcs11-module", str(MODULE)]
    assert exit_status(module, token) == 2
    assert "--pkcs11-module and --pkcs11-token go together" in capfd.readouterr().err
    token += ["--pkcs11-token", "clinic", "--pkcs11-pin-file"]
    assert exit_status(module, [*token, str(pin_file(tmp_path, "0000"))]) == 1
    said = capfd.readouterr().err
    assert "PinIncorrect" in said
    assert PIN_VARIABLE in said
    assert "0000" not in said
    assert exit_status(module, [*token, str(tmp_path / "absent")]) == 1
    assert "--pkcs11-pin-file" in capfd.readouterr().err


def pin_file(folder: Path, pin: str) -> Path:
    file = folder / "pin"
    file.write_text(f"{pin}\n")
    return file


def exit_status(module: str, arguments: list[str]) -> int:
    if module == "directsuite":
        return directsuite_main(["sandbox", *arguments])
    try:
        return sandbox_main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
