"""A server in the manner of some Java stacks, read by the same client: the same models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import directsuite as ds
from directsuite import types

from .scenario import BOB, Scenario, make_message

if TYPE_CHECKING:
    from directsuite.sandbox.quirks import Profile

Read = Callable[[ds.Mailbox], Awaitable[Any]]

JAVAMAIL = {"modified": False, "saved": True, "strict": True}
"""Members that the profile adds to a message."""


async def listed(listing: Any) -> list[Any]:
    return [message async for message in listing]


def of_folder(method: str, folder: str) -> Read:
    if method.startswith(("iter_", "stream_")):
        return lambda box: listed(getattr(box, method)(folder))
    return lambda box: getattr(box, method)(folder)


def status_of(smtp_id: str) -> Read:
    return lambda box: box.get_message_status(smtp_id)


BY_FOLDER = (
    "get_messages",
    "get_message_metadata",
    "get_unread_messages",
    "get_uids",
    "get_message_count",
    "iter_messages",
    "iter_metadata",
    "iter_raw",
    "stream_messages",
)

# Reads of a mailbox with one message in INBOX, two in INBOX.two, none in INBOX.Drafts.
READS: dict[str, Read] = {
    **{
        f"{method} of {folder}": of_folder(method, folder)
        for method in BY_FOLDER
        for folder in ("INBOX", "INBOX.two", "INBOX.Drafts")
    },
    "one raw message": lambda box: box.get_raw_messages_by_uids("INBOX", [1]),
    "two raw messages": lambda box: box.get_raw_messages_by_uids("INBOX.two", [1, 2]),
    "no raw message": lambda box: box.get_raw_messages_by_uids("INBOX", [999]),
    "one folder below": lambda box: box.get_folders("INBOX.a"),
    "no folder below": lambda box: box.get_folders("INBOX.two"),
    "status of nothing": lambda box: box.get_message_status("<nothing@x>"),
}


def plain(answer: Any) -> Any:
    """Return the result without the members that the profile adds, and without messages."""
    if isinstance(answer, list):
        return list(map(plain, answer))  # pyright: ignore[reportUnknownArgumentType]  a list of anything
    if isinstance(answer, ds.MessageDetail):
        extra = {name: value for name, value in answer.extra.items() if name not in JAVAMAIL}
        return attrs.evolve(answer, extra=extra)
    if isinstance(answer, types.APIResponse):
        return attrs.evolve(answer, message=None)
    return answer


async def of_profile(world: Scenario, profile: Profile, read: Read) -> Any:
    world.sandbox.profile = profile
    return await read(world.box)


async def test_both_profiles_give_the_same_models(scenario: Scenario) -> None:
    for folder in ("INBOX.two", "INBOX.a.b"):
        await scenario.box.create_folder(folder)
    await scenario.deliver("alone")
    await scenario.deliver("first", "second", folder="INBOX.two")
    for name, read in READS.items():
        strict = await of_profile(scenario, "strict", read)
        java = await of_profile(scenario, "java", read)
        assert plain(java) == plain(strict), name


async def test_status_of_one_and_of_several_recipients(scenario: Scenario) -> None:
    for recipients in ([BOB], [BOB, "slow@ok.test"]):
        smtp_id = (await scenario.box.send(make_message("Status", *recipients))).smtp_id or ""
        strict = await of_profile(scenario, "strict", status_of(smtp_id))
        java = await of_profile(scenario, "java", status_of(smtp_id))
        assert [record.to for record in java.records] == recipients
        assert plain(java) == plain(strict)


async def test_members_of_the_server_s_own_are_kept(scenario: Scenario) -> None:
    await scenario.deliver("a")
    scenario.sandbox.profile = "java"
    for received in (await scenario.box.get_messages(), await listed(scenario.box.stream_messages())):
        assert [{name: message.extra[name] for name in JAVAMAIL} for message in received] == [JAVAMAIL]


async def test_changes_and_sends_work_with_this_profile(scenario: Scenario) -> None:
    scenario.sandbox.profile = "java"
    assert (await scenario.box.send(make_message())).smtp_id
    await scenario.box.create_folder("INBOX.a")
    uids = await scenario.deliver("a")
    await scenario.box.move_messages_by_uids("INBOX", "INBOX.a", uids)
    assert await scenario.box.get_message_count("INBOX.a") == 1
    with pytest.raises(ds.AuthenticationError):
        await scenario.suite.mailbox(BOB, "wrong").get_uids()
