"""Deletions of folders whose answer got lost."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import directsuite as ds

from .settling_scene import Scene, outcome_of, scene


@pytest.fixture
async def world() -> AsyncIterator[Scene]:
    async with scene() as running:
        for folder in ("INBOX.Cases", "INBOX.Cases.Open", "INBOX.Other.Cases"):
            await running.box.create_folder(folder)
        yield running


@pytest.mark.parametrize("folder", ["INBOX.Cases", "INBOX.Cases.Open", "inbox.Cases"])
@pytest.mark.parametrize("fault", ["reset_after", "truncate", "malformed", "reset_before", "status"])
async def test_a_deletion_is_told_as_the_ledger_has_it(world: Scene, fault: str, folder: str) -> None:
    world.sandbox.inject_fault("DeleteFolder", fault)
    told = await outcome_of(world.box.delete_folder(folder))
    assert isinstance(told, ds.OutcomeUnknownError) == (await world.effects("DeleteFolder") == 0)
    if isinstance(told, ds.OutcomeUnknownError):
        assert told.looked
        assert "get_folders()" in told.how_to_find_out
    assert "INBOX.Other.Cases" in await world.box.get_folders()


async def test_an_unsubscribed_folder_is_not_taken_for_a_deleted_one(world: Scene) -> None:
    await world.box.set_folders_subscribed(["INBOX.Other.Cases"], subscribed=False)
    world.sandbox.inject_fault("DeleteFolder", "reset_before")
    with pytest.raises(ds.OutcomeUnknownError):
        await world.box.delete_folder("INBOX.Other.Cases")


@pytest.mark.parametrize("folder", ["Archive", "Archive.Old", "INBOX.Gone.Below"])
async def test_a_folder_that_no_listing_would_show_is_never_proven_gone(world: Scene, folder: str) -> None:
    world.sandbox.inject_fault("DeleteFolder", "reset_before")
    with pytest.raises(ds.OutcomeUnknownError):
        await world.box.delete_folder(folder)
    assert (world.clock.time > 0) == folder.startswith("INBOX.")  # outside of it nothing is looked for


LISTINGS: dict[str, tuple[list[str], bool]] = {
    "neither it nor what was below": (["INBOX.Cases.Closed"], True),
    "an empty list": ([], True),
    "in another case": (["inbox.cases.OPEN"], False),
    "by its last name only": (["Open"], False),
    "something that was below it": (["INBOX.Cases.Open.Now"], False),
}


@pytest.mark.parametrize(("folders", "gone"), LISTINGS.values(), ids=LISTINGS)
async def test_any_sign_of_the_folder_speaks_against_its_deletion(
    world: Scene, folders: list[str], *, gone: bool
) -> None:
    listed = {"success": True, "code": 0, "folders": folders}
    world.sandbox.inject_fault("GetFolders", "status", status=200, body=listed, times=None)
    world.sandbox.inject_fault("DeleteFolder", "reset_after")
    told = await outcome_of(world.box.delete_folder("INBOX.Cases.Open"))
    assert (told is None) == gone


async def test_a_good_answer_needs_no_look(world: Scene) -> None:
    looks = world.count("GetFolders")
    await world.box.delete_folder("INBOX.Cases")
    assert world.applied(looks) == 0
