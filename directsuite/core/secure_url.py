"""Which URLs secrets may be sent to: https, or this machine; and through which proxies."""

from __future__ import annotations

from ipaddress import ip_address

from yarl import URL


def problem_of_url(text: object, *, allow_insecure_http: bool = False, query: bool = False) -> str | None:
    """What is wrong or unsafe about a URL, for an error's text, or None. Told, not raised: the URL may hold a password,
    and no frame of a traceback may hold the URL.

    allow_insecure_http: permit http:// to other machines. query: permit a query.
    """
    try:
        url = URL(text) if isinstance(text, str) and text.isprintable() and " " not in text else URL()
        host = url.host
    except ValueError:
        url, host = URL(), None
    if not isinstance(text, str) or url.scheme not in ("http", "https") or not host:
        return "has to be a URL that starts with https://"
    if url.user or url.password:
        return "must not hold credentials: give them as token, login or mailbox password"
    if "#" in text or ("?" in text and not query):
        return f"must not have {'a fragment' if query else 'a query or a fragment'}"
    if url.scheme == "http" and allow_insecure_http is not True and not _is_loopback(host):
        return "would send secrets in clear: use https://, or set allow_insecure_http=True"
    return None


def is_proxy_url(text: object) -> bool:
    """Return True for the URL of an HTTP proxy, which may hold a user name and password that HTTP Basic can carry."""
    if not isinstance(text, str):
        return False
    try:
        url = URL(text)
        user, password = url.user or "", url.password or ""
        (user + password).encode("latin-1")  # aiohttp's, too, which fails at the first request
        plain = str(url.with_user(None))
    except ValueError:
        return False
    printable = text.isprintable() and (user + password).isprintable()
    return printable and ":" not in user and problem_of_url(plain, allow_insecure_http=True) is None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
