"""Step three: a mailbox of several hundred messages, read in every way that takes a whole folder."""

from __future__ import annotations

import asyncio
import hashlib
from email import policy
from email.message import EmailMessage
from typing import TYPE_CHECKING

import attrs

from directsuite.cli.demo.numbered_files import cleared
from directsuite.cli.demo.outcome import Done
from directsuite.cli.demo.scene import DOMAIN, MAILBOX_PASSWORD, Scene, hold

if TYPE_CHECKING:
    from collections.abc import AsyncIterable
    from pathlib import Path

    from directsuite.core.iteration import Listing
    from directsuite.messaging.models import MessageDetail
    from directsuite.messaging.service import Mailbox

_ADDRESS = f"results@{DOMAIN}"
_LARGEST = 48_000  # bytes of an attachment
_SENDER = "laboratory@hospital.example.test"


@attrs.frozen
class _Letter:
    """What a message says, as it was delivered."""

    subject: str
    body: str
    attachment: bytes

    @classmethod
    def numbered(cls, number: int) -> _Letter:
        """The message of this number: all different, the same on every run."""
        seed = hashlib.sha256(str(number).encode()).digest()
        size = 1 + int.from_bytes(seed[:4]) % _LARGEST
        return cls(
            subject=f"Résultat {number:04d}",
            body=f"Résultat {number}: température 36,{number % 10} °C.\n",
            attachment=(seed * (size // len(seed) + 1))[:size],
        )

    @classmethod
    def received(cls, message: MessageDetail) -> _Letter:
        """What a message says that came through the client."""
        parts = message.attachments
        body = (message.body or "").replace("\r\n", "\n")
        return cls(message.subject or "", body, parts[0].content if len(parts) == 1 else b"")

    def raw(self, number: int) -> bytes:
        """The message as RFC 5322 text."""
        message = EmailMessage(policy=policy.SMTP)
        message["From"], message["To"] = _SENDER, _ADDRESS
        message["Subject"] = self.subject
        message["Message-ID"] = f"<result-{number}@hospital.example.test>"
        message["Date"] = "Sun, 01 Mar 2026 09:30:00 +0000"
        message.set_content(self.body)
        message.add_attachment(self.attachment, maintype="application", subtype="octet-stream", filename="values.bin")
        return message.as_bytes()


async def run(scene: Scene) -> Done:
    """Fill the mailbox, then read it through each iterator: the count, the order and every byte have to be right."""
    count = scene.sizes.messages
    scene.progress.expect(count * 5)
    letters = [_Letter.numbered(number) for number in range(1, count + 1)]
    uids, raw = await _fill(scene, letters)
    box = scene.suite.mailbox(_ADDRESS, MAILBOX_PASSWORD)
    hold(await box.get_message_count() == count, f"the service counts other than {count} messages")
    hold(await box.get_uids() == uids, "the uids are not those of the delivery, ascending")
    for name, listing in (("iter_messages", box.iter_messages()), ("stream_messages", box.stream_messages())):
        await _compare(name, _counted(scene, listing), uids, letters)
    await _compare_metadata(scene, box, uids, letters)
    files = await _keep(scene, box, raw)
    return Done(
        count=count,
        thing="message",
        checked=(
            "iter_messages and stream_messages: count, order, every byte",
            "iter_metadata: count, order, subjects, no contents",
            "iter_raw: as they were delivered",
        ),
        files=tuple(files),
    )


async def _fill(scene: Scene, letters: list[_Letter]) -> tuple[list[int], list[bytes]]:
    """Deliver them one after the other; gives their uids, and the messages as they were delivered."""
    await scene.sandbox.add_account(_ADDRESS, MAILBOX_PASSWORD)
    uids: list[int] = []
    raw: list[bytes] = []
    for number, letter in enumerate(letters, start=1):
        raw.append(await asyncio.to_thread(letter.raw, number))
        uids.append(await scene.sandbox.deliver(_ADDRESS, raw[-1]))
        scene.progress.advance()
    return uids, raw


async def _compare(name: str, messages: AsyncIterable[MessageDetail], uids: list[int], letters: list[_Letter]) -> None:
    seen = 0
    async for message in messages:
        hold(seen < len(uids), f"{name} gives more than {len(uids)} messages")
        hold(message.uid == uids[seen], f"{name} gives uid {message.uid} in the place of {uids[seen]}")
        hold(_Letter.received(message) == letters[seen], f"{name} changes the message of uid {message.uid}")
        seen += 1
    hold(seen == len(uids), f"{name} gives {seen} messages of {len(uids)}")


async def _compare_metadata(scene: Scene, box: Mailbox, uids: list[int], letters: list[_Letter]) -> None:
    async with box.iter_metadata() as listing:
        found = [message async for message in _counted(scene, listing)]
    hold([message.uid for message in found] == uids, "iter_metadata gives other uids, or another order")
    subjects = [letter.subject for letter in letters]
    hold([message.subject for message in found] == subjects, "iter_metadata gives other subjects")
    hold(not any(message.body for message in found), "iter_metadata gives bodies")


async def _keep(scene: Scene, box: Mailbox, raw: list[bytes]) -> list[Path]:
    folder = cleared(scene.output / "mailbox", r"[0-9]{4,5}\.eml")
    files: list[Path] = []
    async with box.iter_raw() as listing:
        async for message in listing:
            hold(len(files) < len(raw) and message.data == raw[len(files)], "iter_raw gives other bytes than delivered")
            file = folder / f"{len(files) + 1:04d}.eml"
            await asyncio.to_thread(file.write_bytes, message.data or b"")
            files.append(file)
            scene.progress.advance()
    hold(len(files) == len(raw), f"iter_raw gives {len(files)} messages of {len(raw)}")
    return files


async def _counted(scene: Scene, listing: Listing[MessageDetail]) -> AsyncIterable[MessageDetail]:
    async with listing as messages:
        async for message in messages:
            yield message
            scene.progress.advance()
