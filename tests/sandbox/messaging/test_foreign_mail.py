"""Messages that this project did not make, through everything that a mailbox does with a message.

They are test files of packages that read mail and of Python's own email package, and are fetched when the test runs.
"""

from __future__ import annotations

import email.policy
import importlib.util
import re
import subprocess
import sys
import tarfile
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.messaging.mailbox_server import ALICE, BOB, encode_base64, make_credentials, open_messaging_server

PACKAGES = ("flufl.bounce", "mail-parser", "mailbits")
HEADER = re.compile(
    rb"(from|to|subject|date|received|return-path|mime-version|message-id|content-type)[ \t]*:", re.IGNORECASE
)
KINDS = {"to": "TO", "cc": "CC", "bcc": "BCC"}


def is_message(content: bytes) -> bool:
    """Return True if three different headers of mail precede the first blank line."""
    head = re.split(rb"\r?\n\r?\n", content.lstrip(), maxsplit=1)[0]
    return len({match[1].lower() for line in head.splitlines() if (match := HEADER.match(line))}) >= 3


def fetched(folder: Path) -> set[bytes]:
    """Return the messages in the packages' sources and in this Python, each once."""
    interpreter = getattr(sys, "_base_executable", sys.executable)  # a virtual environment may be without pip
    download = [interpreter, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(folder)]
    subprocess.run([*download, *PACKAGES], check=True, timeout=300)
    files: list[bytes] = []
    for archive in sorted(folder.glob("*.tar.gz")):
        with tarfile.open(archive) as tar:
            members = [member for member in tar if member.isfile() and Path(member.name).suffix != ".py"]
            files += [opened.read() for member in members if (opened := tar.extractfile(member))]
    python_s = importlib.util.find_spec("test")
    if python_s is not None and python_s.submodule_search_locations:
        data = Path(python_s.submodule_search_locations[0], "test_email", "data")
        files += [path.read_bytes() for path in data.glob("*") if path.is_file()]
    return set(filter(is_message, files))


def read_by_registry(raw: bytes) -> dict[str, list[str]]:
    """Return the addresses of each header that Python's header registry reads without a defect, by its lower-case name.

    Repeated headers and unusual addresses are left out: the registry decodes encoded words inside addresses.
    """
    message = BytesHeaderParser(policy=email.policy.default).parsebytes(raw)
    found: dict[str, list[str]] = {}
    for name in ("from", "reply-to", *KINDS):
        if len(message.get_all(name, [])) != 1:
            continue
        header: Any = message[name]
        addresses = [address.addr_spec for address in header.addresses]
        if addresses and not header.defects and all(re.fullmatch(r"[^@\s\"]+@[^@\s]+", a) for a in addresses):
            found[name] = addresses
    return found


def read_by_sandbox(detail: dict[str, Any]) -> dict[str, list[str]]:
    """Return the same addresses from a MessageDetail."""
    found = {"from": [detail["sender"]], "reply-to": [detail["replyTo"]]}
    for name, kind in KINDS.items():
        found[name] = [recipient["email"] for recipient in detail["recipients"] if recipient["type"] == kind]
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sending a large body")  # by the test's own client
async def test_foreign_messages_are_saved_read_and_forwarded(tmp_path: Path) -> None:
    messages = sorted(fetched(tmp_path))
    assert len(messages) >= 100
    compared, otherwise = 0, list[Any]()
    async with open_messaging_server() as mail:
        for uid, raw in enumerate(messages, start=1):
            await mail.call_ok("SaveRawMessages", "INBOX", messages=[{"data": encode_base64(raw)}])
            (detail,) = (await mail.call_ok("GetMessagesByUIDs", "INBOX", uids=[uid]))["messages"]
            (stored,) = (await mail.call_ok("GetRawMessagesByUIDs", "INBOX", uids=[uid]))["messages"]
            assert stored["data"] == encode_base64(raw)
            forward = {"auth": make_credentials(), "uids": [uid], "recipients": [{"email": BOB, "type": "TO"}]}
            await mail.call_ok("Forward", "INBOX", body=forward)
            known, read = read_by_registry(raw), read_by_sandbox(detail)
            for name, addresses in known.items():
                expected = addresses[:1] if name in ("from", "reply-to") else addresses
                compared += 1
                if read[name] != expected:
                    otherwise.append((uid, name, read[name], expected))
        forwarded = await mail.get_messages("INBOX", BOB)
        assert [message["sender"] for message in forwarded] == [ALICE] * len(messages)
        assert all(message["body"] or message["attachments"] for message in forwarded)
    assert otherwise == []
    assert compared > len(messages)
    sys.stdout.write(f"{len(messages)} messages; {compared} headers of addresses compared with Python's reading\n")
