"""`python -m benchmarks mailbox-tools`: a first synchronisation into files, compared with tools that use IMAP.

The tools connect to a local Dovecot with the messages that MaildirSink wrote. mbsync syncs each file to the disk, as
MaildirSink does; the program with imap_tools does not. Dovecot is written in C and reads files, the server of prepared
responses uses memory. The figures include both ends, as for a user.
"""

from __future__ import annotations

import argparse
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

from benchmarks import processes
from benchmarks.server import run_server
from benchmarks.sync.works import ATTACHMENT_BYTES, maildir

_ROUNDS = 5
_USER, _PASSWORD = "reader", "words"
_START_TIMEOUT = 20.0
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


def measure_mailbox_tools(options: argparse.Namespace) -> int:
    """Measure all, and write mailbox-tools.md. Return 2 if Dovecot or mbsync is not installed."""
    if missing := [name for name in ("dovecot", "mbsync") if shutil.which(name) is None]:
        print(f"Install dovecot-imapd and isync: {' and '.join(missing)} was not found.", file=sys.stderr)
        return 2
    found: dict[str, list[float]] = {"directsuite": [], "mbsync": [], "imap_tools": []}
    with run_server() as url, tempfile.TemporaryDirectory(prefix="mail", dir="/tmp") as top:
        folder = Path(top)
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder / "tools"), "imap-tools"]
        subprocess.run(install, check=True)  # noqa: S603
        (folder / "first").mkdir()
        messages = round(processes.run_work(maildir, url, str(folder / "first"))["messages"])
        with _run_dovecot(folder / "dovecot", next((folder / "first").rglob("new")).parent) as port:
            for _round in range(_ROUNDS):
                found["directsuite"].append(processes.run_work_in_folder(maildir, url)["messages per second"])
                for name in ("mbsync", "imap_tools"):
                    (fresh := folder / "fresh").mkdir()
                    found[name].append(messages / _time_tool(name, port, fresh, folder / "tools"))
                    sizes = [each.stat().st_size for each in (fresh / "mail").rglob("*") if each.is_file()]
                    assert len([size for size in sizes if size > ATTACHMENT_BYTES]) == messages
                    shutil.rmtree(fresh)
    rows = list[tuple[str, ...]]()
    for name, rates in found.items():
        ratio = processes.compute_spread(processes.compute_ratios(found["directsuite"], rates))
        rows.append((name, f"{processes.compute_spread(rates).median:,.0f}", f"{ratio} x"))
    table = processes.format_table(("", "messages per second", "directsuite / tool"), rows)
    page = _PAGE.format(table=table, machine=processes.format_machine())
    return processes.write_page("mailbox-tools.md", page, options.out)


def _time_tool(name: str, port: int, folder: Path, tools: Path) -> float:
    """Return the seconds until a tool has written all messages into the folder."""
    start = time.perf_counter()
    if name == "mbsync":
        settings = folder / "mbsyncrc"
        settings.write_text(_MBSYNC.format(port=port, user=_USER, password=_PASSWORD, folder=folder), "utf-8")
        command = ["mbsync", "--quiet", "--config", str(settings), "all"]
    else:
        (folder / "mail").mkdir()
        command = [sys.executable, "-c", _IMAP_TOOLS, str(port), _USER, _PASSWORD, str(folder / "mail")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(tools)})  # noqa: S603
    return time.perf_counter() - start


@contextlib.contextmanager
def _run_dovecot(folder: Path, maildir: Path) -> Generator[int]:
    """Run a server with the messages of a Maildir, and yield its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    (folder / "run").mkdir(parents=True)
    inbox = folder / "mail"
    shutil.copytree(maildir, inbox)
    status = inbox.stat()
    owner = (status.st_uid, status.st_gid) if status.st_uid else (65534, 65534)  # Dovecot does not serve as root
    for each in (inbox, *inbox.rglob("*")):
        os.chown(each, *owner)
    for each in (folder.parent, folder):
        each.chmod(0o755)
    settings = folder / "dovecot.conf"
    text = _DOVECOT.format(folder=folder, password=_PASSWORD, uid=owner[0], gid=owner[1], port=port)
    settings.write_text(text, encoding="utf-8")
    with subprocess.Popen(["dovecot", "-F", "-c", str(settings)]) as server:  # noqa: S603, S607
        try:
            end = time.monotonic() + _START_TIMEOUT
            while True:
                with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 1.0):
                    break
                if time.monotonic() > end:
                    raise TimeoutError("Dovecot did not start.")
                time.sleep(0.05)
            yield port
        finally:
            server.terminate()


_PAGE = f"""# Mailbox tools

`python -m benchmarks mailbox-tools`: the first synchronisation of one mailbox into files, {_ROUNDS} times, alternately.

{(__doc__ or "").partition(chr(10))[2].strip()}

{{table}}

{{machine}}"""
