"""The way to a server: its name, a connection, and TLS. Nothing is asked of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Sequence

from yarl import URL

from directsuite.cli.doctor.findings import Found, failed, not_checked, ok, warning
from directsuite.core.failures import reason_of
from directsuite.core.files import OwnThread

_SOON = 21  # days in which a certificate should be renewed
_DAY = 86_400
_FOR_EACH = 0.8  # of the time for all addresses together: what is left tells of it

_UNTRUSTED = (
    "it is signed by nobody whom this machine trusts: if the service has an authority of its own, "
    "have SSL_CERT_FILE name that one's certificate"
)
_CERTIFICATES = {  # X509_V_ERR_… of OpenSSL
    2: _UNTRUSTED,
    18: _UNTRUSTED,
    19: _UNTRUSTED,
    20: _UNTRUSTED,
    21: _UNTRUSTED,
    9: "it isn't valid yet: set this machine's clock, or tell the service's provider",
    10: "it has expired: tell the service's provider, or set this machine's clock if that is wrong",
    62: "it is for another host: check the host in the URL",
    64: "it is for another address: check the host in the URL",
}
_TOO_OLD = ("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "VERSION_TOO_LOW", "NO_PROTOCOLS_AVAILABLE")
_NO_TLS = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


class Way:
    """To one server, step by step. url: whatever it has of a path is of no matter."""

    def __init__(self, url: URL, *, limit: float) -> None:
        self._host = url.raw_host or ""
        self._port = url.port or 443
        self._secure = url.scheme == "https"
        self._limit = limit
        self._addresses = list[str]()
        self._open = ""
        self._writer: asyncio.StreamWriter | None = None  # the connection that TLS is spoken on

    def close(self) -> None:
        """End the connection."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def name(self) -> Found:
        """Whether its name has an address."""
        thread = OwnThread()  # a resolver may take its time, and can't be interrupted
        try:
            found = await thread.start(socket.getaddrinfo, self._host, self._port, socket.AF_UNSPEC, socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return failed(
                f"{self._host} has no address: check the host in the URL, and whether this machine is online",
                host=self._host,
            )
        finally:
            thread.end()
        self._addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        about = {"host": self._host, "addresses": self._addresses}
        if self._addresses == [self._host]:
            return ok(f"{self._host} is an address itself", **about)
        return ok(f"{self._host} is {', '.join(self._addresses)}", **about)

    async def connection(self) -> Found:
        """Whether somebody listens there."""
        tried = await asyncio.gather(*(self._connected(address) for address in self._addresses))
        answering = [address for address, problem in zip(self._addresses, tried, strict=True) if problem is None]
        silent = [address for address, problem in zip(self._addresses, tried, strict=True) if problem == _SILENT]
        about = {"port": self._port, "answering": answering}
        if not answering:
            return failed(f"{self._problem(tried)}, at port {self._port} of {self._host}", **about)
        self._open = self._open or answering[0]
        if silent:
            return warning(
                f"{', '.join(silent)} doesn't answer, which makes connections slow: "
                "tell the service's provider, or see to this machine's network (IPv6?)",
                **about,
            )
        return ok(f"port {self._port} is open", **about)

    async def tls(self) -> Found:
        """Whether it is who it should be, and for how long its certificate says so."""
        writer = self._writer
        if not self._secure or writer is None:
            if self._open and self._is_here():
                return not_checked("the URL begins with http://, on this machine")
            return warning("the URL begins with http://: all that is sent can be read on the way; use https://")
        try:
            context = await asyncio.to_thread(ssl.create_default_context)
            await writer.start_tls(context, server_hostname=self._host, ssl_handshake_timeout=self._limit)
        except ssl.SSLCertVerificationError as error:
            return failed(f"its certificate isn't accepted: {_of_certificate(error)}", code=error.verify_code)
        except ssl.SSLError as error:
            return failed(_of_handshake(error), reason=error.reason)
        except OSError as error:
            return failed(
                f"the server broke off the TLS handshake ({reason_of(error)}): check scheme and port in the URL; "
                "if they are right, ask its provider whether it speaks TLS 1.2 or newer"
            )
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        certificate = tls.getpeercert() or {}
        return _of_accepted(tls.version() or "TLS", str(certificate.get("notAfter", "")))

    async def _connected(self, address: str) -> str | None:
        """Why there is no connection to this address."""
        try:
            async with asyncio.timeout(_FOR_EACH * self._limit):
                _, writer = await asyncio.open_connection(address, self._port)
        except TimeoutError:
            return _SILENT
        except OSError as error:
            return reason_of(error)
        if self._writer is None and self._secure:
            self._writer, self._open = writer, address
        else:
            writer.transport.abort()
        return None

    def _problem(self, tried: Sequence[str | None]) -> str:
        reasons = set(tried)
        if reasons == {_SILENT}:
            return "nobody answers: a firewall may be in the way, or a proxy is needed; check host and port in the URL"
        refused = " and ".join(sorted(each for each in reasons if each))
        return f"there is no connection ({refused}): check host and port in the URL, and whether the service runs"

    def _is_here(self) -> bool:
        return self._open.startswith("127.") or self._open == "::1"


_SILENT = "no answer"


def _of_certificate(error: ssl.SSLCertVerificationError) -> str:
    return _CERTIFICATES.get(error.verify_code, f"{error.verify_message}: ask the service's provider")


def _of_handshake(error: ssl.SSLError) -> str:
    reason = str(error.reason)
    if reason in _TOO_OLD:
        return "the server speaks no TLS 1.2 or newer, without which nothing is sent: tell the service's provider"
    if reason in _NO_TLS:
        return "the server speaks no TLS at this port: check scheme and port in the URL"
    return f"the TLS handshake failed ({reason}): ask the service's provider"


def _of_accepted(version: str, not_after: str) -> Found:
    if not not_after:
        return ok(version, version=version)
    days = int((ssl.cert_time_to_seconds(not_after) - time.time()) // _DAY)
    said = f"{version}; its certificate is accepted, and holds for {days} more day{'s' * (days != 1)}"
    if days < _SOON:
        return warning(f"{said}: have the service's provider renew it", version=version, days=days)
    return ok(said, version=version, days=days)
