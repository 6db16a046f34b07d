"""Settings from arguments, the environment and a file, and rejected values."""

from __future__ import annotations

import copy
import pickle
import ssl
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from tests.chaos.leak_capture import CapturedText, collect_error_texts, collect_frame_locals, find_leaks

URL = "https://signing.example.test/v3"


def test_defaults_are_the_documented_ones() -> None:
    settings = ds.Settings()
    assert (settings.signing_url, settings.fax_url, settings.message_url, settings.registration_url) == (None,) * 4
    assert (settings.timeout, settings.attempt_timeout, settings.session_margin) == (60.0, 20.0, 60.0)
    assert (settings.max_connections, settings.requests_per_second, settings.burst) == (10, 100.0, 150)
    assert (settings.max_response_bytes, settings.settle) == (134_217_728, 30.0)
    assert settings.retry == ds.RetryPolicy(attempts=4)
    assert not settings.allow_insecure_http
    assert settings.close_session


def test_settings_are_equal_if_their_values_are() -> None:
    settings = ds.Settings()
    for other in (ds.Settings(), copy.deepcopy(settings), pickle.loads(pickle.dumps(settings))):  # noqa: S301  our own
        assert (other, hash(other)) == (settings, hash(settings))
    assert ds.Settings(timeout=61.0) != settings
    assert ds.Settings(retry=ds.RetryPolicy(wait=lambda _: 1.0)) != settings


def test_settings_are_keyword_only_and_frozen() -> None:
    construct: Any = ds.Settings  # type checkers reject the call
    with pytest.raises(TypeError):
        construct(URL)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(ds.Settings(), "timeout", 1.0)  # noqa: B010  type checkers reject the assignment


GOOD_URLS = [
    URL,
    "https://signing.example.test:8443",
    "http://127.0.0.1:8080/base",
    "http://127.9.9.9",
    "http://localhost:1",
    "http://LOCALHOST",
    "http://[::1]:8080",
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("url", GOOD_URLS)
@pytest.mark.parametrize("service", ["signing", "fax", "message", "registration"])
def test_https_and_loopback_are_taken(service: str, url: str) -> None:
    urls: dict[str, Any] = {f"{service}_url": url}
    assert getattr(ds.Settings(**urls), f"{service}_url") == url


@pytest.mark.parametrize("url", [f"{URL}/", f"{URL}//"])
def test_slashes_at_the_end_do_not_matter(url: str) -> None:
    assert ds.Settings(signing_url=url).signing_url == URL


BAD_URLS: list[tuple[str, str]] = [
    ("http://signing.example.test", "unencrypted"),
    ("http://127.0.0.1.example.test", "unencrypted"),
    ("http://localhost.example.test", "unencrypted"),
    ("http://127.1", "unencrypted"),
    ("http://10.0.0.1", "unencrypted"),
    ("http://0.0.0.0", "unencrypted"),
    ("https://Zaphod@signing.example.test", "credentials"),
    ("https://:Zaphod@signing.example.test", "credentials"),
    ("https://Zaphod:Zaphod@signing.example.test", "credentials"),
    ("http://Zaphod@127.0.0.1", "credentials"),
    ("https://signing.example.test/?key=Zaphod", "query"),
    ("https://signing.example.test?", "query"),
    ("https://signing.example.test/#Zaphod", "query or a fragment"),
    ("https://signing.example.test#", "query or a fragment"),
    ("", "starts with https://"),
    ("signing.example.test", "starts with https://"),
    ("/Zaphod", "starts with https://"),
    ("ftp://signing.example.test", "starts with https://"),
    ("https://", "starts with https://"),
    ("https:///path", "starts with https://"),
    ("https://signing.example.test:Zaphod", "starts with https://"),
    ("https://signing.example.test:99999", "starts with https://"),
    ("https://[::1", "starts with https://"),
    (" ", "starts with https://"),
    (" https://signing.example.test", "start or end with whitespace"),
    ("https://signing.example.test\n", "start or end with whitespace"),
    ("https://sign ing.example.test", "starts with https://"),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("url", "reason"), BAD_URLS)
@pytest.mark.parametrize("service", ["signing", "fax", "message", "registration"])
def test_other_urls_are_rejected_without_being_shown(service: str, url: str, reason: str) -> None:
    urls: dict[str, Any] = {f"{service}_url": url}
    with pytest.raises(ds.ConfigurationError, match=reason) as caught:
        ds.Settings(**urls)
    assert str(caught.value).startswith(f"{service}_url ")
    assert "Zaphod" not in str(caught.value)


COUNTS = ["max_connections", "burst", "max_response_bytes"]
LIMITS = ["timeout", "attempt_timeout", "requests_per_second", "session_margin", *COUNTS]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), float("-inf"), "5", None, True])
def test_limits_are_finite_and_more_than_nothing(name: str, value: object) -> None:
    limits: dict[str, Any] = {name: value}
    with pytest.raises(ds.ConfigurationError, match=f"{name} must be a finite number greater than 0"):
        ds.Settings(**limits)


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_complete(name: str) -> None:
    limits: dict[str, Any] = {name: 1.5}
    with pytest.raises(ds.ConfigurationError, match=f"{name} must be a whole number"):
        ds.Settings(**limits)


def test_empty_environment_gives_the_defaults() -> None:
    assert ds.Settings.from_env({}).signing_url is None
    assert ds.Settings.from_env({"DIRECTSUITE_SIGNING_URL": "", "DIRECTSUITE_CONFIG": ""}).signing_url is None


def test_process_s_own_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIRECTSUITE_FAX_URL", "https://f.example.test")
    assert ds.Settings.from_env().fax_url == "https://f.example.test"


def test_file_gives_every_setting(tmp_path: Path) -> None:
    config = _file(
        tmp_path,
        f"""
        signing_url = "{URL}/"
        message_url = "http://mail.example.test"
        allow_insecure_http = true
        timeout = 30
        attempt_timeout = 2.5
        max_connections = 5
        requests_per_second = 10
        burst = 20
        max_response_bytes = 1_000_000
        session_margin = 30.0
        settle = 5
        retry_attempts = 2
        proxy = "http://proxy.example.test:3128"
        """,
    )
    for path in (config, str(config)):
        settings = ds.Settings.from_toml(path)
        assert (settings.signing_url, settings.message_url) == (URL, "http://mail.example.test")
        assert (settings.timeout, settings.attempt_timeout, settings.session_margin) == (30, 2.5, 30.0)
        assert (settings.max_connections, settings.requests_per_second, settings.burst) == (5, 10, 20)
        assert (settings.max_response_bytes, settings.settle) == (1_000_000, 5)
        assert settings.retry.attempts == 2
        assert settings.proxy == "http://proxy.example.test:3128"


BAD_FILES: list[tuple[str, str]] = [
    ("signing_url = 5", "signing_url must be a URL"),
    ('timeout = "Zaphod"', "timeout must be a finite number greater than 0"),
    ('allow_insecure_http = "no"', "allow_insecure_http must be true or false"),
    ("proxy = 5", "proxy must be the URL of an HTTP proxy"),
    ('retry_attempts = "Zaphod"', "retry_attempts must be a whole number, 1 or more"),
    ("retry_attempts = true", "retry_attempts must be a whole number, 1 or more"),
    ("settle = -1", "settle must be a finite number of seconds, 0 or more"),
    ("settle = true", "settle must be a finite number of seconds, 0 or more"),
    ("close_session = false", "unknown setting close_session"),
    ('signing_url = "http://s.example.test"', "unencrypted"),
    ("signing_ulr = 'x'", "unknown setting signing_ulr; did you mean signing_url"),
    ("tls = 1", "unknown setting tls"),
    ("retry = 1", "unknown setting retry"),
    ("session_factory = 1", "unknown setting session_factory"),
    ("[signing]\nurl = 'x'", "unknown setting signing"),
    ("Zaphod", "not valid TOML"),
    ("timeout = " + "[" * 100_000, "not valid TOML"),
]


@pytest.mark.parametrize(("text", "reason"), BAD_FILES, ids=lambda text: text[:40])
def test_file_that_cannot_be_right_is_rejected(tmp_path: Path, text: str, reason: str) -> None:
    config = _file(tmp_path, text)
    with pytest.raises(ds.ConfigurationError, match=reason) as caught:
        ds.Settings.from_toml(config)
    assert "Zaphod" not in str(caught.value)
    with pytest.raises(ds.ConfigurationError, match=reason):
        ds.Settings.from_env({"DIRECTSUITE_CONFIG": str(config)})


def test_file_that_cannot_be_read_is_rejected(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    for path, reason in (
        (tmp_path / "none.toml", "it does not exist"),
        (tmp_path, "can't be read"),
        (binary, "not text in UTF-8"),
    ):
        with pytest.raises(ds.ConfigurationError, match=reason):
            ds.Settings.from_toml(path)


def test_repr_hides_what_may_hold_credentials() -> None:
    assert "Zaphod" not in repr(ds.Settings(proxy="http://Zaphod:Zaphod@proxy.example.test"))


ODD_SETTINGS: list[tuple[str, Any]] = [
    *(("tls", value) for value in (False, True, 0, "", ssl.CERT_NONE, ssl.SSLContext)),
    *((name, value) for name in ("allow_insecure_http", "keep_alive", "close_session") for value in ("false", 0, None)),
    *(
        ("proxy", value)
        for value in (
            "http://Zaphod:Zaphod@proxy.example.test:Zaphod",
            "http://Zaphod:Zaphod@proxy.example.test:99999",
            "Zaphod:Zaphod@proxy.example.test",
            "socks5://Zaphod:Zaphod@proxy.example.test",
            "http://Zaphod:Zaphod\u4e2d@proxy.example.test",
            "http://Zap%3Ahod:Zaphod@proxy.example.test",
            "http://proxy.example.test?Zaphod",
            "http://[Zaphod",
            b"http://proxy.example.test",
            5,
        )
    ),
    *(("retry", value) for value in (None, 3, True, "Zaphod", ds.RetryPolicy)),
    *(("session_factory", value) for value in (5, "Zaphod", len)),
    *(("circuit_failures", value) for value in (-1, 1.0, True, None, 2**63)),
    *(("signing_url", value) for value in (5, b"https://signing.example.test", ["Zaphod"], object())),
    *((name, value) for name in LIMITS for value in (10**400, [1], "Zaphod")),
    ("burst", 2**63),
]


@pytest.mark.parametrize(("name", "value"), ODD_SETTINGS)
def test_value_that_cannot_be_right_is_rejected_and_shown_nowhere(name: str, value: Any) -> None:
    with pytest.raises(ds.ConfigurationError, match=f"^{name} (must be|must not) ") as caught:
        ds.Settings(**{name: value})
    assert type(caught.value) is ds.ConfigurationError
    assert _find_name(caught.value) == []


def test_password_of_a_url_is_in_no_frame_of_a_rejection(tmp_path: Path) -> None:
    urls = {"DIRECTSUITE_SIGNING_URL": "https://alice:Zaphod@signing.example.test"}
    with_token = urls | {"DIRECTSUITE_TOKEN": "Zaphod"}
    config = _file(tmp_path, 'proxy = "http://alice:Zaphod@proxy.example.test:none"')
    for refused in (
        lambda: ds.Settings.from_env(urls),
        lambda: ds.Settings.from_env({"DIRECTSUITE_CONFIG": str(config)}),
        lambda: ds.Settings.from_toml(config),
        lambda: ds.DirectSuite.from_env(with_token),
    ):
        with pytest.raises(ds.ConfigurationError) as caught:
            refused()
        assert _find_name(caught.value) == []


def test_proxy_may_hold_credentials() -> None:
    url = "http://alice:s%C3%A4cret@proxy.example.test:3128/"
    assert ds.Settings(proxy=url).proxy == url


ODD_ENVIRONMENTS: list[tuple[Any, str]] = [
    (5, "environ must be a mapping"),
    ({"DIRECTSUITE_SIGNING_URL": 5}, "DIRECTSUITE_SIGNING_URL must be a string"),
    ({"DIRECTSUITE_CONFIG": 5}, "DIRECTSUITE_CONFIG must be a string"),
]


@pytest.mark.parametrize(("environ", "reason"), ODD_ENVIRONMENTS)
def test_environment_that_cannot_be_one_is_rejected(environ: Any, reason: str) -> None:
    with pytest.raises(ds.ConfigurationError, match=reason):
        ds.Settings.from_env(environ)


class Odd:
    """An object whose comparison fails."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise RuntimeError


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.complex_numbers(),
    st.decimals(),
    st.fractions(),
    st.text(),
    st.text().map(lambda text: f"http://{text}"),
    st.text().map(lambda text: f"https://{text}@signing.example.test:{text}"),
    st.binary(),
    st.lists(st.integers()),
    st.dictionaries(st.text(), st.integers()),
    st.sampled_from(
        [Odd(), object(), int, ds.Settings, ds.RetryPolicy(), ssl.create_default_context(), print, lambda: 5]
    ),
)


SETTING_NAMES = [field.name for field in attrs.fields(ds.Settings)]


@pytest.mark.parametrize("name", SETTING_NAMES)
def test_object_with_a_failing_comparison_is_rejected(name: str) -> None:
    options: Any = {name: Odd()}
    with pytest.raises(ds.ConfigurationError, match=name):
        ds.DirectSuite(ds.Settings(**options))


@given(st.sampled_from(SETTING_NAMES), ANYTHING)
def test_any_object_is_rejected_or_makes_a_suite(name: str, value: Any) -> None:
    refusal: ds.ConfigurationError | None = None
    try:
        repr(ds.DirectSuite(ds.Settings(**{name: value})))
    except ds.ConfigurationError as error:
        refusal = error
    assert refusal is None or (name in str(refusal) and refusal.__context__ is None)


def _find_name(error: BaseException) -> list[CapturedText]:
    return find_leaks([*collect_error_texts(error), *collect_frame_locals(error)], ["Zaphod"])


def _file(folder: Path, text: str) -> Path:
    path = folder / "directsuite.toml"
    path.write_text(text, encoding="utf-8")
    return path
