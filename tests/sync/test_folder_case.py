"""Names of folders that differ only in case, which most services ignore."""

from __future__ import annotations

import pytest

from directsuite.sync import Kind, SyncStatus
from tests.sync.mail_service import MailScenario
from tests.sync.test_odd_servers import with_member


@pytest.fixture
def lenient(mail: MailScenario) -> MailScenario:
    mail.ignores_case = True
    return mail


def rename(mail: MailScenario, before: str, after: str) -> None:
    mail.folders[after] = mail.folders.pop(before)


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("listed", ["inbox", "Inbox"])
async def test_inbox_may_be_listed_in_any_case(listed: str, lenient: MailScenario) -> None:
    lenient.add("INBOX", 1, 2)
    lenient.response_changes["GetFolders"] = with_member("folders", [listed])
    await lenient.synchronise()
    assert lenient.sink.messages == {("INBOX", 1), ("INBOX", 2)}


async def test_folder_listed_in_another_case_delivers_no_message_again(lenient: MailScenario) -> None:
    lenient.add("INBOX.archive", 1, 2)
    await lenient.synchronise()
    rename(lenient, "INBOX.archive", "INBOX.Archive")
    lenient.add("INBOX.Archive", 3)
    for _ in range(3):
        await lenient.synchronise()
    del lenient.folders["INBOX.Archive"][1]
    for _ in range(2):
        await lenient.synchronise()
    status = await lenient.synchronise()
    assert lenient.sink.kinds == [Kind.NEW] * 3 + [Kind.GONE]
    assert lenient.sink.messages == {("INBOX.archive", 2), ("INBOX.archive", 3)}
    assert (status.status, status.folders) == (SyncStatus.UP_TO_DATE, {})


async def test_folder_configured_in_another_case_delivers_no_message_again(lenient: MailScenario) -> None:
    lenient.add("INBOX.Archive", 1, 2)
    lenient.names = ("INBOX.Archive",)
    await lenient.synchronise()
    lenient.names = ("inbox.archive", "INBOX")
    del lenient.folders["INBOX.Archive"][1]
    for _ in range(3):
        await lenient.synchronise()
    lenient.names = None
    status = await lenient.synchronise()
    assert lenient.sink.kinds == [Kind.NEW, Kind.NEW, Kind.GONE]
    assert (status.status, status.folders) == (SyncStatus.UP_TO_DATE, {})


async def test_message_that_arrives_while_two_names_are_compared_is_delivered_once(lenient: MailScenario) -> None:
    lenient.add("INBOX.archive", 1)
    await lenient.synchronise()
    rename(lenient, "INBOX.archive", "INBOX.Archive")
    listings = 0

    def list_uids(folder: str, document: dict[str, object]) -> dict[str, object]:
        nonlocal listings
        listings += folder == "INBOX.archive"
        if listings == 1:
            lenient.add("INBOX.Archive", 2)
        return document

    lenient.response_changes["GetUIDs"] = list_uids
    await lenient.synchronise()
    await lenient.synchronise()
    assert lenient.sink.messages == {("INBOX.archive", 1), ("INBOX.archive", 2)}
    assert lenient.sink.kinds == [Kind.NEW] * 2


async def test_two_folders_that_differ_only_in_case_are_both_synchronised(mail: MailScenario) -> None:
    mail.add("INBOX.archive", 1, 2)
    await mail.synchronise()
    mail.add("INBOX.Archive", 1, 2)
    await mail.synchronise()
    mail.names = ("INBOX.archive",)
    await mail.synchronise()
    mail.names = ("INBOX.Archive",)
    mail.add("INBOX.Archive", 3)
    await mail.synchronise()
    assert mail.sink.messages == {(name, uid) for name in ("INBOX.archive", "INBOX.Archive") for uid in (1, 2)} | {
        ("INBOX.Archive", 3)
    }
    assert mail.sink.kinds == [Kind.NEW] * 5


async def test_folder_renamed_in_case_by_a_strict_service_is_moved(mail: MailScenario) -> None:
    mail.add("INBOX.archive", 1, 2)
    await mail.synchronise()
    rename(mail, "INBOX.archive", "INBOX.Archive")
    await mail.synchronise()
    assert mail.sink.kinds == [Kind.NEW] * 2 + [Kind.MOVED] * 2
    assert mail.sink.messages == {("INBOX.Archive", 1), ("INBOX.Archive", 2)}


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("has_both", [False, True])
async def test_folder_configured_anew_in_another_case_of_a_strict_service(has_both: bool, mail: MailScenario) -> None:
    mail.add("INBOX.archive", 1, 2)
    mail.names = ("INBOX.archive",)
    await mail.synchronise()
    if not has_both:
        del mail.folders["INBOX.archive"]
    mail.add("INBOX.Archive", 7)
    mail.names = ("INBOX.Archive",)
    status = await mail.synchronise()
    assert ("INBOX.Archive", 7) in mail.sink.messages
    assert (status.status, status.folders) == (SyncStatus.UP_TO_DATE, {})


async def test_two_folders_with_the_same_uids_are_both_synchronised(mail: MailScenario) -> None:
    mail.add("INBOX.archive", 1, 2)
    mail.names = ("INBOX.archive",)
    await mail.synchronise()
    mail.add("INBOX.Archive", 1, 2)
    mail.names = ("INBOX.Archive",)
    await mail.synchronise()
    assert mail.sink.messages == {(name, uid) for name in ("INBOX.archive", "INBOX.Archive") for uid in (1, 2)}


async def test_unchanged_folder_in_another_case_is_not_compared_in_each_round(lenient: MailScenario) -> None:
    lenient.add("INBOX.archive", 1, 2)
    await lenient.synchronise()
    rename(lenient, "INBOX.archive", "INBOX.Archive")
    synchronizer = lenient.make_synchronizer()
    await synchronizer.once()
    before = lenient.requested_operations.count("GetUIDs")
    await synchronizer.once()
    assert lenient.requested_operations.count("GetUIDs") == before + 2  # INBOX, INBOX.archive
