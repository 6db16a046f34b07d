"""Arguments that are rejected before a request, and spans of time in a path."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.messaging import arguments
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import ALICE, PASSWORD, open_suite

Span = Callable[[datetime | None, datetime | None], tuple[str, str]]

ME = "alice@direct.example.test"
BOB = ds.Recipient("bob@direct.example.test")
BAD_ADDRESSES = ["", "@", "a@", "@b", "a", "a@b@c", "a@@b", "a@b\r\nBcc: c@d", "a\n@b", "a@b\x00"]


@pytest.mark.parametrize("text", ["a@b", ME, "O'Neil+x@b", "ä@b.test"])
def test_an_address_has_one_at_sign(text: str) -> None:
    assert arguments.validate_address(text, "username") == text


@pytest.mark.parametrize("text", BAD_ADDRESSES)
def test_other_texts_are_no_address_and_are_not_repeated(text: str) -> None:
    with pytest.raises(ds.InvalidArgumentError) as caught:
        arguments.validate_address(text, "username")
    assert caught.value.parameter == "username"
    assert len(text) < 2 or text not in str(caught.value)


def test_recipients_may_be_plain_addresses() -> None:
    assert arguments.validate_recipients(["bob@direct.example.test", BOB]) == [BOB, BOB]


BAD_MESSAGES: list[tuple[ds.Message, str]] = [
    (ds.Message(sender="eve@direct.example.test", recipients=[BOB]), "sender"),
    (ds.Message(sender="", recipients=[BOB]), "sender"),
    (ds.Message(), "recipients"),
    *((ds.Message(recipients=[BOB, ds.Recipient(text)]), "recipients[1]") for text in BAD_ADDRESSES),
    (ds.MessageWithHeader(recipients=[BOB], headers=[ds.MessageHeader("X-A", "1\r\nBcc: c@d")]), "headers"),
    (ds.MessageWithHeader(recipients=[BOB], headers=[ds.MessageHeader("X-A\n", "1")]), "headers"),
    (ds.MessageWithHeader(recipients=[BOB], headers=[ds.MessageHeader("", "1")]), "headers"),
    (ds.MessageWithHeader(recipients=[BOB], headers=[ds.MessageHeader(None, "1")]), "headers"),
]


@pytest.mark.parametrize(("message", "parameter"), BAD_MESSAGES)
def test_a_message_that_cannot_be_right_is_refused(message: ds.Message, parameter: str) -> None:
    with pytest.raises(ds.InvalidArgumentError) as caught:
        arguments.validate_message(message, ME)
    assert caught.value.parameter == parameter


@pytest.mark.parametrize("sender", [None, ME, ME.upper()])
def test_the_sender_keeps_its_spelling_or_is_filled_in(sender: str | None) -> None:
    checked = arguments.validate_message(ds.Message(sender=sender, recipients=[BOB]), ME)
    assert checked.sender == (sender or ME)


RESERVED = ["INBOX", "INBOX.Sent", "INBOX.Templates", "INBOX.Drafts", "INBOX.Spam"]


@pytest.mark.parametrize("folder", [*RESERVED, *(name.lower() for name in RESERVED)])
def test_reserved_folders_are_neither_created_nor_changed(folder: str) -> None:
    for check in (arguments.validate_changeable_folder, arguments.validate_new_folder):
        with pytest.raises(ds.InvalidArgumentError, match="folder"):
            check(folder, "folder")


@pytest.mark.parametrize("folder", ["Referrals", "INBOX.", "INBOXReferrals", "Sent.INBOX.x", ""])
def test_folders_elsewhere_are_not_created(folder: str) -> None:
    with pytest.raises(ds.InvalidArgumentError, match="INBOX"):
        arguments.validate_new_folder(folder, "folder")


@pytest.mark.parametrize("folder", ["INBOX.Referrals", "inbox.Referrals", "INBOX.Sent.2016", "INBOX.Trash"])
def test_folders_inside_the_inbox_are_created(folder: str) -> None:
    assert arguments.validate_new_folder(folder, "folder") == folder


def test_open_ends_are_written_out() -> None:
    assert arguments.format_span_in_milliseconds(None, None) == ("0", "253402300799000")
    assert arguments.format_span_in_utc(None, None) == ("19700101000000", "99991231235959")


SPANS: list[Span] = [arguments.format_span_in_milliseconds, arguments.format_span_in_utc]
NAIVE = datetime(2016, 7, 5)  # noqa: DTZ001  what is refused
NOON = datetime(2016, 7, 5, 12, tzinfo=UTC)


@pytest.mark.parametrize("span", SPANS)
def test_naive_datetimes_are_refused(span: Span) -> None:
    with pytest.raises(ds.InvalidArgumentError, match="begin"):
        span(NAIVE, NOON)
    with pytest.raises(ds.InvalidArgumentError, match="end"):
        span(NOON, NAIVE)


def test_parts_of_a_second_widen_the_span() -> None:
    early, late = NOON.replace(microsecond=1), NOON.replace(microsecond=999_999)
    assert arguments.format_span_in_utc(early, early) == ("20160705120000", "20160705120001")
    assert arguments.format_span_in_milliseconds(early, late) == ("1467720000000", "1467720001000")


@pytest.mark.parametrize("span", SPANS)
def test_a_span_that_ends_before_it_begins_is_refused(span: Span) -> None:
    with pytest.raises(ds.InvalidArgumentError, match=r"^end: "):
        span(NOON, NOON - timedelta(microseconds=1))


OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=OFFSETS))
def test_both_ends_are_inside_the_span_whatever_their_zone(moment: datetime) -> None:
    first, last = arguments.format_span_in_utc(moment, moment)
    assert len(first) == len(last) == 14
    assert first <= last
    begin, end = (int(edge) for edge in arguments.format_span_in_milliseconds(moment, moment))
    exact = (moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1)
    assert begin - 1 <= exact
    assert begin <= end <= 253402300799000


@pytest.mark.parametrize("span", SPANS)
def test_the_ends_of_the_calendar_are_taken(span: Span) -> None:
    for zone in (UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-14))):
        begin, end = span(datetime.min.replace(tzinfo=zone), datetime.max.replace(tzinfo=zone))
        assert end in ("253402300799000", "99991231235959") or zone is not UTC
        assert int(begin) < int(end)


def test_flags_are_words() -> None:
    assert (arguments.format_flag(True), arguments.format_flag(False)) == ("true", "false")


@pytest.mark.parametrize(
    "method",
    [
        "get_messages_by_received_date",
        "get_messages_by_received_date_utc",
        "search_messages_metadata_by_received_date",
        "search_messages_metadata_by_received_date_utc",
    ],
)
async def test_a_search_by_date_is_of_the_inbox_and_open_without_arguments(server: ScriptedServer, method: str) -> None:
    server.default_responder = responses.respond({"success": True, "messages": []})
    async with open_suite(server) as suite:
        search = getattr(suite.mailbox(ALICE, PASSWORD), method)
        assert await search() == await search("INBOX", None, None) == []
    first, second = server.requests
    assert first.path == second.path


@pytest.mark.parametrize("values", [None, 5, [5.0], ["5"], [True], [-1]], ids=repr)
def test_uids_of_the_wrong_type_are_refused(values: Any) -> None:
    with pytest.raises(ds.InvalidArgumentError, match="uids"):
        arguments.validate_uids(values)


@pytest.mark.parametrize("values", [None, 5, [5], "bob@direct.example.test"], ids=repr)
def test_recipients_of_the_wrong_type_are_refused(values: Any) -> None:
    with pytest.raises(ds.InvalidArgumentError, match="recipients"):
        arguments.validate_recipients(values)
