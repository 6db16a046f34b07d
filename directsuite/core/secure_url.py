"""Which URLs secrets may be sent to: https, or this machine."""

from __future__ import annotations

from ipaddress import ip_address

from yarl import URL


def problem_of_url(text: str, *, allow_insecure_http: bool = False, query: bool = False) -> str | None:
    """What is wrong or unsafe about a URL, for an error's text, or None. Told, not raised: the URL may hold a password,
    and no frame of a traceback may hold the URL.

    allow_insecure_http: permit http:// to other machines. query: permit a query.
    """
    try:
        url = URL(text)
        host = url.host
    except (ValueError, TypeError):
        return "has to be a URL that starts with https://"
    if url.scheme not in ("http", "https") or not host or " " in text or not text.isprintable():
        return "has to be a URL that starts with https://"
    if url.user or url.password:
        return "must not hold credentials: give them as token, login or mailbox password"
    if "#" in text or ("?" in text and not query):
        return f"must not have {'a fragment' if query else 'a query or a fragment'}"
    if url.scheme == "http" and not allow_insecure_http and not _is_loopback(host):
        return "would send secrets in clear: use https://, or set allow_insecure_http=True"
    return None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
