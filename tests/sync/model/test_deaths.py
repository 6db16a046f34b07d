"""A process ends while it tells a sink outside the store, and what it told of is elsewhere before the next one begins.

event ──► told of, in part or whole ──► the process ends ──► afterwards ──► another process ──► the sink is the mailbox
"""

from __future__ import annotations

import contextlib
import email
import email.policy
from collections.abc import Awaitable, Callable, Generator, Sequence
from pathlib import Path

import pytest

from directsuite.sync.model import Change
from directsuite.sync.sinks.iterator import ChangeStream
from directsuite.sync.sinks.maildir import MaildirSink, build_folder_dir, build_mailbox_dir

from .fake_remote import DiedError
from .machine import DeliveringMachine
from .mirror import Mirror
from .simulated_mailbox import MAILBOX, Act

I, A, S = "INBOX", "Archive", "Sent"  # noqa: E741

EVENTS: dict[str, Act] = {
    "new": ("deliver", (I, 1)),
    "moved": ("move", (I, A, 0)),
    "copied": ("copy", (I, A, 0)),
    "renumbered": ("renumber", (I, 50, False)),
}
PLACES = {"new": (I, -1), "moved": (A, -1), "copied": (A, -1), "renumbered": (I, 0)}
"""Where the message of the event is then."""
AFTERWARDS: dict[str, Callable[[str, int], Act]] = {
    "deleted": lambda folder, index: ("delete", (folder, index)),
    "moved": lambda folder, index: ("move", (folder, S, index)),
    "renumbered": lambda folder, _: ("renumber", (folder, 100, True)),
}


async def _await(work: Awaitable[object]) -> None:
    await work


class Callback:
    def __init__(self, mirror: Mirror, _: Path) -> None:
        self._mirror = mirror

    async def deliver(self, changes: Sequence[Change]) -> None:
        self._mirror.write(changes)

    def here(self) -> list[tuple[str, str]]:
        return sorted((key.folder, content) for key, content in self._mirror.messages.items())


class Loop(Callback):
    async def deliver(self, changes: Sequence[Change]) -> None:
        async with ChangeStream(lambda deliver: _await(deliver(changes))) as stream:
            async for change in stream:
                self._mirror.write([change])


class Maildir:
    def __init__(self, _: Mirror, root: Path) -> None:
        self._root = root
        self.deliver = MaildirSink(root)

    def here(self) -> list[tuple[str, str]]:
        root = self._root / build_mailbox_dir(MAILBOX)
        return sorted(
            (folder, email.message_from_bytes(path.read_bytes(), policy=email.policy.default).get_content().strip())
            for folder in (I, A, S)
            for path in (root / build_folder_dir(folder) / "new").glob("*")
        )


class DyingMachine(DeliveringMachine):
    left: int | None = None

    def use(self, sink: Callback | Maildir) -> None:
        self.sink = sink

    async def deliver(self, changes: Sequence[Change]) -> None:
        if self.left is None:
            return await self.sink.deliver(changes)
        await self.sink.deliver(changes[: self.left])
        raise DiedError

    def ends(self, left: int) -> None:
        self.left = left
        with pytest.raises(DiedError):
            self.run_until_quiet()
        self.left = None
        self.rounds = self.process()

    def world_here(self) -> list[tuple[str, str]]:
        return sorted((folder, content) for folder, _, content in self.list_messages())


@contextlib.contextmanager
def machine() -> Generator[DyingMachine]:
    made = DyingMachine()
    try:
        made.begin(folders=3, named=True)
        yield made
    finally:
        made.teardown()


@pytest.mark.exhaustive
@pytest.mark.parametrize("sink", [Callback, Maildir, Loop])
@pytest.mark.parametrize("told", [0, 1, 9])
@pytest.mark.parametrize("kind", ["strong", "weak"])
@pytest.mark.parametrize("afterwards", AFTERWARDS)
@pytest.mark.parametrize("event", EVENTS)
def test_the_sink_is_the_mailbox_after_the_next_rounds(
    event: str, afterwards: str, kind: str, told: int, sink: type[Callback | Maildir], tmp_path: Path
) -> None:
    with machine() as played:
        played.use(sink(played.mirror, tmp_path))
        played.world.act(("deliver", (I, 3, kind)))
        played.run_until_quiet()
        name, arguments = EVENTS[event]
        played.world.act((name, (*arguments, kind) if event == "new" else arguments))
        played.ends(told)
        played.world.act(AFTERWARDS[afterwards](*PLACES[event]))
        played.world.audit_only_folders.clear()
        played.run_until_quiet()
        assert played.sink.here() == played.world_here()
        played.idle()
