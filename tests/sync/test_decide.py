"""What a round decides: the tables of directsuite.sync.decide, and what holds whatever a folder has recorded."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.sync.decide import (
    FolderSnapshot,
    FolderState,
    FolderStep,
    confirm_deletions,
    has_surely_left,
    have_different_metadata,
    kind_of,
    may_number_as_before,
    missing_rows,
    next_step,
    ranked_origins,
    returned_rows,
    rows_carried_over,
    rows_to_compare,
    unproven_rows,
)
from directsuite.sync.identity import Match, Metadata
from directsuite.sync.model import LEAVING, LISTED, QUARANTINED, Folder, Kind, Row, State

UIDS = st.integers(1, 12)
RECORDED = st.dictionaries(UIDS, st.sampled_from(State), max_size=10)
IDENTITIES = st.sampled_from([b"a", b"b", b"c", b"d"])
METADATA = st.dictionaries(
    UIDS, st.builds(Metadata, identity=IDENTITIES, strong=st.booleans(), size=st.just(1), received_ms=st.just(0))
)
FOLDER = Folder(id=1, name="INBOX")
MOVED_ON = Folder(id=1, name="INBOX", uid_validity=2)


def row(
    uid: int, state: State = State.LIVE, *, folder: int = 1, uid_validity: int = 1, retry_ms: int | None = None
) -> Row:
    return Row(
        folder=folder,
        uid_validity=uid_validity,
        uid=uid,
        state=state,
        identity=b"a",
        digest=b"d",
        attempts=2 if retry_ms else 0,
        retry_ms=retry_ms,
    )


def snapshot(
    uids: set[int], recorded: Mapping[int, State], *, unsure: bool = False, suspect: bool = False
) -> FolderSnapshot:
    state = FolderState(FOLDER, unsure=unsure, suspect=suspect)
    return FolderSnapshot(state=state, uids=frozenset(uids), recorded=recorded, fingerprint=b"f")


AS_IT_WAS = None
CHANGED = snapshot({1, 2}, {1: State.LIVE})
ODD = snapshot({1}, {2: State.LIVE})


@pytest.mark.parametrize(
    ("changed", "audit", "suspect", "sentinels_due", "step"),
    [
        (AS_IT_WAS, False, False, False, FolderStep.NONE),
        (AS_IT_WAS, False, False, True, FolderStep.VERIFY),
        (AS_IT_WAS, True, False, False, FolderStep.FULL_RESYNC),
        (AS_IT_WAS, False, True, True, FolderStep.FULL_RESYNC),
        (CHANGED, False, False, False, FolderStep.VERIFY),
        (CHANGED, True, False, False, FolderStep.FULL_RESYNC),
        (CHANGED, False, True, False, FolderStep.FULL_RESYNC),
        (ODD, False, False, False, FolderStep.FULL_RESYNC),
    ],
)
def test_the_next_step_of_a_folder(
    changed: FolderSnapshot | None, audit: bool, suspect: bool, sentinels_due: bool, step: FolderStep
) -> None:
    state = FolderState(FOLDER, suspect=suspect)
    assert next_step(state, changed, audit=audit, sentinels_due=sentinels_due) is step


@pytest.mark.parametrize(
    ("uids", "recorded", "odd"),
    [
        ({1, 2, 3}, {1: State.LIVE, 2: State.LIVE}, False),  # one more at the end
        ({1}, {1: State.LIVE, 2: State.LIVE}, False),  # one deleted
        (set[int](), {1: State.LIVE}, True),  # all of them
        ({4}, {1: State.LIVE, 2: State.LIVE, 3: State.LIVE, 4: State.LIVE}, True),  # many at once
        (set(range(4, 11)), dict.fromkeys(range(1, 11), State.LIVE), True),  # three tenths of them
        ({1, 2}, {2: State.LIVE}, True),  # a uid below others that was never seen
        ({1}, {1: State.MISSING}, True),
        ({1}, {1: State.DELETED}, True),
        ({1}, {1: State.UNRESOLVED}, True),
        ({1, 2, 3}, {1: State.POISON, 2: State.IN_DOUBT, 3: State.POISON_IN_DOUBT}, False),
    ],
)
def test_what_makes_a_listing_odd(uids: set[int], recorded: Mapping[int, State], odd: bool) -> None:
    assert snapshot(uids, recorded).is_odd is odd


@given(uids=st.sets(UIDS), recorded=RECORDED, unsure=st.booleans())
def test_what_is_new_is_listed_and_what_is_missing_is_not(
    uids: set[int], recorded: dict[int, State], unsure: bool
) -> None:
    seen = snapshot(uids, recorded, unsure=unsure)
    assert seen.new == sorted(set(seen.new))
    assert set(seen.new) <= uids
    assert not seen.missing & uids
    for uid in uids.difference(seen.new):  # what isn't fetched is there already, or waits for its own time
        assert recorded[uid] in (State.LIVE, State.MISSING, *QUARANTINED)
    for uid in recorded.keys() - uids - seen.missing:  # and what isn't missing was never told to be there
        assert recorded[uid] not in LISTED


@pytest.mark.parametrize("state", State)
def test_what_becomes_of_a_listed_message(state: State) -> None:
    fetched = snapshot({1}, {1: state}).new
    assert fetched == ([1] if state in (State.DELETED, State.UNRESOLVED, State.IN_DOUBT) else [])
    live_again = [(each.uid, each.state) for each in returned_rows({1: row(1, state)}, {1})]
    assert live_again == ([(1, State.LIVE)] if state is State.MISSING else [])


def test_a_forgotten_listing_is_seen_again_whole_and_written_once() -> None:
    state = FolderState(Folder(id=1, name="INBOX", fingerprint=b"f"), mark=b"m")
    assert [each.fingerprint for each in state.forget_listing()] == [None]
    assert state.mark is None
    state.mark = b"n"
    assert state.forget_listing() == []
    assert state.mark is None


@given(uids=st.sets(UIDS), recorded=RECORDED)
def test_a_round_that_does_all_it_decides_leaves_nothing_to_decide(uids: set[int], recorded: dict[int, State]) -> None:
    first = snapshot(uids, recorded)
    rows = {uid: row(uid, state) for uid, state in recorded.items()}
    after = recorded | dict.fromkeys(first.new, State.LIVE)
    after |= {each.uid: each.state for each in missing_rows(rows[uid] for uid in first.missing)}
    after |= {each.uid: each.state for each in returned_rows(rows, uids)}
    second = snapshot(uids, after)
    assert second.new == []
    assert second.missing == set()


def test_each_state_of_a_listed_message_has_one_for_when_it_leaves() -> None:
    assert set(LEAVING) == set(LISTED)
    left = missing_rows(row(uid, state, retry_ms=5) for uid, state in enumerate(State))
    assert [(each.state, each.attempts, each.retry_ms) for each in left] == [
        (LEAVING[state], 0, None) for state in State if state in LISTED
    ]


@given(uids=st.sets(UIDS), recorded=RECORDED, more=st.sets(UIDS), fewer=st.sets(UIDS))
def test_a_second_listing_confirms_what_is_missing_only_if_all_it_adds_is_newer(
    uids: set[int], recorded: dict[int, State], more: set[int], fewer: set[int]
) -> None:
    seen = snapshot(uids, recorded)
    second = (uids | more) - fewer
    if seen.is_confirmed_by(second):
        assert not seen.missing & second
        assert seen.uids <= second
        assert all(uid not in recorded for uid in second - uids)
    assert seen.is_confirmed_by(uids)


@given(rows=st.dictionaries(UIDS, IDENTITIES), metadata=METADATA)
def test_messages_are_carried_over_one_to_one_and_by_what_no_other_has(
    rows: dict[int, bytes], metadata: dict[int, Metadata]
) -> None:
    recorded = {
        uid: Row(folder=1, uid_validity=1, uid=uid, state=State.LIVE, identity=each) for uid, each in rows.items()
    }
    pairs = list(rows_carried_over(MOVED_ON, recorded, metadata))
    identities = [each.identity for each in metadata.values()]
    for old, now in pairs:
        assert old.identity == now.identity == metadata[now.uid].identity
        assert metadata[now.uid].strong
        assert (now.folder, now.uid_validity, now.state) == (1, 2, State.LIVE)
        assert identities.count(now.identity or b"") == list(rows.values()).count(now.identity or b"") == 1
    assert len({old.key for old, _ in pairs}) == len({now.key for _, now in pairs}) == len(pairs)


@pytest.mark.parametrize("state", [State.DELETED, State.UNRESOLVED, State.IN_DOUBT, State.POISON])
def test_only_what_the_sink_still_has_is_carried_over(state: State) -> None:
    strong = {5: Metadata(identity=b"a", strong=True, size=1, received_ms=0)}
    assert list(rows_carried_over(MOVED_ON, {1: row(1, state)}, strong)) == []
    carried_over = [now for _, now in rows_carried_over(MOVED_ON, {1: row(1, State.MISSING)}, strong)]
    assert [(now.uid, now.digest) for now in carried_over] == [(5, b"d")]


def metadata(match: Match) -> Metadata:
    return Metadata(identity=b"a", strong=match is Match.SAME, size=1, received_ms=0, match=match)


def test_folder_may_number_as_before_unless_nothing_can_show_it() -> None:
    unproven = {1: metadata(Match.UNPROVEN)}
    gone = {1: attrs.evolve(row(1, State.DELETED), digest=None)}
    assert may_number_as_before({1: row(1)}, unproven, {1})  # metadata can be compared
    assert may_number_as_before({1: row(1)}, {}, {1})  # contents can be compared
    assert may_number_as_before({1: row(1)}, {}, set())  # nothing is listed
    assert may_number_as_before(gone, {}, {2})  # all messages were gone, and this one is newer
    assert not may_number_as_before({2: row(2)}, {}, {1})
    assert not may_number_as_before(gone, {}, {1})


def test_contents_are_compared_where_identities_prove_nothing() -> None:
    weak, strong = metadata(Match.LIKELY), metadata(Match.SAME)
    rows = {1: row(1), 2: row(2), 3: row(3, State.MISSING)}
    compared = {
        "all strong": rows_to_compare(rows, {1: strong, 2: strong}, {1, 2}, audit=False),
        "one strong": rows_to_compare(rows, {1: strong, 2: weak}, {1, 2}, audit=False),
        "at an audit": rows_to_compare(rows, {1: strong, 2: weak}, {1, 2}, audit=True),
        "all weak": rows_to_compare(rows, {1: weak, 2: weak}, {1, 2}, audit=False),
        "one came back": rows_to_compare(rows, {1: strong, 3: weak}, {1, 3}, audit=False),
        "no metadata": rows_to_compare({uid: row(uid) for uid in range(1, 41)}, {}, range(1, 41), audit=False),
    }
    assert {case: [each.uid for each in found] for case, found in compared.items()} == {
        "all strong": [],
        "one strong": [],
        "at an audit": [2],
        "all weak": [1, 2],
        "one came back": [3],
        "no metadata": [*range(1, 11), *range(31, 41)],
    }


def test_contents_decide_if_metadata_prove_nothing() -> None:
    rows = {uid: row(uid) for uid in range(1, 41)} | {20: row(20, State.MISSING)}
    seen = {uid: metadata(Match.UNPROVEN) for uid in range(1, 41)} | {2: metadata(Match.SAME)}
    some = [each.uid for each in unproven_rows(rows, seen, audit=False)]
    assert some == [20, 1, *range(3, 12), *range(31, 41)]
    assert len(unproven_rows(rows, seen, audit=True)) == 39
    assert not have_different_metadata(rows, seen)
    assert have_different_metadata(rows, seen | {1: metadata(Match.DIFFERENT)})
    without_content = {1: attrs.evolve(row(1), digest=None)}
    assert unproven_rows(without_content, seen, audit=True) == []
    without_identity = {1: attrs.evolve(row(1), identity=None)}
    assert unproven_rows(without_identity, seen, audit=True) == []
    assert not have_different_metadata(without_identity, {1: metadata(Match.DIFFERENT)})


def test_a_message_is_looked_for_at_its_own_position_first() -> None:
    now = row(7)
    candidates = [
        ("Archive", row(9, State.DELETED, folder=2)),
        ("Archive", row(7, folder=2)),
        ("INBOX", row(3)),
        ("INBOX", row(4, State.DELETED)),
        ("INBOX", row(7, State.DELETED)),
        ("INBOX", row(7, State.UNRESOLVED, uid_validity=0)),
    ]
    ranked = [(name, each.uid, each.state) for name, each in ranked_origins(now, candidates)]
    assert ranked == [
        ("INBOX", 7, State.DELETED),
        ("INBOX", 7, State.UNRESOLVED),
        ("INBOX", 3, State.LIVE),
        ("Archive", 7, State.LIVE),
        ("INBOX", 4, State.DELETED),
        ("Archive", 9, State.DELETED),
    ]


@pytest.mark.parametrize("state", State)
def test_where_a_message_was_before(state: State) -> None:
    now, there, elsewhere = row(7), row(7, state), row(8, state)
    assert bool(list(ranked_origins(now, [("INBOX", there)]))) is (state not in (State.IN_DOUBT, State.POISON_IN_DOUBT))
    assert has_surely_left(now, there)
    assert has_surely_left(now, elsewhere) is (state not in LISTED)


@pytest.mark.parametrize(
    ("origin", "kind"),
    [
        (None, Kind.NEW),
        (row(7, State.LIVE), Kind.RESTORED),
        (row(8, State.LIVE), Kind.MOVED),
        (row(8, State.MISSING), Kind.MOVED),
        (row(8, State.UNRESOLVED), Kind.MOVED),
        (row(8, State.DELETED), Kind.RESTORED),
        (row(8, State.POISON), Kind.RESTORED),
        (row(7, State.LIVE, uid_validity=0), Kind.MOVED),
    ],
)
def test_what_a_message_is_to_the_sink(origin: Row | None, kind: Kind) -> None:
    assert kind_of(row(7), origin) is kind


class Rounds:
    """Rounds of a mailbox in which one message is missing all the time."""

    def __init__(self, missing: Row, *, several_folders: bool = True) -> None:
        self.missing = missing
        self.several_folders = several_folders
        self.waiting_since: Mapping[tuple[int, int, int], int] = {}
        self.number = 0

    def next(self, *, there: bool = False, incomplete: bool = False, now_ms: int = 0) -> str:
        self.number += 1
        deletions = confirm_deletions(
            [] if there else [("INBOX", self.missing)],
            self.waiting_since,
            round_number=self.number,
            now_ms=now_ms,
            several_folders=self.several_folders,
            some_incomplete=incomplete,
        )
        self.waiting_since = deletions.waiting_since
        if deletions.postponed:
            return "postponed"
        return "told" if deletions.confirmed else "waits" if deletions.waiting_since else "nothing"


def test_a_deletion_is_told_once_no_other_folder_can_have_the_message() -> None:
    rounds = Rounds(row(1, State.MISSING))
    assert [rounds.next() for _ in range(2)] == ["waits", "told"]
    assert Rounds(row(1, State.MISSING), several_folders=False).next() == "told"


def test_folders_that_cannot_be_seen_whole_hold_up_a_deletion_for_three_rounds() -> None:
    rounds = Rounds(row(1, State.UNRESOLVED))
    assert [rounds.next(incomplete=True) for _ in range(4)] == ["waits", "waits", "waits", "told"]


def test_a_message_that_came_back_waits_anew() -> None:
    rounds = Rounds(row(1, State.MISSING))
    assert [rounds.next(), rounds.next(there=True), rounds.next(), rounds.next()] == [
        "waits",
        "nothing",
        "waits",
        "told",
    ]


def test_a_deletion_that_the_sink_refused_waits_for_its_time() -> None:
    rounds = Rounds(row(1, State.UNRESOLVED, retry_ms=500), several_folders=False)
    assert [rounds.next(now_ms=499), rounds.next(now_ms=500)] == ["postponed", "told"]
