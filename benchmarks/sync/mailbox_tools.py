"""`python -m benchmarks mailbox-tools`: a first synchronisation into files, beside tools that fetch by IMAP.

The tools ask a local Dovecot that has the very messages which MaildirSink wrote. They are mbsync, which has each file
on the disk before it goes on, as MaildirSink has, and imap_tools, whose program writes files and leaves that to the
system. Dovecot is written in C and answers from files, the server of canned answers from memory: the figures are those
of both ends together, and tell what a user waits for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from benchmarks.measuring.machine import describe_machine, run_for_figures
from benchmarks.measuring.spread import compute_ratios, compute_spread
from benchmarks.server import run_server
from benchmarks.sync.works import ATTACHMENT_BYTES

_ROOT = Path(__file__).resolve().parents[2]
_ROUNDS = 5
_USER, _PASSWORD = "reader", "words"
_START_TIMEOUT = 20.0  # seconds for Dovecot to start
_DOVECOT = """\
base_dir = {folder}/run
state_dir = {folder}/run
log_path = {folder}/log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{folder}/mail
first_valid_uid = 1
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={folder}/mail
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
"""
_MBSYNC = """\
IMAPAccount dovecot
Host 127.0.0.1
Port {port}
User {user}
Pass {password}
SSLType None
AuthMechs LOGIN

IMAPStore far
Account dovecot

MaildirStore near
Inbox {folder}/mail

Channel all
Far :far:
Near :near:
Patterns INBOX
Create Near
Sync Pull New
SyncState {folder}/state
"""
_IMAP_TOOLS = """\
import pathlib, sys
from imap_tools import MailBoxUnencrypted

port, user, password, folder = sys.argv[1:]
with MailBoxUnencrypted("127.0.0.1", int(port)).login(user, password) as mailbox:
    for message in mailbox.fetch(bulk=50, mark_seen=False):
        pathlib.Path(folder, message.uid).write_bytes(message.obj.as_bytes())
"""


def measure_mailbox_tools(out: Path = _ROOT / "benchmarks" / "results") -> int:
    """Measure all, and write mailbox-tools.md; 2 where Dovecot or mbsync isn't installed."""
    if missing := [name for name in ("dovecot", "mbsync") if shutil.which(name) is None]:
        print(f"This needs {' and '.join(missing)}: install dovecot-imapd and isync.", file=sys.stderr)
        return 2
    page = _format_page(_measure_rounds(_ROUNDS))
    (out / "mailbox-tools.md").write_text(page, encoding="utf-8")
    print(page)
    return 0


def _measure_rounds(rounds: int) -> dict[str, list[float]]:
    """Messages a second of each, by rounds."""
    found: dict[str, list[float]] = {"directsuite": [], "mbsync": [], "imap_tools": []}
    with run_server() as url, tempfile.TemporaryDirectory(prefix="mail", dir="/tmp") as top:
        folder = Path(top)
        tools = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder / "tools"), "imap-tools"]
        subprocess.run(tools, check=True)  # noqa: S603  a package of that name
        (folder / "first").mkdir()
        messages = round(run_for_figures("benchmarks.sync.works", "maildir", url, str(folder / "first"))["messages"])
        with _run_dovecot(folder / "dovecot", next((folder / "first").rglob("new")).parent) as port:
            for _ in range(rounds):
                for name in found:
                    (fresh := folder / "fresh").mkdir()
                    if name == "directsuite":
                        rate = run_for_figures("benchmarks.sync.works", "maildir", url, str(fresh))["messages a second"]
                    else:
                        rate = messages / _time_tool(name, port, fresh, folder / "tools")
                        sizes = [each.stat().st_size for each in (fresh / "mail").rglob("*") if each.is_file()]
                        assert len([size for size in sizes if size > ATTACHMENT_BYTES]) == messages
                    found[name].append(rate)
                    shutil.rmtree(fresh)
    return found


def _time_tool(name: str, port: int, folder: Path, tools: Path) -> float:
    """Until this tool has all messages in the folder."""
    began = time.perf_counter()
    if name == "mbsync":
        settings = folder / "mbsyncrc"
        settings.write_text(_MBSYNC.format(port=port, user=_USER, password=_PASSWORD, folder=folder), "utf-8")
        command = ["mbsync", "--quiet", "--config", str(settings), "all"]
    else:
        (folder / "mail").mkdir()
        command = [sys.executable, "-c", _IMAP_TOOLS, str(port), _USER, _PASSWORD, str(folder / "mail")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(tools)})  # noqa: S603  those two
    return time.perf_counter() - began


@contextlib.contextmanager
def _run_dovecot(folder: Path, maildir: Path) -> Generator[int]:
    """The port of a server on loopback that has the messages of this Maildir."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    (folder / "run").mkdir(parents=True)
    inbox = folder / "mail"
    shutil.copytree(maildir, inbox)
    status = inbox.stat()
    owner = (status.st_uid, status.st_gid) if status.st_uid else (65534, 65534)  # it serves no mail as root
    for each in (inbox, *inbox.rglob("*")):
        os.chown(each, *owner)
    for each in (folder.parent, folder):
        each.chmod(0o755)
    settings = folder / "dovecot.conf"
    text = _DOVECOT.format(folder=folder, password=_PASSWORD, uid=owner[0], gid=owner[1], port=port)
    settings.write_text(text, encoding="utf-8")
    with subprocess.Popen(["dovecot", "-F", "-c", str(settings)]) as server:  # noqa: S603, S607
        try:
            _await_port(port)
            yield port
        finally:
            server.terminate()


def _await_port(port: int) -> None:
    until = time.monotonic() + _START_TIMEOUT
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def _format_page(found: dict[str, list[float]]) -> str:
    ours = found["directsuite"]
    rows = list[str]()
    for name, theirs in found.items():
        ratio, rate = compute_spread(compute_ratios(ours, theirs)), compute_spread(theirs)
        rows.append(f"| {name} | {rate.median:,.0f} | {ratio.median:.2f} [{ratio.low:.2f}-{ratio.high:.2f}] x |")
    table, about = "\n".join(rows), "\n".join(f"| {name} | {value} |" for name, value in describe_machine().items())
    return f"""# Beside mailbox tools

`python -m benchmarks mailbox-tools`: the first synchronisation of one mailbox into files, {_ROUNDS} times in turns.
{(__doc__ or "").split(chr(10), 2)[2]}
| | messages a second | directsuite / it |
|---|---|---|
{table}

Measured on:

| | |
|---|---|
{about}
"""
