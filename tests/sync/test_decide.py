"""The decisions of a round: the tables of directsuite.sync.decide."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.sync.decide import (
    Certainty,
    Comparison,
    FolderMemory,
    FolderSnapshot,
    Metadata,
    UidListing,
    change_kind,
    confirm_deletions,
    has_surely_left,
    needs_full_resync,
    rank_origins,
    rows_after_leaving,
)
from directsuite.sync.model import LISTED_STATES, STATE_AFTER_LEAVING, Kind, MessageRow, MessageState, StoredFolder

UIDS = st.integers(1, 12)
IDENTITIES = st.sampled_from([b"a", b"b", b"c", b"d"])
METADATA = st.dictionaries(UIDS, st.tuples(IDENTITIES, st.booleans()))
FOLDER = StoredFolder(id=1, name="INBOX")
MOVED_ON = StoredFolder(id=1, name="INBOX", uid_validity=2)


def row(
    uid: int,
    state: MessageState = MessageState.LIVE,
    *,
    folder: int = 1,
    uid_validity: int = 1,
    retry_ms: int | None = None,
) -> MessageRow:
    return MessageRow(
        folder=folder,
        uid_validity=uid_validity,
        uid=uid,
        state=state,
        identity=b"a",
        digest=b"d",
        attempts=2 if retry_ms else 0,
        retry_ms=retry_ms,
    )


def snapshot(uids: set[int], recorded: Mapping[int, MessageState]) -> FolderSnapshot:
    return FolderSnapshot(FolderMemory(FOLDER), UidListing(frozenset(uids)), recorded)


AS_IT_WAS = None
CHANGED = snapshot({1, 2}, {1: MessageState.LIVE})
ODD = snapshot({1}, {2: MessageState.LIVE})


@pytest.mark.parametrize(
    ("changed", "audit", "suspect", "needed"),
    [
        (AS_IT_WAS, False, False, False),
        (AS_IT_WAS, True, False, True),
        (AS_IT_WAS, False, True, True),
        (CHANGED, False, False, False),
        (CHANGED, True, False, True),
        (CHANGED, False, True, True),
        (ODD, False, False, True),
    ],
)
def test_full_resync_of_a_folder(changed: FolderSnapshot | None, audit: bool, suspect: bool, needed: bool) -> None:
    state = FolderMemory(FOLDER, certainty=Certainty.SUSPECT if suspect else Certainty.COMPLETE)
    assert needs_full_resync(state, changed, audit=audit) is needed


@pytest.mark.parametrize(
    ("uids", "recorded", "odd"),
    [
        ({1, 2, 3}, {1: MessageState.LIVE, 2: MessageState.LIVE}, False),  # one more at the end
        ({1}, {1: MessageState.LIVE, 2: MessageState.LIVE}, False),  # one deleted
        (set[int](), {1: MessageState.LIVE}, True),  # all of them
        (
            {4},
            {1: MessageState.LIVE, 2: MessageState.LIVE, 3: MessageState.LIVE, 4: MessageState.LIVE},
            True,
        ),  # many at once
        (set(range(4, 11)), dict.fromkeys(range(1, 11), MessageState.LIVE), True),  # three tenths of them
        ({1, 2}, {2: MessageState.LIVE}, True),  # an unknown uid below known ones
        ({1}, {1: MessageState.MISSING}, True),
        ({1}, {1: MessageState.DELETED}, True),
        ({1}, {1: MessageState.UNRESOLVED}, True),
        ({1, 2, 3}, {1: MessageState.POISON, 2: MessageState.IN_DOUBT, 3: MessageState.QUARANTINED_UNCONFIRMED}, False),
    ],
)
def test_a_folder_may_be_renumbered_if_its_listing_is_odd(
    uids: set[int], recorded: Mapping[int, MessageState], odd: bool
) -> None:
    assert snapshot(uids, recorded).may_be_renumbered is odd


@pytest.mark.parametrize("state", MessageState)
def test_fetching_of_a_listed_message_depends_on_its_state(state: MessageState) -> None:
    fetched = snapshot({1}, {1: state}).uids_to_fetch
    assert fetched == ([1] if state in (MessageState.DELETED, MessageState.UNRESOLVED, MessageState.IN_DOUBT) else [])
    live_again = [(each.uid, each.state) for each in Comparison({1: row(1, state)}, {}, {1}, audit=False).revived_rows]
    assert live_again == ([(1, MessageState.LIVE)] if state is MessageState.MISSING else [])


def test_each_state_of_a_listed_message_has_one_for_when_it_leaves() -> None:
    assert set(STATE_AFTER_LEAVING) == set(LISTED_STATES)
    left = rows_after_leaving(row(uid, state, retry_ms=5) for uid, state in enumerate(MessageState))
    assert [(each.state, each.attempts, each.retry_ms) for each in left] == [
        (STATE_AFTER_LEAVING[state], 0, None) for state in MessageState if state in LISTED_STATES
    ]


@given(rows=st.dictionaries(UIDS, IDENTITIES), listed=METADATA)
def test_messages_are_matched_one_to_one_by_unique_identity(
    rows: dict[int, bytes], listed: dict[int, tuple[bytes, bool]]
) -> None:
    metadata = {uid: Metadata(attrs.evolve(row(uid), identity=each), strong) for uid, (each, strong) in listed.items()}
    recorded = {
        uid: MessageRow(folder=1, uid_validity=1, uid=uid, state=MessageState.LIVE, identity=each)
        for uid, each in rows.items()
    }
    pairs = list(Comparison(recorded, metadata, metadata, audit=False).carried_over_pairs(MOVED_ON))
    identities = [each.row.identity for each in metadata.values()]
    for old, now in pairs:
        assert old.identity == now.identity == metadata[now.uid].row.identity
        assert metadata[now.uid].strong
        assert (now.folder, now.uid_validity, now.state) == (1, 2, MessageState.LIVE)
        assert identities.count(now.identity or b"") == list(rows.values()).count(now.identity or b"") == 1
    assert len({old.key for old, _ in pairs}) == len({now.key for _, now in pairs}) == len(pairs)


@pytest.mark.parametrize(
    "state", [MessageState.DELETED, MessageState.UNRESOLVED, MessageState.IN_DOUBT, MessageState.POISON]
)
def test_only_messages_in_sink_are_matched(state: MessageState) -> None:
    strong = {5: Metadata(attrs.evolve(row(5), identity=b"a", digest=None), strong=True)}
    left, missing = (
        Comparison({1: row(1, each)}, strong, {5}, audit=False).carried_over_pairs(MOVED_ON)
        for each in (state, MessageState.MISSING)
    )
    assert list(left) == []
    assert [(now.uid, now.digest) for _, now in missing] == [(5, b"d")]


def test_origins_of_a_message_are_ranked_by_distance() -> None:
    now = row(7)
    candidates = [
        ("Archive", row(9, MessageState.DELETED, folder=2)),
        ("Archive", row(7, folder=2)),
        ("INBOX", row(3)),
        ("INBOX", row(4, MessageState.DELETED)),
        ("INBOX", row(7, MessageState.DELETED)),
        ("INBOX", row(7, MessageState.UNRESOLVED, uid_validity=0)),
    ]
    ranked = [(name, each.uid, each.state) for name, each in rank_origins(now, candidates)]
    assert ranked == [
        ("INBOX", 7, MessageState.DELETED),
        ("INBOX", 7, MessageState.UNRESOLVED),
        ("INBOX", 3, MessageState.LIVE),
        ("Archive", 7, MessageState.LIVE),
        ("INBOX", 4, MessageState.DELETED),
        ("Archive", 9, MessageState.DELETED),
    ]


@pytest.mark.parametrize("state", MessageState)
def test_where_a_message_was_before(state: MessageState) -> None:
    now, there, elsewhere = row(7), row(7, state), row(8, state)
    assert bool(list(rank_origins(now, [("INBOX", there)]))) is (
        state not in (MessageState.IN_DOUBT, MessageState.QUARANTINED_UNCONFIRMED)
    )
    assert has_surely_left(now, there)
    assert has_surely_left(now, elsewhere) is (state not in LISTED_STATES)


@pytest.mark.parametrize(
    ("origin", "kind"),
    [
        (None, Kind.NEW),
        (row(7, MessageState.LIVE), Kind.RESTORED),
        (row(8, MessageState.LIVE), Kind.MOVED),
        (row(8, MessageState.MISSING), Kind.MOVED),
        (row(8, MessageState.UNRESOLVED), Kind.MOVED),
        (row(8, MessageState.DELETED), Kind.RESTORED),
        (row(8, MessageState.POISON), Kind.RESTORED),
        (row(7, MessageState.LIVE, uid_validity=0), Kind.MOVED),
    ],
)
def test_kind_of_change_follows_from_earlier_row(origin: MessageRow | None, kind: Kind) -> None:
    assert change_kind(row(7), origin) is kind


class Rounds:
    def __init__(self, missing: MessageRow, *, several_folders: bool = True) -> None:
        self.missing = missing
        self.several_folders = several_folders
        self.waiting_since: Mapping[tuple[int, int, int], int] = {}
        self.number = 0

    def next(self, *, there: bool = False, incomplete: bool = False, now_ms: int = 0) -> str:
        self.number += 1
        confirmed, self.waiting_since = confirm_deletions(
            [] if there else [("INBOX", self.missing)],
            self.waiting_since,
            round_number=self.number,
            now_ms=now_ms,
            several_folders=self.several_folders,
            any_folder_incomplete=incomplete,
        )
        return "reported" if confirmed else "waits" if self.waiting_since else "nothing"


def test_a_deletion_is_reported_when_no_folder_can_have_the_message() -> None:
    rounds = Rounds(row(1, MessageState.MISSING))
    assert [rounds.next() for _ in range(2)] == ["waits", "reported"]
    assert Rounds(row(1, MessageState.MISSING), several_folders=False).next() == "reported"


def test_incomplete_folders_delay_deletion_for_three_rounds() -> None:
    rounds = Rounds(row(1, MessageState.UNRESOLVED))
    assert [rounds.next(incomplete=True) for _ in range(4)] == ["waits", "waits", "waits", "reported"]


def test_a_message_that_returned_waits_again() -> None:
    rounds = Rounds(row(1, MessageState.MISSING))
    assert [rounds.next(), rounds.next(there=True), rounds.next(), rounds.next()] == [
        "waits",
        "nothing",
        "waits",
        "reported",
    ]


@pytest.mark.parametrize(
    ("second", "confirms"),
    [({1, 2, 3}, True), ({1, 2, 3, 9}, True), ({1, 2}, False), ({1, 2, 9}, False), ({1, 2, 3, 5}, False)],
)
def test_a_second_listing_confirms_the_first_if_it_has_all_its_uids(second: set[int], confirms: bool) -> None:
    first = snapshot({1, 2, 3}, dict.fromkeys(range(1, 7), MessageState.LIVE))
    assert first.is_confirmed_by(frozenset(second)) is confirms


@pytest.mark.parametrize("audit", [False, True])
def test_some_contents_are_compared_if_no_metadata_are(audit: bool) -> None:
    rows = {uid: row(uid) for uid in range(1, 26)}
    rows[25] = attrs.evolve(rows[25], digest=None)
    compared = Comparison(rows, {}, range(2, 26), audit).weakly_proven_rows
    assert [each.uid for each in compared] == [*range(2, 12), *range(15, 25)]


def test_a_rejected_deletion_waits_until_it_is_due() -> None:
    rounds = Rounds(row(1, MessageState.UNRESOLVED, retry_ms=500), several_folders=False)
    assert [rounds.next(now_ms=499), rounds.next(now_ms=500)] == ["nothing", "reported"]
