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


NESTED, TOP = "INBOX.Cases.Open", "INBOX.Cases"
LISTINGS: dict[str, tuple[str, list[str], bool]] = {
    "neither it nor what was below": (NESTED, ["INBOX.Cases.Closed"], True),
    "an empty list": (NESTED, [], True),
    "in another case": (NESTED, ["inbox.cases.OPEN"], False),
    "by its last name only": (NESTED, ["Open"], False),
    "by its name below INBOX": (NESTED, ["Cases.Open"], False),
    "something that was below it": (NESTED, ["INBOX.Cases.Open.Now"], False),
    "something that was below it, by its name from there": (NESTED, ["Open.Now"], False),
    "something that was below it, by its name below INBOX": (NESTED, ["Cases.Open.Now"], False),
    "the other folders of INBOX": (TOP, ["INBOX.Sent", "INBOX.Other.Cases", "INBOX.Cases2"], True),
    "an empty list of INBOX": (TOP, [], False),
    "half of it, by names below INBOX": (TOP, ["Sent", "Cases.Open"], False),
}


@pytest.mark.parametrize(("folder", "folders", "gone"), LISTINGS.values(), ids=LISTINGS)
async def test_any_sign_of_the_folder_speaks_against_its_deletion(
    world: Scene, folder: str, folders: list[str], *, gone: bool
) -> None:
    listed = {"success": True, "code": 0, "folders": folders}
    world.sandbox.inject_fault("GetFolders", "status", status=200, body=listed, times=None)
    world.sandbox.inject_fault("DeleteFolder", "reset_after")
    told = await outcome_of(world.box.delete_folder(folder))
    assert (told is None) == gone


@pytest.mark.parametrize("folder", ["INBOX.Prüfung", "INBOX.R&D", "INBOX.Prüfung.Open"])
async def test_a_name_that_a_listing_may_spell_otherwise_is_never_proven_gone(world: Scene, folder: str) -> None:
    listed = {"success": True, "code": 0, "folders": ["INBOX.Sent", "INBOX.R&-D", "INBOX.Pr&APw-fung.Open"]}
    world.sandbox.inject_fault("GetFolders", "status", status=200, body=listed, times=None)
    world.sandbox.inject_fault("DeleteFolder", "reset_before")
    with pytest.raises(ds.OutcomeUnknownError):
        await world.box.delete_folder(folder)


async def test_a_good_answer_needs_no_look(world: Scene) -> None:
    looks = world.count("GetFolders")
    await world.box.delete_folder("INBOX.Cases")
    assert world.applied(looks) == 0
