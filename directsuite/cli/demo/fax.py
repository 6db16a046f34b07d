"""Step five: the records of a fax number, page by page, while another fax arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from directsuite.cli.demo.outcome import Done
from directsuite.cli.demo.scene import hold
from directsuite.fax.models import FaxStatus
from directsuite.fax.watching import PAGE

if TYPE_CHECKING:
    from directsuite.cli.demo.scene import Scene

_NUMBER = "15550100199"


async def run(scene: Scene) -> Done:
    """Read every page, then walk all records with one arriving meanwhile: each comes once, the newest first."""
    count = scene.sizes.faxes
    scene.progress.expect(count * 3)
    newest_first: list[str] = []
    for position in range(1, count + 1):
        status = "waiting" if position == count else "complete"
        newest_first.insert(0, await scene.sandbox.add_fax(_NUMBER, status=status, description=f"Fax {position}"))
        scene.progress.advance()
    await _read_pages(scene, newest_first)
    await _walk(scene, newest_first)
    return Done(
        count=count,
        thing="record",
        checked=(
            f"{-(-count // PAGE)} pages of at most {PAGE}, newest first",
            "a fax that arrives on the way costs and doubles none",
        ),
    )


async def _read_pages(scene: Scene, newest_first: list[str]) -> None:
    fax = scene.suite.fax
    for offset in range(0, len(newest_first), PAGE):
        page = (await fax.get_multiple_message_info(_NUMBER, offset)).message_detail
        expected = newest_first[offset : offset + PAGE]
        hold([message.message_handle for message in page] == expected, f"the page at offset {offset} holds others")
        scene.progress.advance(len(page))
    newest = (await fax.get_single_message_info(_NUMBER, newest_first[0])).message_detail
    hold(
        [(message.status, message.description) for message in newest]
        == [(FaxStatus.WAITING, f"Fax {len(newest_first)}")],
        "the newest fax is not the one that still waits",
    )


async def _walk(scene: Scene, newest_first: list[str]) -> None:
    walked: list[str | None] = []
    async with scene.suite.fax.iter_messages(_NUMBER) as messages:
        async for message in messages:
            if not walked:
                await scene.sandbox.add_fax(_NUMBER, description="arrives during the walk")
            walked.append(message.message_handle)
            scene.progress.advance()
    hold(
        walked == newest_first, f"the walk gives {len(walked)} records, not each of {len(newest_first)} once, in order"
    )
