"""What a server answers, and what time it has: one HEAD request to the service's URL, which carries no secret."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp

from directsuite._version import __version__
from directsuite.cli.doctor.findings import Found, failed, not_checked, ok, warning

_SKEW = 60.0  # seconds: sessions and tokens run out by the server's clock, and are renewed by this machine's
_BROKEN = (502, 503, 504)


class Answer:
    """Of one service. proxy: the URL of an HTTP proxy."""

    def __init__(self, url: str, *, proxy: str | None) -> None:
        self._url = url
        self._proxy = proxy
        self._date: str | None = None
        self._at = datetime.now(UTC)

    async def answer(self) -> Found:
        """Whether something speaks HTTP there."""
        try:
            async with (
                aiohttp.ClientSession(
                    # aiohttp's own context is as old as its import: this one is made as a suite's is.
                    connector=aiohttp.TCPConnector(ssl=await asyncio.to_thread(ssl.create_default_context)),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    headers={"User-Agent": f"directsuite/{__version__}", "Cache-Control": "no-cache"},
                ) as session,
                session.head(self._url, allow_redirects=False, proxy=self._proxy) as response,
            ):
                self._date, self._at = response.headers.get("Date"), datetime.now(UTC)
                return _of_status(response.status)
        except aiohttp.ClientHttpProxyError as error:
            if error.status == 407:
                return failed("the proxy asks for a password: put it into proxy of the settings, as in http://name:…@")
            return failed(f"the proxy refuses the connection (HTTP {error.status}): ask who runs it")
        except aiohttp.ClientProxyConnectionError:
            return failed("the proxy of the settings can't be reached: check its URL")
        except aiohttp.ClientConnectorCertificateError:
            return failed(
                "the service's certificate, or that of a proxy in its place, isn't accepted: if an authority of your "
                "own signs it, have SSL_CERT_FILE name that one's certificate"
            )
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
            return failed(f"what listens there doesn't answer as HTTP does ({type(error).__name__}): check the URL")

    async def clock(self) -> Found:
        """Whether this machine's clock and the server's agree."""
        there = _moment(self._date)
        if there is None:
            return not_checked("the server doesn't tell the time")
        seconds = (there - self._at).total_seconds()
        if abs(seconds) <= _SKEW:
            return ok("this machine's clock agrees with the server's", seconds=round(seconds))
        way = "behind" if seconds > 0 else "ahead of"
        return warning(
            f"this machine's clock is {_length(abs(seconds))} {way} the server's, so that tokens and sessions end at "
            "other times than is thought: set it, by NTP for one",
            seconds=round(seconds),
        )


def _of_status(status: int) -> Found:
    if status in _BROKEN:
        return warning(f"HTTP {status}: the service is down or overloaded; try again later", status=status)
    if 300 <= status < 400:
        return warning(
            f"HTTP {status}: it redirects, which is not followed; give the URL that it leads to", status=status
        )
    return ok("an HTTP server answers", status=status)


def _moment(date: str | None) -> datetime | None:
    try:
        there = parsedate_to_datetime(date or "")
    except ValueError:
        return None
    return there if there.tzinfo is not None else there.replace(tzinfo=UTC)


def _length(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
