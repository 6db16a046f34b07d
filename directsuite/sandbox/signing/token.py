"""The signing key in a PKCS #11 token, such as a hardware security module. Needs the extra `directsuite[hsm]`.

The token makes each signature. If it has no key with the label, a key that cannot be exported is created in it. If it
has no certificate for the key, the sandbox issues one, and stores it and its authority's certificate in the token.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pkcs11
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_der_public_key
from pkcs11 import Attribute, KeyType, ObjectClass, PKCS11Error, TokenFlag
from pkcs11.exceptions import PinIncorrect, PinLenRange, PinLocked
from pkcs11.util.ec import encode_ec_public_key
from pkcs11.util.rsa import encode_rsa_public_key
from pkcs11.util.x509 import decode_x509_certificate
from pyhanko.sign.pkcs11 import PKCS11Signer

from directsuite.sandbox.rejections import KeyUnavailableError
from directsuite.sandbox.signing.keys import KeySigner, certify, load_certificate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyhanko.sign.signers import Signer

    from directsuite.sandbox.signing import Certificate

_KEY_BITS = 2048
_MAX_DER_OVERHEAD_BYTES = 9  # around the two numbers of an ECDSA signature


class TokenKeyStore:
    """A source of signers for a key in a token. The caller must close it.

    module: the PKCS #11 library.
    token: the label of the token.
    key: the label of the key, which may be an RSA or elliptic curve key.
    pin: the PIN of the token, or None.
    Methods other than `close` raise KeyUnavailableError if they need the token and it cannot be used. After a failure,
    the next signature opens a new session. A rejected PIN is not used again, because tokens lock themselves after a few
    attempts. A process may have only one store for a library, because sessions and logins belong to the library.
    """

    def __init__(self, module: Path, token: str, *, key: str, pin: str | None) -> None:
        self._module = str(module)
        self._token = token
        self._key = key
        self._pin = pin
        self._is_pin_rejected = False
        self._lock = threading.Lock()  # a session allows one operation at a time
        self._signer: PKCS11Signer | None = None
        self._chain: list[bytes] = []

    def open(self) -> None:
        """Log in to the token, and create the key and certificates if they are missing."""
        with self._lock:
            self._open_session()

    def close(self) -> None:
        """Close the session."""
        with self._lock:
            self._end_session()

    def signer(self) -> Signer:
        """Return a signer whose signatures are made by the token."""
        with self._lock:
            self._open_session()
            # New objects, because those of asn1crypto are not thread-safe.
            chain = [load_certificate(each) for each in self._chain]
            public = chain[0].public_key
            size = public.byte_size if public.algorithm == "rsa" else 2 * public.byte_size + _MAX_DER_OVERHEAD_BYTES
            return KeySigner(chain, self.sign, size)

    def trust_roots(self) -> Sequence[Certificate]:
        """Return a list with only the last certificate of the key's chain in the token."""
        return [load_certificate(self._get_root())]

    def authority_pem(self) -> bytes:
        """Return the root certificate as PEM."""
        return x509.load_der_x509_certificate(self._get_root()).public_bytes(Encoding.PEM)

    async def sign(self, content: bytes, digest_algorithm: str) -> bytes:
        """Return the signature of `content`: PKCS #1 v1.5, or ECDSA.

        If the session fails, a new one is tried once, because the token may have been unavailable in the meantime.
        Raises KeyUnavailableError if both fail.
        """
        with self._lock:
            for last in (False, True):
                signer = self._open_session()
                try:
                    return await signer.async_sign_raw(content, digest_algorithm)
                except PKCS11Error as error:
                    self._end_session()
                    if last:
                        raise _make_unavailable_error(error) from None
        raise AssertionError

    def _get_root(self) -> bytes:
        with self._lock:
            if not self._chain:  # a known chain is used even while the token is unavailable
                self._open_session()
            return self._chain[-1]

    def _open_session(self) -> PKCS11Signer:
        """Return the signer of the open session, or of a new one. The caller must hold the lock.

        Raises KeyUnavailableError if the token cannot be used, or has rejected the PIN.
        """
        if self._signer is not None:
            return self._signer
        if self._is_pin_rejected:
            raise KeyUnavailableError(
                "the token with the signing key has rejected the PIN, which is not tried again: restart the sandbox"
                " with the correct PIN"
            )
        session: Any = None
        try:
            library = pkcs11.lib(self._module)
            library.reinitialize()  # ends sessions, and finds tokens again
            token = library.get_token(token_label=self._token)
            session = token.open(rw=TokenFlag.WRITE_PROTECTED not in token.flags, user_pin=self._pin)
            self._signer, self._chain = self._prepare_session(session)
        except KeyUnavailableError:
            _close_session(session)
            raise
        except PKCS11Error as error:
            self._is_pin_rejected = isinstance(error, (PinIncorrect, PinLenRange, PinLocked))
            if session is not None:
                _close_session(session)
            raise _make_unavailable_error(error) from None
        return self._signer

    def _prepare_session(self, session: Any) -> tuple[PKCS11Signer, list[bytes]]:
        """Return the signer and the certificate chain (DER) of the key. Create the key and certificates if missing."""
        wanted = {Attribute.LABEL: self._key, Attribute.CLASS: ObjectClass.PRIVATE_KEY}
        private = next(iter(list(session.get_objects(wanted))), None)
        if private is None:
            template = {Attribute.SENSITIVE: True, Attribute.EXTRACTABLE: False}
            identifier = self._key.encode()
            _, private = session.generate_keypair(
                KeyType.RSA, _KEY_BITS, id=identifier, label=self._key, store=True, private_template=template
            )
        public = _find_public_key(session, private)
        found = [each[Attribute.VALUE] for each in session.get_objects({Attribute.CLASS: ObjectClass.CERTIFICATE})]
        present = [x509.load_der_x509_certificate(each) for each in found]
        own = next((each for each in present if each.public_key() == public), None)
        if own is None:
            own, authority = certify(public)
            for certificate, label in ((own, self._key), (authority, f"{self._key} CA")):
                more = {Attribute.TOKEN: True, Attribute.LABEL: label, Attribute.ID: private[Attribute.ID]}
                session.create_object({**decode_x509_certificate(certificate.public_bytes(Encoding.DER)), **more})
            present += [own, authority]
        chain = [each.public_bytes(Encoding.DER) for each in _build_chain(own, present)]
        signer: Any = PKCS11Signer(
            session,
            signing_cert=load_certificate(chain[0]),
            key_label=self._key,
            other_certs_to_pull=(),
            use_raw_mechanism=isinstance(public, ec.EllipticCurvePublicKey),  # few tokens compute digests for ECDSA
        )
        _ = signer.signing_cert  # makes pyHanko load the key now
        return signer, chain

    def _end_session(self) -> None:
        if self._signer is not None:
            _close_session(self._signer.pkcs11_session)
            self._signer = None


def _close_session(session: Any) -> None:
    with contextlib.suppress(PKCS11Error):  # the token may be unavailable
        session.close()


def _make_unavailable_error(error: PKCS11Error) -> KeyUnavailableError:
    """Return an error without the text of the PKCS #11 error, which may contain secrets."""
    return KeyUnavailableError(f"the token with the signing key cannot be used ({type(error).__name__})")


def _find_public_key(session: Any, private: Any) -> rsa.RSAPublicKey | ec.EllipticCurvePublicKey:
    """Return the public key of a private key. Raises KeyUnavailableError if it is unsuitable or cannot be found.

    For an elliptic curve key, it is read from a public key or certificate with the same id.
    """
    beside = {Attribute.ID: private[Attribute.ID]}
    public: object = None
    if private.key_type is KeyType.RSA:
        public = load_der_public_key(encode_rsa_public_key(private))
    elif private.key_type is KeyType.EC:
        for each in list(session.get_objects({Attribute.CLASS: ObjectClass.PUBLIC_KEY, **beside})):
            public = load_der_public_key(encode_ec_public_key(each))
        for each in [] if public else list(session.get_objects({Attribute.CLASS: ObjectClass.CERTIFICATE, **beside})):
            public = x509.load_der_x509_certificate(each[Attribute.VALUE]).public_key()
    if not isinstance(public, (rsa.RSAPublicKey, ec.EllipticCurvePublicKey)):
        raise KeyUnavailableError(
            "the signing key in the token must be an RSA key, or an elliptic curve key with a public key or "
            "certificate that has the same id"
        )
    return public


def _build_chain(certificate: x509.Certificate, present: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    chain = [certificate]
    while issuer := next((each for each in present if each not in chain and _is_issued_by(chain[-1], each)), None):
        chain.append(issuer)
    return chain


def _is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:  # noqa: BLE001  ValueError, TypeError or InvalidSignature: it was not issued by it
        return False
    return True
