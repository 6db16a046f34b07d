"""Deletions of folders whose response was lost."""

from __future__ import annotations

import pytest

import directsuite as ds

from .verification_scenario import VerificationScenario, await_outcome

pytestmark = pytest.mark.wide


@pytest.fixture
async def scenario(scenario: VerificationScenario) -> VerificationScenario:
    for folder in ("INBOX.Cases", "INBOX.Cases.Open", "INBOX.Other.Cases"):
        await scenario.box.create_folder(folder)
    return scenario


@pytest.mark.parametrize("folder", ["INBOX.Cases", "INBOX.Cases.Open", "inbox.Cases"])
@pytest.mark.parametrize("fault", ["reset_after", "truncate", "malformed", "reset_before", "status"])
async def test_deletion_is_reported_as_the_ledger_has_it(
    scenario: VerificationScenario, fault: str, folder: str
) -> None:
    scenario.sandbox.inject_fault("DeleteFolder", fault)
    reported = await await_outcome(scenario.box.delete_folder(folder))
    assert isinstance(reported, ds.OutcomeUnknownError) == (await scenario.count_effects("DeleteFolder") == 0)
    if isinstance(reported, ds.OutcomeUnknownError):
        assert reported.looked
        assert "get_folders()" in reported.how_to_find_out
    assert "INBOX.Other.Cases" in await scenario.box.get_folders()


async def test_unsubscribed_folder_is_not_taken_for_a_deleted_one(scenario: VerificationScenario) -> None:
    await scenario.box.set_folders_subscribed(["INBOX.Other.Cases"], subscribed=False)
    await scenario.lose("DeleteFolder", "reset_before", scenario.box.delete_folder("INBOX.Other.Cases"))


@pytest.mark.parametrize("folder", ["Archive", "Archive.Old", "INBOX.Gone.Below"])
async def test_deletion_of_unlistable_folder_is_never_confirmed(scenario: VerificationScenario, folder: str) -> None:
    await scenario.lose("DeleteFolder", "reset_before", scenario.box.delete_folder(folder))
    assert (scenario.clock.now > 0) == folder.startswith("INBOX.")  # outside of it nothing is looked for


NESTED, TOP = "INBOX.Cases.Open", "INBOX.Cases"
ENCODED = ["INBOX.Sent", "INBOX.R&-D", "INBOX.Pr&APw-fung.Open"]
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
    "names in UTF-7": ("INBOX.Prüfung", ENCODED, False),
    "an ampersand in UTF-7": ("INBOX.R&D", ENCODED, False),
    "something below a name in UTF-7": ("INBOX.Prüfung.Open", ENCODED, False),
}


@pytest.mark.parametrize(("folder", "folders", "gone"), LISTINGS.values(), ids=LISTINGS)
async def test_any_sign_of_the_folder_speaks_against_its_deletion(
    scenario: VerificationScenario, folder: str, folders: list[str], *, gone: bool
) -> None:
    listed = {"success": True, "code": 0, "folders": folders}
    scenario.sandbox.inject_fault("GetFolders", "status", status=200, body=listed, times=None)
    scenario.sandbox.inject_fault("DeleteFolder", "reset_after")
    reported = await await_outcome(scenario.box.delete_folder(folder))
    assert (reported is None) == gone
