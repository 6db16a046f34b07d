"""What is new in a folder: fetched and committed in its order, past messages that can't be fetched."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence

from directsuite.errors import DirectSuiteError, ResponseDecodeError
from directsuite.messaging.models import MessageDetail
from directsuite.sync.aside import Aside
from directsuite.sync.commits import Commits
from directsuite.sync.model import Report
from directsuite.sync.place import Look, Place
from directsuite.sync.receiving import Receiving
from directsuite.sync.remote import MOST, Fetched, Remote, fetched

BATCHES = 16
"""Batches that a round fetches of a folder, so that one large mailbox leaves others their turn."""

_NOT_RETURNED = 3  # rounds in which a uid is listed and not in the answer, until it is set aside
_IN_VAIN = 5  # messages in a row that can't be fetched, until another shows whether any can


class Arrivals:
    """The new messages of one look. places: the mailbox's folders, by their names."""

    def __init__(self, commits: Commits, remote: Remote, look: Look, places: Mapping[str, Place]) -> None:
        self._commits = commits
        self._remote = remote
        self._look = look
        self._place = look.place
        self._new = look.new
        self._receiving = Receiving(commits, remote, look, places)
        self._aside = Aside(commits, remote)
        self._in_vain = 0

    async def take_in(self, report: Report) -> None:
        """Fetch and commit them, up to one that is listed and not returned, or as many as a round may.

        Raises why they can't be fetched where that is no fault of theirs.
        """
        done = 0
        answers = fetched(self._remote, self._place.folder.name, self._new, batches=BATCHES)
        async with contextlib.aclosing(answers):
            async for answer in answers:
                taken = await self._take(answer, report)
                done += taken
                if taken < len(answer.uids):
                    break
        self._look.complete = done == len(self._new) and self._place.folder.name not in self._commits.unsure

    async def _take(self, answer: Fetched, report: Report) -> int:
        """How many of the messages asked for are done; where not all, the next round goes on."""
        if answer.failure is not None:
            await self._set_aside(answer.uids[0], report)
            self._in_vain += 1
            if self._in_vain % _IN_VAIN == 0 and not await self._can_any_be_fetched():
                raise answer.failure
            return 1
        by_uid = {message.uid: message for message in answer.messages}
        whole = list(itertools.takewhile(by_uid.__contains__, answer.uids))
        self._in_vain = 0 if whole else self._in_vain
        taken = await self._received(whole, [by_uid[uid] for uid in whole], report)
        if taken == len(whole) < len(answer.uids):
            await self._not_returned(answer.uids[taken], report)
        return taken

    async def _received(self, uids: Sequence[int], messages: Sequence[MessageDetail], report: Report) -> int:
        """How many are what they should be; where not all, the folder is suspect."""
        received = await self._receiving.take(uids, messages)
        report.changes.update(received.told)
        return received.done

    async def _can_any_be_fetched(self) -> bool:
        """Whether a message that was fetched once still can be, or the newest. If not, all wait for the service."""
        known = [row.uid for row in await self._commits.store.canaries(self._place.folder)]
        for uid in (*known, self._new[-1]):
            with contextlib.suppress(DirectSuiteError):
                if await self._remote.messages(self._place.folder.name, [uid]):
                    return True
        return False

    async def _not_returned(self, uid: int, report: Report) -> None:
        """It was deleted just now, or the answer was partial: only the next listings tell."""
        self._place.not_returned[uid] += 1
        if self._place.not_returned[uid] >= _NOT_RETURNED:
            if len(self._new) > 1 and not await self._can_any_be_fetched():
                raise ResponseDecodeError("The service lists messages, and returns none of them: ask its provider.")
            del self._place.not_returned[uid]
            await self._set_aside(uid, report)

    async def _set_aside(self, uid: int, report: Report) -> None:
        await self._aside.put(self._place, uid, self._new[: BATCHES * MOST])
        report.poison += 1
