"""This machine: versions, extras, the certificates that it trusts, and variables of proxies."""

from __future__ import annotations

import os
import platform
import ssl
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from directsuite._version import __version__
from directsuite.cli.doctor.findings import Finding, Found, failed, ok, warning

MACHINE = "this machine"

_LIBRARIES = ("aiohttp", "attrs", "cattrs", "msgspec", "oauthlib", "pybase64", "tenacity", "yarl")
_EXTRAS: Mapping[str, tuple[str, ...]] = {
    "cli": ("cyclopts", "justhtml", "keyring", "rich"),
    "fleet": ("procrastinate", "psycopg"),
    "hsm": ("pkcs11",),
    "otel": ("opentelemetry",),
    "sandbox": ("pikepdf", "pyhanko", "pyhanko_certvalidator", "cryptography", "fontTools", "PIL", "yaml"),
    "storage": ("fsspec",),
    "testing": ("aioresponses",),
}
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_OF_OTHERS = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def of_this_machine(environment: Mapping[str, str], *, uses_proxy: bool, uses_tls: bool) -> Iterator[Finding]:
    """What is found without asking anybody."""
    yield _versions().of(MACHINE, "versions")
    yield _extras().of(MACHINE, "extras")
    if uses_tls:
        yield _trusted(environment).of(MACHINE, "trusted certificates")
    yield _proxies(environment, uses_proxy=uses_proxy).of(MACHINE, "proxy variables")


def _versions() -> Found:
    found = {"directsuite": __version__, "Python": platform.python_version(), "OpenSSL": _openssl()}
    absent = list[str]()
    for library in _LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            absent.append(library)
    said = ", ".join(f"{name} {number}" for name, number in found.items())
    if absent:
        return failed(f"{said}; {', '.join(absent)} is missing: pip install directsuite", versions=found)
    return ok(said, versions=found)


def _openssl() -> str:
    return ssl.OPENSSL_VERSION.split()[1] if " " in ssl.OPENSSL_VERSION else ssl.OPENSSL_VERSION


def _extras() -> Found:
    missing = {extra: [each for each in libraries if find_spec(each) is None] for extra, libraries in _EXTRAS.items()}
    installed = [extra for extra, absent in missing.items() if not absent]
    begun = [extra for extra, absent in missing.items() if absent and len(absent) < len(_EXTRAS[extra])]
    said = f"installed: {', '.join(installed) or 'none'}"
    if begun:
        lacking = ", ".join(library for extra in begun for library in missing[extra])
        remedy = f"pip install 'directsuite[{','.join(begun)}]'"
        return warning(f"{said}; {', '.join(begun)} lacks {lacking}: {remedy}", installed=installed, partly=begun)
    absent = [extra for extra in _EXTRAS if extra not in installed]
    return ok(f"{said}; not installed: {', '.join(absent)}" if absent else said, installed=installed)


def _trusted(environment: Mapping[str, str]) -> Found:
    """Where the certificates of authorities are."""
    for name, is_there in (("SSL_CERT_FILE", Path.is_file), ("SSL_CERT_DIR", Path.is_dir)):
        named = environment.get(name)
        if named and not is_there(Path(named)):
            return failed(f"{name} names what isn't there, so that no certificate is trusted: correct or unset it")
    if environment.get("SSL_CERT_FILE") and not _holds_certificates(environment["SSL_CERT_FILE"]):
        return failed("the file of SSL_CERT_FILE holds no certificate in PEM: correct or unset it")
    paths: Any = ssl.get_default_verify_paths()  # None where there are none, whatever their types promise
    place: str | None = paths.cafile or paths.capath
    if place is None and os.name != "nt":  # Windows keeps them elsewhere
        return failed("this machine has no certificates that it trusts: install its package ca-certificates")
    ignored = [name for name in _OF_OTHERS if environment.get(name)]
    if ignored and not environment.get("SSL_CERT_FILE"):
        return warning(f"{' and '.join(ignored)} is for other programs: what they name goes into SSL_CERT_FILE")
    return ok(f"those of {place}" if place else "those of the system", place=place)


def _holds_certificates(file: str) -> bool:
    try:
        ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError):
        return False
    return True


def _proxies(environment: Mapping[str, str], *, uses_proxy: bool) -> Found:
    """Their values may hold passwords, and are not shown."""
    names = [name for name in _PROXIES if environment.get(name)]
    if not names:
        return ok("none is set", variables=names)
    if uses_proxy:
        return ok(f"{', '.join(names)} is not looked at: the proxy of the settings is used", variables=names)
    return warning(
        f"{', '.join(names)} is not looked at: if the services are behind a proxy, "
        'put proxy = "http://proxy.example.org:3128" into the TOML file that DIRECTSUITE_CONFIG names',
        variables=names,
    )
