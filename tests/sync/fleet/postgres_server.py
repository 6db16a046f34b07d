"""A temporary PostgreSQL server for tests."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psycopg

_NUMBERS = itertools.count(1)
_END_OTHERS = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def find_binaries() -> Path | None:
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "pg_ctl").exists()), None)


class PostgresServer:
    def __init__(self, folder: Path, where: Path, port: int) -> None:
        self._folder = folder
        self._where = where
        self.port = port
        self._empty = list[str]()

    def start(self) -> None:
        own = {
            "listen_addresses": "127.0.0.1",
            "max_connections": 200,
            "fsync": "off",  # it is killed, and its machine never: what it wrote is there without being on disk
            "authentication_timeout": 3,  # seconds; while it stops, it waits for idle connections
        }
        settings = " ".join(f"-c {name}={value}" for name, value in own.items())
        self._run(
            "pg_ctl",
            "-D",
            self._folder / "pg",
            "-l",
            self._folder / "log",
            "-o",
            f"-p {self.port} -k {self._folder} {settings}",
            "-w",
            "start",
        )

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", self._folder / "pg", "-m", mode, "-w", "stop")

    @property
    def pids(self) -> list[int]:
        postmaster = int((self._folder / "pg" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return [postmaster, *map(int, children)]

    def make_conninfo(self, database: str = "postgres") -> str:
        return f"host=127.0.0.1 port={self.port} user=tester dbname={database}"

    def create_database(self) -> str:
        name = f"test{os.getpid()}_{next(_NUMBERS)}"
        with psycopg.connect(self.make_conninfo(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0".encode())
        return self.make_conninfo(name)

    @contextlib.contextmanager
    def borrow_database(self) -> Generator[str]:
        conninfo = self._empty.pop() if self._empty else self.create_database()
        yield conninfo
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(_END_OTHERS)
            connection.execute("DROP SCHEMA IF EXISTS directsuite, public CASCADE")
            connection.execute("CREATE SCHEMA public")
        self._empty.append(conninfo)

    @contextlib.contextmanager
    def freeze(self) -> Generator[None]:
        pids = self.pids
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _run(self, name: str, *arguments: Any) -> None:
        command = [str(self._where / name), *map(str, arguments)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **_get_user_options())


@contextlib.contextmanager
def run_server(where: Path) -> Generator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)
        server = PostgresServer(folder, where, _find_free_port())
        server._run(
            "initdb", "-D", folder / "pg", "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"
        )
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _get_user_options() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {"cwd": "/"}
    return {"user": "postgres", "group": "postgres", "extra_groups": [], "cwd": "/"}


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
