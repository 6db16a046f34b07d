"""`directsuite status`: each recipient's, and an exit status that scripts can act upon."""

from __future__ import annotations

import json

from tests.cli.conftest import Typist
from tests.integration.world import BOB


async def sent(typist: Typist, *recipients: str) -> str:
    """The SMTP id of a message to these."""
    to = [option for address in recipients for option in ("--to", address)]
    ended = await typist.run("send", *to, "--body", "x")
    return ended.out.strip()


async def test_each_recipient_is_a_row(typist: Typist) -> None:
    smtp_id = await sent(typist, BOB, "nomdn@elsewhere.test")
    ended = await typist.run("status", smtp_id)
    assert (ended.status, ended.err) == (0, "")
    _, bob, waiting = ended.out.splitlines()
    assert bob.split()[:2] == [BOB, "Delivered"]
    assert waiting.split()[:2] == ["nomdn@elsewhere.test", "Waiting"]
    assert smtp_id in bob


async def test_a_recipient_who_will_not_have_it_is_status_1(typist: Typist) -> None:
    smtp_id = await sent(typist, BOB, "bounce@elsewhere.test")
    ended = await typist.run("status", smtp_id, "--json")
    assert ended.status == 1
    assert "1 of 2 deliveries failed" in ended.err
    assert "elsewhere" not in ended.err
    assert [(each["to"], each["status"]) for each in json.loads(ended.out)] == [
        (BOB, "Delivered"),
        ("bounce@elsewhere.test", "Remotely Failed"),
    ]


async def test_an_unknown_message_is_status_4_and_the_others_are_told(typist: Typist) -> None:
    smtp_id = await sent(typist, BOB)
    ended = await typist.run("status", smtp_id, "<nobody@elsewhere.test>")
    assert ended.status == 4
    assert BOB in ended.out
    assert "doesn't know 1 of these messages" in ended.err
    alone = await typist.run("status", "nope", "--json")
    assert (alone.status, json.loads(alone.out)) == (4, [])


async def test_watching_ends_where_all_recipients_have_it_or_will_not(typist: Typist) -> None:
    smtp_ids = [await sent(typist, BOB, "bounce@elsewhere.test"), await sent(typist, BOB)]
    ended = await typist.run("status", *smtp_ids, "--watch", "--json")
    assert ended.status == 1
    assert [each["status"] for each in json.loads(ended.out)] == ["Delivered", "Remotely Failed", "Delivered"]


async def test_a_message_that_arrives_meanwhile_is_waited_for(typist: Typist) -> None:
    smtp_id = await sent(typist, "slow+2s@elsewhere.test")
    assert "Waiting" in (await typist.run("status", smtp_id)).out
    ended = await typist.run("status", smtp_id, "--watch")
    assert (ended.status, "Delivered" in ended.out) == (0, True)
