"""Every grant against the sandbox's own OAuth endpoints: another reading of RFC 6749."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import aiohttp
import attrs
import pytest

import directsuite as ds
from directsuite.oauth.grants import ClientAuth, Grant
from directsuite.sandbox.server import DEMO_CLIENT, DEMO_LOGIN, Sandbox
from tests.sandbox.conftest import sandbox as sandbox

FAX_NUMBER = "15550100100"
BACK = "https://app.example.test/back?tenant=1"


def open_suite(sandbox: Sandbox, grant: Grant) -> ds.DirectSuite:
    return ds.DirectSuite(ds.Settings(fax_url=sandbox.fax_url, retry=ds.RetryPolicy.none()), token=grant)


async def fetch(suite: ds.DirectSuite) -> None:
    await suite.fax.get_multiple_message_info(FAX_NUMBER)


async def refresh_token(sandbox: Sandbox) -> str:
    form = {"grant_type": "password", "username": DEMO_LOGIN[0], "password": DEMO_LOGIN[1]}
    form |= {"client_id": DEMO_CLIENT[0], "client_secret": DEMO_CLIENT[1]}
    async with aiohttp.ClientSession() as http, http.post(sandbox.token_url, data=form) as answer:
        return str((await answer.json())["refresh_token"])


async def consent(request: ds.AuthorizationRequest) -> str:
    async with aiohttp.ClientSession() as http, http.get(request.url, allow_redirects=False) as answer:
        return answer.headers["Location"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("client_auth", "scope"), [("basic", None), ("body", "fax"), ("body", "pdf fax")])
@pytest.mark.parametrize("client", [DEMO_CLIENT, ("spaced: out", "per%cent+plus&ü")])
async def test_client_credentials_give_tokens(
    sandbox: Sandbox, client: tuple[str, str], client_auth: ClientAuth, scope: str | None
) -> None:
    await sandbox.add_client(*client)
    grant = ds.ClientCredentials(sandbox.token_url, *client, scope, client_auth=client_auth)
    async with open_suite(sandbox, grant) as suite:
        await fetch(suite)
        await sandbox.expire_tokens()
        await fetch(suite)
        sandbox.clock.advance(timedelta(hours=2))
        await fetch(suite)


@pytest.mark.parametrize(
    "client", [(DEMO_CLIENT[0], "wrong"), ("nobody", DEMO_CLIENT[1])], ids=["wrong secret", "unknown client"]
)
async def test_unknown_client_is_reported(sandbox: Sandbox, client: tuple[str, str]) -> None:
    async with open_suite(sandbox, ds.ClientCredentials(sandbox.token_url, *client)) as suite:
        with pytest.raises(ds.AuthenticationError, match=r"\(invalid_client\)") as caught:
            await fetch(suite)
    assert (caught.value.status, caught.value.code) == (401, "invalid_client")


async def test_refresh_tokens_rotate_and_the_saved_one_opens_the_next_suite(sandbox: Sandbox) -> None:
    saved = [ds.Secret(await refresh_token(sandbox))]
    for _ in range(2):
        grant = ds.RefreshToken(sandbox.token_url, *DEMO_CLIENT, saved[-1], on_rotated=saved.append)
        async with open_suite(sandbox, grant) as suite:
            for _ in range(3):
                await asyncio.gather(*(fetch(suite) for _ in range(10)))
                await sandbox.expire_tokens()
    assert len(saved) == len(set(saved)) == 7


async def test_complete_authorization_code_grant(sandbox: Sandbox) -> None:
    request = ds.AuthorizationRequest.to(
        sandbox.token_url.replace("/token", "/authorize"), DEMO_CLIENT[0], BACK, scope="fax"
    )
    saved: list[ds.Secret] = []
    grant = request.redeem(
        await consent(request), token_url=sandbox.token_url, client_secret=DEMO_CLIENT[1], on_rotated=saved.append
    )
    async with open_suite(sandbox, grant) as suite:
        await asyncio.gather(*(fetch(suite) for _ in range(100)))
        assert len(saved) == 1
        await sandbox.expire_tokens()
        await fetch(suite)
        assert len(saved) == 2
    for again, reported in ((grant, "already exchanged"), (attrs.evolve(grant), "it was already used")):
        async with open_suite(sandbox, again) as suite:
            with pytest.raises(ds.AuthenticationError, match=reported):
                await fetch(suite)


def configure(sandbox: Sandbox, folder: Path, **others: str) -> dict[str, str]:
    """Write a settings file with a client that has its secret in a file. Return the environment."""
    (folder / "client.secret").write_text(f"{DEMO_CLIENT[1]}\n")
    (folder / "client.secret").chmod(0o600)
    settings = {
        "fax_url": sandbox.fax_url,
        "token_url": sandbox.token_url,
        "client_id": DEMO_CLIENT[0],
        "client_secret_file": "client.secret",
        **others,
    }
    (folder / "config.toml").write_text("".join(f'{name} = "{text}"\n' for name, text in settings.items()))
    return {"DIRECTSUITE_CONFIG": str(folder / "config.toml")}


@pytest.mark.parametrize("scope", [{}, {"scope": "fax pdf"}])
async def test_configured_client_gets_tokens(sandbox: Sandbox, tmp_path: Path, scope: dict[str, str]) -> None:
    environ = configure(sandbox, tmp_path, **scope)
    async with ds.DirectSuite.from_env(environ, require=["fax"], timeout=5) as suite:
        await fetch(suite)


async def test_rotated_refresh_token_is_written_to_its_file(sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "refresh.token"
    file.write_text(first := await refresh_token(sandbox))
    file.chmod(0o640)
    (tmp_path / "refresh.token.new").write_text("of the user")
    environ = configure(sandbox, tmp_path, refresh_token_file="refresh.token")
    for _ in range(2):
        async with ds.DirectSuite.from_env(environ) as suite:
            await fetch(suite)
    assert file.read_text().strip() not in ("", first)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert (tmp_path / "refresh.token.new").read_text() == "of the user"
    names = ["client.secret", "config.toml", "refresh.token", "refresh.token.new"]
    assert [each.name for each in sorted(file.parent.glob("*"))] == names


_READ_GRANT = """
import sys
from directsuite.config_file import Configuration
print(Configuration.from_file(sys.argv[1]).read_grant().refresh_token)
"""
_BIND = 'mount --bind "$1/refresh.token" "$1/refresh.token" && exec "$2" -c "$3" "$1/config.toml"'


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="setpriv and unshare are commands of Linux")
@pytest.mark.parametrize(
    ("environment", "problem"),
    [("read-only folder", "this user may not create files in its folder"), ("mount", "it is mounted as a single file")],
)
def test_refresh_token_file_that_cannot_be_replaced_is_rejected(tmp_path: Path, environment: str, problem: str) -> None:
    (tmp_path / "config.toml").write_text(
        'token_url = "https://login.example.test/token"\nclient_id = "client"\nrefresh_token_file = "refresh.token"\n'
    )
    (tmp_path / "refresh.token").write_text("a-token\n")
    (tmp_path / "refresh.token").chmod(0o600)
    arguments = [sys.executable, "-c", _READ_GRANT, str(tmp_path / "config.toml")]
    if environment == "mount":
        prefix = ["unshare", "--map-root-user", "--mount"]
        arguments = ["sh", "-c", _BIND, "sh", str(tmp_path), sys.executable, _READ_GRANT]
    else:
        prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        tmp_path.chmod(0o500)
    if prefix and (shutil.which(prefix[0]) is None or subprocess.run([*prefix, "true"], check=False).returncode):
        pytest.skip("this system does not allow it")
    ended = subprocess.run([*prefix, *arguments], capture_output=True, text=True, check=False)
    tmp_path.chmod(0o700)
    assert ended.stdout == ""
    assert ended.stderr.splitlines()[-1] == (
        f"directsuite.errors.ConfigurationError: {tmp_path / 'config.toml'}, line 3: refresh_token_file can't be "
        f"replaced, because {problem}. If the server replaces the refresh token, the new one would be lost: move the "
        "file into a folder in which this user may create files, or, if the server never does this, set "
        "DIRECTSUITE_REFRESH_TOKEN instead"
    )


async def test_refresh_token_of_a_variable_is_kept_in_memory(sandbox: Sandbox, tmp_path: Path) -> None:
    environ = configure(sandbox, tmp_path)
    environ["DIRECTSUITE_REFRESH_TOKEN"] = await refresh_token(sandbox)
    async with ds.DirectSuite.from_env(environ) as suite:
        await fetch(suite)
        await sandbox.expire_tokens()
        await fetch(suite)
