"""The signing key in SoftHSM2, a PKCS #11 token in files, with a new folder for each test."""

from __future__ import annotations

import base64
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pkcs11
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_der_public_key
from pkcs11 import Attribute, KeyType, ObjectClass
from pkcs11.exceptions import AttributeSensitive
from pkcs11.util.ec import encode_ec_public_key, encode_named_curve_parameters
from pkcs11.util.rsa import encode_rsa_public_key
from pkcs11.util.x509 import decode_x509_certificate

from directsuite.cli import main
from directsuite.cli.sandbox import PIN_VARIABLE
from directsuite.sandbox.rejections import KeyUnavailableError
from directsuite.sandbox.signing.keys import certify
from directsuite.sandbox.signing.token import TokenKeyStore
from tests.sandbox.command import read_startup_output, run_command

from . import documents
from .caller import SigningCaller, count_pdfsig_valid, verify_with_openssl

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

MODULE = Path("/usr/lib/softhsm/libsofthsm2.so")
PIN = "9173"
_BYTE_RANGE = re.compile(rb"/ByteRange *\[ *(\d+) +(\d+) +(\d+) +(\d+) *\]")

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not MODULE.exists(), reason="SoftHSM is not installed: apt-get install softhsm2"),
]


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
    signing: SigningCaller, keys: TokenKeyStore, tmp_path: Path
) -> None:
    identifier = await signing.save(documents.make_consent_form())
    body = {"Signatures": [{"name": "PatientSig", "gsName": "alice"}, {"name": "WitnessSig"}]}
    await signing.call_ok("PATCH", f"/{identifier}/multiSign", json=body)
    assert await signing.get_signature_states(identifier) == {"PatientSig": True, "WitnessSig": True, "UnusedSig": None}
    content = await signing.get_doc(identifier)
    assert count_pdfsig_valid(content, tmp_path) == 2
    (tmp_path / "ca.pem").write_bytes(keys.authority_pem())
    ranges = list(_BYTE_RANGE.finditer(content))
    assert len(ranges) == 2
    for each in ranges:
        verify_with_openssl(content, [int(number) for number in each.groups()], tmp_path)


def test_the_key_is_made_once_and_cannot_be_exported(keys: TokenKeyStore) -> None:
    authority = keys.authority_pem()
    keys.close()
    assert keys.authority_pem() == authority
    again = a_store()
    assert again.authority_pem() == authority
    session: Any = again._open_session().pkcs11_session
    [private] = session.get_objects({Attribute.CLASS: ObjectClass.PRIVATE_KEY})
    assert (private[Attribute.EXTRACTABLE], private[Attribute.SENSITIVE]) == (False, True)
    with pytest.raises(AttributeSensitive):
        _ = private[Attribute.PRIVATE_EXPONENT]
    again.close()


async def test_a_missing_hardware_token_is_an_http_500_until_it_returns(
    signing: SigningCaller, keys: TokenKeyStore, tokens: Path, tmp_path: Path
) -> None:
    identifier = await signing.save(documents.make_consent_form())
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "PatientSig"})
    before = await signing.get_doc_info(identifier)
    take_away(tokens)
    for _ in range(2):
        status, response = await signing.call("PATCH", f"/{identifier}/sign", json={"name": "WitnessSig"})
        assert (status, response["error"]) == (500, "Internal Server Error")
        assert "the token with the signing key cannot be used" in response["description"]
        assert PIN not in str(response)
    assert (await signing.get_doc_info(identifier))["documentDigest"] == before["documentDigest"]
    bring_back(tokens)
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "WitnessSig"})
    assert count_pdfsig_valid(await signing.get_doc(identifier), tmp_path) == 2
    assert len(await signing.list_effects("Sign")) == 2


async def test_an_ended_token_session_is_opened_again(signing: SigningCaller, keys: TokenKeyStore) -> None:
    identifier = await signing.save(documents.make_consent_form())
    keys.open()
    session: Any = keys._open_session().pkcs11_session
    session.close()
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "PatientSig"})
    assert (await signing.get_signature_states(identifier))["PatientSig"] is True


def test_a_rejected_pin_is_not_tried_again(tokens: Path) -> None:
    store = a_store(pin="0000")
    with pytest.raises(KeyUnavailableError, match=r"PinIncorrect"):
        store.open()
    with pytest.raises(KeyUnavailableError, match="is not tried again") as refused:
        store.open()
    assert "0000" not in f"{refused.value!r} {store!r}"


def test_a_missing_token_and_a_missing_library_are_named(tokens: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyUnavailableError, match="cannot be used"):
        a_store(label="another").open()
    with pytest.raises(KeyUnavailableError, match="cannot be used"):
        a_store(module=tmp_path / "absent.so").open()


async def test_a_certificate_in_the_token_is_used(signing: SigningCaller, keys: TokenKeyStore, tmp_path: Path) -> None:
    """The token has the signer's certificate, but not the one of its issuer, which others trust."""
    own = put_certificate(tmp_path, put_key(KeyType.RSA))
    await sign_and_check(signing, tmp_path)
    session: Any = keys._open_session().pkcs11_session
    present = [each[Attribute.VALUE] for each in session.get_objects({Attribute.CLASS: ObjectClass.CERTIFICATE})]
    assert len(present) == 1
    signer: Any = keys.signer()
    assert signer.signing_cert.dump() == own.public_bytes(Encoding.DER)
    assert x509.load_pem_x509_certificate(keys.authority_pem()) == own


@pytest.mark.parametrize("kind", [KeyType.RSA, KeyType.EC], ids=["rsa", "p256"])
async def test_a_key_of_another_tool_is_used_and_certified(
    signing: SigningCaller, keys: TokenKeyStore, tmp_path: Path, kind: KeyType
) -> None:
    put_key(kind)
    (tmp_path / "ca.pem").write_bytes(keys.authority_pem())
    await sign_and_check(signing, tmp_path)
    session: Any = keys._open_session().pkcs11_session
    assert len(list(session.get_objects({Attribute.CLASS: ObjectClass.PRIVATE_KEY}))) == 1
    assert len(list(session.get_objects({Attribute.CLASS: ObjectClass.CERTIFICATE}))) == 2


@pytest.mark.parametrize("public_key", [True, False], ids=["public key", "certificate alone"])
async def test_an_elliptic_curve_key_signs_with_the_tokens_own_certificate(
    signing: SigningCaller, keys: TokenKeyStore, tmp_path: Path, *, public_key: bool
) -> None:
    put_certificate(tmp_path, put_key(KeyType.EC))
    if not public_key:
        destroy_public_keys()
    await sign_and_check(signing, tmp_path)


def test_an_elliptic_curve_key_without_its_public_key_is_rejected(keys: TokenKeyStore) -> None:
    put_key(KeyType.EC)
    destroy_public_keys()
    with pytest.raises(KeyUnavailableError, match="elliptic curve key with a public key"):
        keys.open()


async def sign_and_check(signing: SigningCaller, folder: Path) -> None:
    """Sign a document. Check it with the sandbox, pdfsig, and openssl, which trusts ca.pem in the folder."""
    identifier = await signing.save(documents.make_consent_form())
    await signing.call_ok("PATCH", f"/{identifier}/sign", json={"name": "PatientSig"})
    assert (await signing.get_signature_states(identifier))["PatientSig"] is True
    content = await signing.get_doc(identifier)
    assert count_pdfsig_valid(content, folder) == 1
    [found] = _BYTE_RANGE.finditer(content)
    verify_with_openssl(content, [int(number) for number in found.groups()], folder)


@contextmanager
def token_session() -> Generator[Any]:
    library = pkcs11.lib(str(MODULE))
    library.reinitialize()
    with library.get_token(token_label="clinic").open(rw=True, user_pin=PIN) as session:
        yield session


def put_key(kind: KeyType) -> CertificatePublicKeyTypes:
    """Create a key pair in the token, RSA or of the curve P-256. Return the public key."""
    with token_session() as session:
        if kind is KeyType.RSA:
            public, _ = session.generate_keypair(kind, 2048, id=b"\x07", label="sandbox", store=True)
            return load_der_public_key(encode_rsa_public_key(public))  # type: ignore[return-value]
        curve = {Attribute.EC_PARAMS: encode_named_curve_parameters("secp256r1")}
        parameters = session.create_domain_parameters(kind, curve, local=True)
        public, _ = parameters.generate_keypair(id=b"\x07", label="sandbox", store=True)
        return load_der_public_key(encode_ec_public_key(public))  # type: ignore[return-value]


def destroy_public_keys() -> None:
    with token_session() as session:
        for each in list(session.get_objects({Attribute.CLASS: ObjectClass.PUBLIC_KEY})):
            each.destroy()


def put_certificate(folder: Path, key: CertificatePublicKeyTypes) -> x509.Certificate:
    """Put a certificate of the key into the token, and that of its issuer only into ca.pem. Return the first."""
    assert isinstance(key, (rsa.RSAPublicKey, ec.EllipticCurvePublicKey))
    own, authority = certify(key)
    (folder / "ca.pem").write_bytes(authority.public_bytes(Encoding.PEM))
    with token_session() as session:
        attributes = decode_x509_certificate(own.public_bytes(Encoding.DER))
        session.create_object({**attributes, Attribute.TOKEN: True, Attribute.ID: b"\x07"})
    return own


@pytest.mark.parametrize("pin_in", ["file", "environment"])
async def test_the_command_signs_with_the_token(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pin_in: str
) -> None:
    options = ["--memory", "--pkcs11-module", str(MODULE), "--pkcs11-token", "clinic"]
    if pin_in == "file":
        options += ["--pkcs11-pin-file", str(pin_file(tmp_path, PIN))]
    else:
        monkeypatch.setenv(PIN_VARIABLE, PIN)
    async with run_command(*options) as process, aiohttp.ClientSession() as http:
        environment, urls = await read_startup_output(process)
        headers = {"Authorization": f"Bearer {environment['DIRECTSUITE_TOKEN']}", "Content-Type": "application/json"}
        content = base64.b64encode(documents.make_consent_form())
        async with http.post(f"{urls['signing']}/pdf", data=content, headers=headers) as response:
            identifier = (await response.json())["identifier"]
        path = f"{urls['signing']}/pdf/{identifier}/sign/pull"
        async with http.patch(path, json={"name": "PatientSig"}, headers=headers) as response:
            signed = base64.b64decode(await response.read())
        process.terminate()
        _, errors = await process.communicate()
        assert (process.returncode, errors) == (0, b"")
    assert count_pdfsig_valid(signed, tmp_path) == 1


def test_the_command_reports_an_unusable_token(
    tokens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = ["sandbox", "--memory", "--port", "0", "--pkcs11-module", str(MODULE)]
    assert main(token) == 2
    assert "--pkcs11-module and --pkcs11-token " in capsys.readouterr().err
    token += ["--pkcs11-token", "clinic", "--pkcs11-pin-file"]
    assert main([*token, str(pin_file(tmp_path, "0000"))]) == 1
    message = capsys.readouterr().err
    assert ("PinIncorrect" in message, PIN_VARIABLE in message, "0000" in message) == (True, True, False)
    assert main([*token, str(tmp_path / "absent")]) == 1
    assert "the file of --pkcs11-pin-file" in capsys.readouterr().err


def pin_file(folder: Path, pin: str) -> Path:
    file = folder / "pin"
    file.touch(mode=0o600)
    file.write_text(f"{pin}\n")
    return file
