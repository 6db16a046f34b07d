"""A pyHanko signer whose private key is parsed once.

pyHanko's SimpleSigner parses and checks its RSA key twice for every signature, which takes three times as long as
all the rest of signing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from pyhanko.keys import load_certs_from_pemder_data
from pyhanko.sign.signers import Signer
from pyhanko_certvalidator.registry import SimpleCertificateStore

if TYPE_CHECKING:
    from directsuite.sandbox.signing.keys import Certificate

_HASHES: dict[str, type[hashes.HashAlgorithm]] = {
    "sha256": hashes.SHA256,
    "sha384": hashes.SHA384,
    "sha512": hashes.SHA512,
}


class FileSigner(Signer):
    """Signs with an RSA key in memory (PKCS #1 v1.5)."""

    def __init__(self, key: rsa.RSAPrivateKey, certificate: Certificate, authority: Certificate) -> None:
        registry: Any = SimpleCertificateStore
        super().__init__(signing_cert=certificate, cert_registry=registry.from_certs([authority]))
        self._key = key

    async def async_sign_raw(self, data: bytes, digest_algorithm: str, dry_run: bool = False) -> bytes:
        """The signature of `data`; as many zeros on a dry run, which pyHanko makes to learn its size."""
        if dry_run:
            return bytes(self._key.key_size // 8)
        return self._key.sign(data, padding.PKCS1v15(), _HASHES[digest_algorithm.lower()]())


def load_key(key: bytes) -> rsa.RSAPrivateKey:
    """The private key of this PEM text. Raises ValueError for one that is not RSA."""
    private = serialization.load_pem_private_key(key, password=None)
    if not isinstance(private, rsa.RSAPrivateKey):
        raise ValueError("the sandbox's signing key must be an RSA key: delete its file to have a new one made")
    return private


def load_certificate(pem: bytes) -> Certificate:
    """The certificate in PEM text."""
    load: Any = load_certs_from_pemder_data
    return next(iter(load(pem)))
