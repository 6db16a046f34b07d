"""The part of a mailbox's facade that changes it: folders, and messages in them."""

from __future__ import annotations

from collections.abc import Iterable

from directsuite.core.call import SETTLE, Proof
from directsuite.errors import InvalidArgumentError
from directsuite.messaging import arguments, email, operations
from directsuite.messaging.account import checked_uids
from directsuite.messaging.arguments import flag
from directsuite.messaging.arrivals import Arrivals
from directsuite.messaging.models import APIResponse, RawMessage, RawMessagesRequest, SetFoldersSubscribedRequest
from directsuite.messaging.reading import Reading
from directsuite.wire import given


class Changing(Reading):
    """What can be changed in a mailbox."""

    async def set_folders_subscribed(
        self, folders: Iterable[str], subscribed: bool, *, timeout: float | None = None
    ) -> list[str]:
        """Subscribe to folders, or end it; gives the folders that the service names. With none, nothing is sent.

        Operation SetFoldersSubscribed (specification 4.C).
        """
        listed = arguments.texts(folders, "folders")
        if not listed:
            return []
        request = SetFoldersSubscribedRequest(auth=self._authentication, folders=listed, subscribed=subscribed)
        body = self._body(request)
        return (await self._call(operations.SET_FOLDERS_SUBSCRIBED, body=body, timeout=timeout)).folders

    async def create_folder(self, folder: str, *, timeout: float | None = None) -> None:
        """Create a folder; its name starts with `INBOX.`.

        Operation CreateFolder (specification 4.C). Raises InvalidArgumentError for a name elsewhere or reserved.
        """
        arguments.new_folder(folder, "folder")
        looking = self._within_a_call()

        async def created() -> APIResponse | None:
            """Proof that the folder is there."""
            return APIResponse(success=True) if await looking._has(folder) else None

        await self._call(
            operations.CREATE_FOLDER, folder, body=self._credentials, timeout=timeout, proof=Proof(look=created)
        )

    async def move_folder(self, folder: str, new_folder: str, *, timeout: float | None = None) -> None:
        """Rename a folder, with what is in it.

        Operation MoveFolder (specification 4.C). Raises InvalidArgumentError for a reserved folder.
        """
        arguments.changeable_folder(folder, "folder")
        arguments.new_folder(new_folder, "new_folder")
        looking = self._within_a_call()

        async def moved() -> APIResponse | None:
            """Proof that the folder stands under its new name only."""
            happened = await looking._has(new_folder) and not await looking._has(folder)
            return APIResponse(success=True) if happened else None

        await self._call(
            operations.MOVE_FOLDER, folder, new_folder, body=self._credentials, timeout=timeout, proof=Proof(look=moved)
        )

    async def delete_folder(self, folder: str, *, timeout: float | None = None) -> None:
        """Delete a folder with its messages and sub-folders.

        Operation DeleteFolder (specification 4.C). Raises InvalidArgumentError for a reserved folder. Never sent a
        second time: a late duplicate would destroy a folder made anew. Should its answer get lost, it has happened if
        GetFolders lists neither the folder nor anything below it, since that is the state asked for. Nothing proves the
        deletion of a folder outside `INBOX.`, which is never listed, nor of one whose name isn't plain ASCII or has
        a `&`, since IMAP spells such names in another way, and a listing may do so too.
        """
        arguments.changeable_folder(folder, "folder")
        wanted = folder.lower()
        levels = wanted.split(".")
        root = folder.rpartition(".")[0]
        spellings = {".".join(levels[start:]) for start in range(len(levels))}  # a listing may leave out what is above
        looking = self._within_a_call()

        async def deleted() -> APIResponse | None:
            """Proof that the folder is gone with what was below it, where its parent is still there to be listed."""
            names = [name.lower() for name in await looking.get_folders(root)]
            there = any(name.startswith(f"{spelling}.") or name == spelling for spelling in spellings for name in names)
            seen = bool(names) or len(levels) > 2  # INBOX itself always has its reserved folders
            return APIResponse(success=True) if seen and not there else None

        provable = len(levels) > 1 and levels[0] == "inbox" and folder.isascii() and "&" not in folder
        proof = Proof(look=deleted, seconds=SETTLE) if provable else None
        await self._call(operations.DELETE_FOLDER, folder, body=self._credentials, timeout=timeout, proof=proof)

    async def copy_messages_by_uids(
        self,
        folder: str,
        dest_folder: str,
        uids: Iterable[int],
        *,
        verify: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Copy messages to another folder. With no uids, nothing is sent.

        Operation CopyMessagesByUIDs (specification 4.C). Never sent a second time. verify: note beforehand what is in
        the destination, so that an unknown outcome can be settled by the Message-IDs that are new there.
        """
        listed = checked_uids(uids)
        operations.COPY_MESSAGES_BY_UIDS.check((folder, dest_folder))
        if not listed:
            return
        proof = None
        if verify:
            deadline = self._deadline(timeout)
            there = await self.get_message_metadata(folder, timeout=deadline.left())
            copied = frozenset(listed)
            message_ids = [message.msg_id for message in there if message.uid in copied]
            proof = await Arrivals.expected(self, dest_folder, message_ids, deadline)
            timeout = deadline.left()
        body = self._uids_body(listed)
        await self._call(operations.COPY_MESSAGES_BY_UIDS, folder, dest_folder, body=body, timeout=timeout, proof=proof)

    async def move_messages_by_uids(
        self, folder: str, dest_folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> None:
        """Move messages to another folder, where they get new uids. With no uids, nothing is sent.

        Operation MoveMessagesByUIDs (specification 4.C).
        """
        listed = checked_uids(uids)
        proof = self._gone(folder, listed)
        segments = (folder, dest_folder)
        await self._change(operations.MOVE_MESSAGES_BY_UIDS, *segments, uids=listed, timeout=timeout, proof=proof)

    async def delete_messages_by_uids(
        self, folder: str, uids: Iterable[int], *, forever: bool = False, timeout: float | None = None
    ) -> None:
        """Move messages to INBOX.Trash or, with `forever`, remove them. With no uids, nothing is sent.

        Operation DeleteMessagesByUIDs (specification 4.C).
        """
        listed = checked_uids(uids)
        proof = self._gone(folder, listed)
        segments = (folder, flag(forever))
        await self._change(operations.DELETE_MESSAGES_BY_UIDS, *segments, uids=listed, timeout=timeout, proof=proof)

    async def mark_messages_as_read_by_uids(
        self, folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> None:
        """Mark messages as read. With no uids, nothing is sent.

        Operation MarkMessagesAsReadByUIDs (specification 4.C).
        """
        listed = checked_uids(uids)
        await self._change(operations.MARK_MESSAGES_AS_READ_BY_UIDS, folder, uids=listed, timeout=timeout)

    async def mark_messages_as_unread_by_uids(
        self, folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> None:
        """Mark messages as unread. With no uids, nothing is sent.

        Operation MarkMessagesAsUnreadByUIDs (specification 4.C).
        """
        listed = checked_uids(uids)
        await self._change(operations.MARK_MESSAGES_AS_UNREAD_BY_UIDS, folder, uids=listed, timeout=timeout)

    async def save_raw_messages(
        self,
        folder: str,
        messages: Iterable[RawMessage],
        *,
        verify: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Append messages to a folder as they are, RFC 5322 in `data`. With none, nothing is sent.

        Operation SaveRawMessages (specification 4.C). Never sent a second time. verify: note beforehand what is in the
        folder, so that an unknown outcome can be settled by the Message-IDs that are new there.
        """
        listed = given.instances(messages, RawMessage, "messages")
        if not all(message.data for message in listed):
            raise InvalidArgumentError("each RawMessage needs data: the message's bytes", parameter="messages")
        operations.SAVE_RAW_MESSAGES.check((folder,))
        if not listed:
            return
        proof = None
        if verify:
            deadline = self._deadline(timeout)
            message_ids = [email.message_id(message.data or b"") for message in listed]
            proof = await Arrivals.expected(self, folder, message_ids, deadline)
            timeout = deadline.left()
        body = self._body(RawMessagesRequest(auth=self._authentication, messages=listed))
        await self._call(operations.SAVE_RAW_MESSAGES, folder, body=body, timeout=timeout, proof=proof)

    def _gone(self, folder: str, uids: list[int]) -> Proof[APIResponse]:
        """Proof that a repeat was refused because the first attempt had taken the messages away."""
        looking = self._within_a_call()

        async def gone() -> APIResponse | None:
            """Success where none of them is left in the folder."""
            left = set(uids).intersection(await looking.get_uids(folder))
            return None if left else APIResponse(success=True)

        return Proof(look=gone)
