"""`directsuite inbox folder`: create, rename, delete and subscribe to folders."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

from cyclopts import Parameter

import directsuite as ds
from directsuite.cli import inbox, mailbox
from directsuite.cli.command import Command, CommandParameter, Work, confirm, require_terminal
from directsuite.cli.credentials import get_mailbox_access
from directsuite.cli.errors import UsageError, with_value
from directsuite.cli.options import Flag, MailboxOptions, Variadic, make_app, record, register
from directsuite.cli.output import format_count, show_effect, show_json, show_progress
from directsuite.cli.process import ExitStatus, echo_err
from directsuite.core.outcome import ErrorScope, find_error_scope
from directsuite.messaging import arguments

app = mailbox.app
_folder_app = make_app("inbox folder", "create INBOX.Done", "delete INBOX.Done --yes")
_folder_app.help = "Create, rename, delete and subscribe to folders."
_folder_app.sort_key = len([*app])
app.command(_folder_app)


@record
class _DeleteFolderOptions(MailboxOptions):
    yes: Annotated[bool, Flag] = False
    """Don't ask for confirmation."""


@record
class _SubscribeOptions(MailboxOptions):
    unsubscribe: Annotated[bool, Flag] = False
    """Unsubscribe from the folders instead."""


_Folder = Annotated[str, Parameter(help="The folder's name, as `inbox folders` shows it.")]
_NewFolder = Annotated[str, Parameter(help="The new name, which starts with INBOX. and is not in use.")]
_Folders = Annotated[tuple[str, ...], Variadic, Parameter(name="FOLDER…", help="Folders' names, separated by spaces.")]
_BoxFunction = Callable[[ds.Mailbox], Awaitable[object]]

_RECOVERY_HINT = "check the folders with `directsuite inbox folders` before you run the command again"


@register(app, "folder create", "INBOX.Archive", "INBOX.Archive.2026 --json")
def create(folder: _NewFolder, /, *, command: CommandParameter, options: MailboxOptions = MailboxOptions()) -> Work:
    """Create a folder."""

    async def create_folder(box: ds.Mailbox) -> None:
        await box.create_folder(folder)

    _describe_errors(command, folder)
    document = {"folder": folder}
    return _change_folders(command, options, "The folder was created", document, create_folder, new_folder=folder)


@register(app, "folder rename", "INBOX.Archive INBOX.Cases", "INBOX.Cases INBOX.Archive --json")
def rename(
    folder: _Folder,
    new_folder: _NewFolder,
    /,
    *,
    command: CommandParameter,
    options: MailboxOptions = MailboxOptions(),
) -> Work:
    """Rename a folder, with its messages and subfolders."""

    async def rename_folder(box: ds.Mailbox) -> None:
        async with inbox.explain_missing_folder(box, folder, option="FOLDER"):
            await box.move_folder(folder, new_folder)

    _describe_errors(command, folder)
    command.option_names["new_folder"] = with_value("NEW_FOLDER", new_folder)
    document = {"folder": folder, "new_folder": new_folder}
    return _change_folders(command, options, "The folder was renamed", document, rename_folder, new_folder=new_folder)


@register(app, "folder delete", "INBOX.Archive.2026 --yes", "INBOX.Archive --yes --json")
def delete(
    folder: _Folder, /, *, command: CommandParameter, options: _DeleteFolderOptions = _DeleteFolderOptions()
) -> Work:
    """Delete a folder permanently, with its messages and subfolders, after confirmation."""
    _describe_errors(command, folder)
    arguments.validate_changeable_folder(folder, "folder")
    if not options.yes:
        require_terminal()

    async def ask_user(box: ds.Mailbox) -> None:
        prefix = f"{folder}.".casefold()
        below = [name for name in await inbox.list_folders(box) if name.casefold().startswith(prefix)]
        async with inbox.explain_missing_folder(box, folder, option="FOLDER"):
            count = sum([await box.get_message_count(name) for name in (folder, *below)])
        await confirm(
            f"{folder} will be deleted permanently, with {format_count(len(below), 'subfolder')} and "
            f"{format_count(count, 'message')}.",
            declined_message="Not confirmed. Nothing was deleted.",
        )

    async def delete_folder(box: ds.Mailbox) -> None:
        async with inbox.explain_missing_folder(box, folder, option="FOLDER"):
            await box.delete_folder(folder)

    ask = None if options.yes else ask_user
    return _change_folders(command, options, "The folder was deleted", {"folder": folder}, delete_folder, ask)


@register(app, "folder subscribe", "INBOX.Referrals", "INBOX.Drafts INBOX.Spam --unsubscribe")
def subscribe(
    folder: _Folders, /, *, command: CommandParameter, options: _SubscribeOptions = _SubscribeOptions()
) -> Work:
    """Subscribe to folders, or unsubscribe. Mail programs can be set to show only subscribed folders."""

    async def set_subscribed(box: ds.Mailbox) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for name in folder:
                await stack.enter_async_context(inbox.explain_missing_folder(box, name, option="FOLDER"))
            await box.set_folders_subscribed(folder, not options.unsubscribe)

    _describe_errors(command, *folder)
    count = format_count(len(folder), "folder")
    done = f"{'Unsubscribed from' if options.unsubscribe else 'Subscribed to'} {count}"
    document = {"folders": list(folder), "subscribed": not options.unsubscribe}
    return _change_folders(command, options, done, document, set_subscribed)


def _describe_errors(command: Command, *folders: str) -> None:
    label = with_value("FOLDER", " ".join(folders))
    command.option_names = {"folder": label, "folders": label, "username": "--mailbox"}
    command.resume_hint = command.recovery_hint = _RECOVERY_HINT
    advice = "check the names; `directsuite inbox folders` lists the existing folders"
    command.advice = {ds.BadRequestError: advice, ds.ServiceError: advice}


def _change_folders(
    command: Command,
    options: MailboxOptions,
    done: str,
    document: Mapping[str, object],
    change: _BoxFunction,
    ask: _BoxFunction | None = None,
    new_folder: str | None = None,
) -> Work:
    """Return the coroutine that calls `change`, and reports `done`.

    document: the output of --json. ask: asks for confirmation before `change`, if given. new_folder: the folder that
    `change` creates.
    """
    access = get_mailbox_access(options.mailbox, options.password_file)

    async def run() -> int:
        async with command.open_mailbox(access) as box:
            if ask is not None:
                await ask(box)
            try:
                async with show_progress("working"):
                    await change(box)
            except ds.ServiceError as error:
                if new_folder is None or not await _exists(box, new_folder, error):
                    raise
                raise UsageError(
                    f"{with_value('The folder', new_folder)} exists already. Choose another name; `directsuite inbox "
                    "folders` lists the folders."
                ) from None
        if not show_effect(lambda: show_json(document) if options.json else None, done):
            return ExitStatus.FAILED
        echo_err(f"{done}.")
        return ExitStatus.DONE

    return run()


async def _exists(box: ds.Mailbox, folder: str, rejection: ds.ServiceError) -> bool:
    """Return True if the creation of a folder was rejected because it exists. The service has no code for this."""
    if find_error_scope(rejection) is ErrorScope.ITEM:
        with contextlib.suppress(ds.DirectSuiteError):
            return folder.casefold() in {name.casefold() for name in await inbox.list_folders(box)}
    return False
