"""The keys and certificates that the sandbox signs with: in files, in memory, or in a token (`token.py`).

The sandbox imports this module when it first needs a key, so that it starts faster and also without PDF libraries.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID
from pyhanko.keys import load_certs_from_pemder_data
from pyhanko.sign.signers import Signer
from pyhanko_certvalidator.registry import SimpleCertificateStore

from directsuite.sandbox.database import make_private
from directsuite.sandbox.rejections import KeyUnavailableError, logger
from directsuite.sandbox.signing import Certificate

if TYPE_CHECKING:
    from pathlib import Path

SignFn: TypeAlias = Callable[[bytes, str], Awaitable[bytes]]

_KEY, _CERTIFICATE, _AUTHORITY = _FILE_NAMES = ("signer.key.pem", "signer.pem", "ca.pem")


class KeySigner(Signer):
    """A pyHanko signer that calls a function. pyHanko's own parses and checks its key twice for each signature.

    chain: the certificates of the key and of its issuers.
    sign: signs bytes with a digest algorithm in lower case.
    size: the maximum size of a signature in bytes.
    """

    def __init__(self, chain: Sequence[Certificate], sign: SignFn, size: int) -> None:
        registry: Any = SimpleCertificateStore
        super().__init__(signing_cert=chain[0], cert_registry=registry.from_certs(chain[1:]))
        self._sign, self._size = sign, size

    async def async_sign_raw(self, data: bytes, digest_algorithm: str, dry_run: bool = False) -> bytes:
        """Return a signature, or for a `dry_run` bytes of its size."""
        return bytes(self._size) if dry_run else await self._sign(data, digest_algorithm.lower())


class FileKeyStore:
    """A signer's key and certificates, created on first use and stored in `folder`, or in memory if it is None.

    The authority's private key is discarded. Both certificates are valid from 1970 to 9999, because the sandbox's clock
    may be set to any time.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._loaded: tuple[Any, dict[str, bytes]] | None = None

    def signer(self) -> Signer:
        """Return a signer with new certificate objects, because asn1crypto parses lazily, which is not thread-safe."""
        key, pems = self._load()

        async def sign(content: bytes, digest_algorithm: str) -> bytes:
            signature: bytes = key.sign(content, padding.PKCS1v15(), getattr(hashes, digest_algorithm.upper())())
            return signature

        chain = [load_certificate(pems[_CERTIFICATE]), load_certificate(pems[_AUTHORITY])]
        return KeySigner(chain, sign, key.key_size // 8)

    def trust_roots(self) -> Sequence[Certificate]:
        """Return a list with only the certificate of the sandbox's authority."""
        return [load_certificate(self._load()[1][_AUTHORITY])]

    def authority_pem(self) -> bytes:
        """Return the certificate of the sandbox's authority as PEM."""
        return self._load()[1][_AUTHORITY]

    def _load(self) -> tuple[Any, dict[str, bytes]]:
        """Return the key, and the contents of the files by name."""
        with self._lock:
            if self._loaded is None:
                pems = self._read() or self._create()
                self._loaded = _parse_private_key(pems[_KEY]), pems
            return self._loaded

    def _read(self) -> dict[str, bytes] | None:
        files = [self._folder / name for name in _FILE_NAMES] if self._folder is not None else []
        if not files or not all(file.exists() for file in files):
            return None
        make_private(*files)
        return {file.name: file.read_bytes() for file in files}

    def _create(self) -> dict[str, bytes]:
        signer_key = rsa.generate_private_key(65537, 2048)
        certificates = [each.public_bytes(Encoding.PEM) for each in certify(signer_key.public_key())]
        key = signer_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        pems: dict[str, bytes] = dict(zip(_FILE_NAMES, [key, *certificates], strict=True))
        if self._folder is not None:
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            for name, content in pems.items():
                unfinished = self._folder / (name + ".new")
                unfinished.unlink(missing_ok=True)
                unfinished.touch(0o600, exist_ok=False)
                unfinished.write_bytes(content)
                unfinished.replace(self._folder / name)
        return pems


_PublicKey: TypeAlias = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


def certify(signer_key: _PublicKey) -> tuple[x509.Certificate, x509.Certificate]:
    """Return a new certificate for a signer's key, and the certificate of a new authority that has issued it."""

    def make_name(common: str) -> x509.Name:
        organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "directsuite sandbox, for tests only")
        return x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, common)])

    authority_key = rsa.generate_private_key(65537, 2048)

    def sign(subject: str, key: _PublicKey, *, is_authority: bool) -> x509.Certificate:
        usage = x509.KeyUsage(
            digital_signature=not is_authority, content_commitment=not is_authority, key_encipherment=False,
            data_encipherment=False, key_agreement=False, key_cert_sign=is_authority, crl_sign=is_authority,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip
        return (
            x509.CertificateBuilder()
            .subject_name(make_name(subject))
            .issuer_name(make_name("Sandbox signing CA"))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime(1970, 1, 1))  # noqa: DTZ001  X.509 takes naive UTC times
            .not_valid_after(datetime(9999, 12, 31, 23, 59, 59))  # noqa: DTZ001
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
            .add_extension(
                x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True
            )
            .add_extension(usage, critical=True)
            .sign(authority_key, hashes.SHA256())
        )

    certificate = sign("Sandbox signer", signer_key, is_authority=False)
    return certificate, sign("Sandbox signing CA", authority_key.public_key(), is_authority=True)


def _parse_private_key(pem: bytes) -> rsa.RSAPrivateKey:
    private: object = None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        private = load_pem_private_key(pem, password=None, unsafe_skip_rsa_key_validation=True)  # a key of the sandbox
    if not isinstance(private, rsa.RSAPrivateKey):
        text = "the sandbox's signing key is not an RSA key in PEM: delete signer.key.pem to create a new key"
        logger.error("%s", text)
        raise KeyUnavailableError(text)
    return private


def load_certificate(content: bytes) -> Certificate:
    """Parse the first certificate in PEM or DER."""
    load: Any = load_certs_from_pemder_data
    return next(iter(load(content)))
