"""The key store: keys are created once and are private; the PDF libraries are imported when needed."""

from __future__ import annotations

import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from directsuite.sandbox.rejections import KeyUnavailableError
from directsuite.sandbox.signing.keys import FileKeyStore

if TYPE_CHECKING:
    from pathlib import Path


def test_keys_are_made_once_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    first = FileKeyStore(folder)
    assert not folder.exists()
    authority = first.authority_pem()
    assert FileKeyStore(folder).authority_pem() == authority
    assert len(first.trust_roots()) == 1


def test_the_private_key_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    FileKeyStore(tmp_path).signer()
    assert stat.S_IMODE((tmp_path / "signer.key.pem").stat().st_mode) == 0o600


@pytest.mark.process
def test_the_service_is_imported_without_the_pdf_libraries() -> None:
    code = (
        "import sys; import directsuite.sandbox.server, directsuite.sandbox.signing.service;"
        "print([name for name in ('pyhanko', 'pikepdf', 'PIL', 'cryptography') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_each_caller_has_certificates_unique() -> None:
    """asn1crypto parses certificates lazily, which is not thread-safe."""
    keys = FileKeyStore(None)
    pairs: list[tuple[Any, Any]] = [
        (keys.signer().signing_cert, keys.signer().signing_cert),
        (keys.trust_roots()[0], keys.trust_roots()[0]),
    ]
    for one, other in pairs:
        assert one is not other
        assert one.dump() == other.dump()


def test_a_key_that_is_not_rsa_is_reported_with_advice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    FileKeyStore(tmp_path).signer()
    key = ec.generate_private_key(ec.SECP256R1())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    for content in (key.private_bytes(encoding, form, serialization.NoEncryption()), b"not PEM"):
        caplog.clear()
        (tmp_path / "signer.key.pem").write_bytes(content)
        with pytest.raises(KeyUnavailableError, match=r"delete signer\.key\.pem to create a new key"):
            FileKeyStore(tmp_path).trust_roots()
        assert "delete signer.key.pem" in caplog.text
