"""TLS certificates and server contexts for loopback, valid and invalid."""

from __future__ import annotations

import ipaddress
import ssl
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOOPBACK = "127.0.0.1"


def make_certificate(folder: Path, *, address: str = LOOPBACK, days: tuple[int, int] = (-1, 1)) -> tuple[Path, Path]:
    """Return a self-signed certificate for an address, and its key.

    days: the first and last day of validity, from today.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "certificate.pem", folder / "key.pem"
    public.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    encoding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(*encoding))
    return public, private


def make_server_context(
    pair: tuple[Path, Path], *, newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
) -> ssl.SSLContext:
    """Return a server's TLS context with this certificate. newest: the newest supported version of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    limit_tls_version(context, newest)
    return context


def limit_tls_version(context: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    """Limit a context to this version of TLS, even if OpenSSL disables it by default."""
    if version is ssl.TLSVersion.MAXIMUM_SUPPORTED or version >= ssl.TLSVersion.TLSv1_2:
        context.maximum_version = version
        return
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the test needs a deprecated version
        context.minimum_version = version
        context.maximum_version = version
