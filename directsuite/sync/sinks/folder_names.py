"""Names of folders as directories: Maildir++, for what stands under INBOX, with modified UTF-7 (RFC 3501, 5.1.3).

    INBOX ──────────► (the mailbox's own directory)
    INBOX.Sent ─────► .Sent
    INBOX.A.B/C ────► .A.B%2FC        printable ASCII that a directory can't have: percent-encoded
    Bücher ─────────► .%~B&APw-cher   not under INBOX: marked

No two folders have the same directory, and none has one outside of the mailbox's: every name is plain ASCII, begins
with one dot, and has no slash. An empty part is a percent sign, and so begins what is not the folder's own.
"""

from __future__ import annotations

import base64
import hashlib
import re

from directsuite.messaging.arguments import INBOX

_LONGEST = 200  # bytes; file systems take 255
_KEPT = 20  # characters of a name that is too long: at most 8 bytes each
_ODD = re.compile(r"""[^ -~]+|[&%/\\:*?"<>|~]""")
_DEVICES = re.compile(r"(?i:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9]) *(?:\.|\Z)")


def directory_of_mailbox(mailbox: str) -> str:
    """The name of a mailbox's directory: for a Direct address, the address."""
    name = _component(mailbox)
    if name.startswith(".") or _DEVICES.match(name):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    return _ended(_shortened(name, mailbox))


def directory_of_folder(folder: str) -> str:
    """The name of a folder's directory in its mailbox's; empty for INBOX, which is the mailbox's itself."""
    if folder == INBOX:
        return ""
    root, dot, below = folder.partition(".")
    inside = root == INBOX and bool(dot)
    name = below if inside else folder
    return "." + ("" if inside else "%~") + _ended(_shortened(".".join(map(_component, name.split("."))), name))


def _component(text: str) -> str:
    return _ODD.sub(_encoded, text) or "%"


def _encoded(odd: re.Match[str]) -> str:
    text = odd[0]
    if text == "&":
        return "&-"
    if text.isascii() and text.isprintable():
        return f"%{ord(text):02X}"
    utf16 = text.encode("utf-16-be", "surrogatepass")
    return "&" + base64.b64encode(utf16, b"+,").rstrip(b"=").decode("ascii") + "-"


def _ended(name: str) -> str:
    """The name with a blank or dot at its end encoded, which Windows drops."""
    return f"{name[:-1]}%{ord(name[-1]):02X}" if name.endswith((" ", ".")) else name


def _shortened(name: str, text: str) -> str:
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{_component(text[:_KEPT].replace('.', '_'))}%-{digest}"
