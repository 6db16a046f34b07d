"""The commands in the order of `directsuite --help`, and the function that runs a command.

A command's docstring is its help.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path  # cyclopts reads the annotations when it runs
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Group, Parameter

from directsuite._version import __version__
from directsuite.cli.examples import build_epilogue
from directsuite.cli.options import (
    COMMANDS_GROUP,
    EPILOGUE,
    MAIL,
    MISC,
    SERVICES,
    TOOLS,
    CommonOptions,
    ConfigOptions,
    ControlListOptions,
    ControlOptions,
    DemoOptions,
    DoctorOptions,
    DocumentOutputOptions,
    FaxListOptions,
    FaxNumber,
    FaxWatchOptions,
    InboxDeleteOptions,
    InboxForwardOptions,
    InboxListOptions,
    InboxMarkOptions,
    InboxMoveOptions,
    InboxReadOptions,
    InboxReplyOptions,
    InboxSaveOptions,
    MailboxOptions,
    PatientAddOptions,
    PatientFindOptions,
    PatientOptions,
    PrivateFile,
    SandboxAccountOptions,
    SandboxClockOptions,
    SandboxFaultOptions,
    SandboxFaxOptions,
    SandboxOptions,
    SendOptions,
    SignOptions,
    SourcePaths,
    StatusOptions,
    StoreOptions,
    SyncRunOptions,
    SyncStatusOptions,
    TokenOptions,
    Uid,
    Uids,
    VerifyOptions,
    convert_path,
)
from directsuite.cli.process import ExitStatus, echo_err, require_extra
from directsuite.cli.usage import explain_usage_error, find_secret_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXIT_STATUSES = "\n".join(f"    {status:>3}  {status.meaning}" for status in ExitStatus)

_COMPLETION_REQUIREMENTS = {"zsh": ", if ~/.zshrc runs compinit"}
_CUSTOM_FILE_COMPLETION_REQUIREMENTS = {
    "zsh": ", if ~/.zshrc runs compinit and the file's name is _directsuite",
    "fish": ", if config.fish sources that file",
}
"""What completion requires with --output. The installation makes bash and powershell source the file."""

app = App(
    name="directsuite",
    help="Secure health communication: PDF signing, fax status, Direct messaging, patients.",
    help_epilogue=f"""The URLs of the services are in DIRECTSUITE_MESSAGE_URL, DIRECTSUITE_SIGNING_URL,
DIRECTSUITE_FAX_URL and DIRECTSUITE_REGISTRATION_URL, or in the settings file, ~/.config/directsuite/config.toml or the
one named by DIRECTSUITE_CONFIG. `config show` shows each setting and its source. Passwords and tokens come from a
file, the environment, the keyring or a question on the terminal: they are never arguments. Each command has its own
`--help`, and `directsuite guide terminal` explains what the commands have in common.

Exit status:

{_EXIT_STATUSES}
""",
    version=__version__,
    help_format="markdown",
    version_format="plaintext",  # faster
    suppress_keyboard_interrupt=False,
    result_action="return_value",
    group_commands=MISC,
)


def _make_group(name: str, help_text: str, group: Group, sort_key: int) -> App:
    return App(
        name=name,
        help=help_text,
        help_epilogue=build_epilogue(name),
        group_commands=COMMANDS_GROUP,
        result_action="return_value",
        group=group,
        sort_key=sort_key,
    )


inbox = _make_group("inbox", "List, read, save, move, delete, forward and answer messages.", MAIL, 2)
sync = _make_group("sync", "Run and control a worker that synchronises mailboxes.", MAIL, 4)
sign = App(
    name="sign",
    help_epilogue=build_epilogue("sign"),
    group_commands=COMMANDS_GROUP,
    result_action="return_value",
    group=SERVICES,
    sort_key=1,
)
sandbox = App(
    name="sandbox",
    help_epilogue=build_epilogue("sandbox"),
    group_commands=COMMANDS_GROUP,
    result_action="return_value",
    group=TOOLS,
    sort_key=3,
)
fax = _make_group("fax", "Show the status of faxes.", SERVICES, 2)
patient = _make_group("patient", "Find and add patients, and set their passwords.", SERVICES, 3)

config = _make_group("config", "Show the configuration.", TOOLS, 5)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status."""
    if (sentence := find_secret_argument(app, arguments)) is not None:
        return _report_usage_error(sentence)
    try:
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        with _apply_common_options(CommonOptions(verbose=len({"-v", "-vv", "--verbose"}.intersection(arguments)))):
            return _report_usage_error(explain_usage_error(error))
    with _apply_common_options(bound.arguments.get("options")):
        return int(command(*bound.args, **bound.kwargs) or 0)


@contextlib.contextmanager
def _apply_common_options(options: object) -> Generator[None]:
    """Set the environment variables of --profile and --verbose during the context."""
    if not isinstance(options, CommonOptions):
        yield
        return
    variables = {"DIRECTSUITE_PROFILE": options.profile, "DIRECTSUITE_VERBOSE": str(options.verbose or "") or None}
    previous_variables = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: text for name, text in variables.items() if text is not None})
    try:
        yield
    finally:
        for name, text in previous_variables.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text


def _report_usage_error(sentence: str) -> int:
    echo_err(sentence)
    return ExitStatus.USAGE_ERROR


@app.command(group=MAIL, sort_key=1, help_epilogue=build_epilogue("send"))
def send(*, options: SendOptions = SendOptions()) -> int:
    """Send a message, with attachments.

    The command prints the message's SMTP id for `directsuite status`. Exit status 7 means that the response was lost:
    the message may or may not have been sent. With --key, you can repeat the same command: the message is sent only
    once.
    """
    from directsuite.cli.send import send

    return send(options)


app.command(inbox)


@inbox.command(name="list", sort_key=1, help_epilogue=build_epilogue("inbox list"))
def list_messages(*, options: InboxListOptions = InboxListOptions()) -> int:
    """List messages, newest first.

    The service applies --since and --until. The command applies --from, --to and --subject itself, so they don't make
    it faster.
    """
    from directsuite.cli import inbox

    return inbox.list_messages(options)


@inbox.command(name="read", sort_key=2, help_epilogue=build_epilogue("inbox read"))
def read_message(uid: Uid, /, *, options: InboxReadOptions = InboxReadOptions()) -> int:
    """Show one message as text.

    The message stays unread unless --mark-read is given. An HTML message is converted to text.

    Parameters
    ----------
    uid: int
        The message's number in the folder, as `inbox list` shows it.
    """
    from directsuite.cli import inbox

    return inbox.read_message(uid, options)


@inbox.command(name="save", sort_key=3, help_epilogue=build_epilogue("inbox save"))
def save_messages(uid: Uids, /, *, options: InboxSaveOptions) -> int:
    """Save the attachments of messages, or the messages themselves.

    No existing file is replaced: a second `report.pdf` becomes `report-2.pdf`. Only you can read the files. The command
    prints their paths and doesn't change the messages.
    """
    from directsuite.cli import inbox

    return inbox.save_messages(uid, options)


@inbox.command(name="folders", sort_key=4, help_epilogue=build_epilogue("inbox folders"))
def list_folders(*, options: MailboxOptions = MailboxOptions()) -> int:
    """List folders with their numbers of messages."""
    from directsuite.cli import mailbox

    return mailbox.list_folders(options)


@inbox.command(name="move", sort_key=5, help_epilogue=build_epilogue("inbox move"))
def move_messages(uid: Uids, /, *, options: InboxMoveOptions) -> int:
    """Move messages to another folder, in which they get new numbers."""
    from directsuite.cli import mailbox

    return mailbox.move(uid, options)


@inbox.command(name="copy", sort_key=6, help_epilogue=build_epilogue("inbox copy"))
def copy_messages(uid: Uids, /, *, options: InboxMoveOptions) -> int:
    """Copy messages to another folder."""
    from directsuite.cli import mailbox

    return mailbox.copy(uid, options)


@inbox.command(name="delete", sort_key=7, help_epilogue=build_epilogue("inbox delete"))
def delete_messages(uid: Uids, /, *, options: InboxDeleteOptions = InboxDeleteOptions()) -> int:
    """Delete messages after confirmation."""
    from directsuite.cli import mailbox

    return mailbox.delete(uid, options)


@inbox.command(name="mark", sort_key=8, help_epilogue=build_epilogue("inbox mark"))
def mark_messages(uid: Uids, /, *, options: InboxMarkOptions = InboxMarkOptions()) -> int:
    """Mark messages as read or unread."""
    from directsuite.cli import mailbox

    return mailbox.mark(uid, options)


@inbox.command(name="forward", sort_key=9, help_epilogue=build_epilogue("inbox forward"))
def forward_messages(uid: Uids, /, *, options: InboxForwardOptions) -> int:
    """Forward messages; several are attached to one message as .eml files.

    A message that you sent with a Bcc is not forwarded unless --with-bcc is given, because its header names the Bcc
    recipients. The command prints the SMTP id of the sent message for `directsuite status`. Exit status 7 means that
    the response was lost: check INBOX.Sent before you repeat the command.
    """
    from directsuite.cli import mailbox

    return mailbox.forward(uid, options)


@inbox.command(name="reply", sort_key=10, help_epilogue=build_epilogue("inbox reply"))
def reply_to_message(uid: Uid, /, *, options: InboxReplyOptions = InboxReplyOptions()) -> int:
    """Reply to a message's sender, or with --all also to its other recipients.

    The command prints the reply's SMTP id for `directsuite status`.

    Parameters
    ----------
    uid: int
        The message's number in the folder, as `inbox list` shows it.
    """
    from directsuite.cli import mailbox

    return mailbox.reply(uid, options)


@app.command(group=MAIL, sort_key=3, help_epilogue=build_epilogue("status"))
def status(
    smtp_id: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=(), show_default=False)],
    /,
    *,
    options: StatusOptions = StatusOptions(),
) -> int:
    """Show the delivery status of messages for each recipient.

    Exit status 0 means that the messages are delivered or in progress; 4 that the service doesn't know one of them; 1
    that a delivery failed or was never confirmed, or that a message had no final status in time; 3, 5 or 6 that a poll
    failed, so the output may be out of date. If several apply, the last of these is used, and stderr reports each.

    Parameters
    ----------
    smtp_id: tuple[str, ...]
        The SMTP id that `send` prints and `inbox read UID --folder INBOX.Sent` shows; separate several by spaces.
    """
    from directsuite.cli.status import show_status

    return show_status(smtp_id, options)


app.command(sync)
app.command(sign)
app.command(fax)
app.command(patient)
app.command(config)
app.command(sandbox)


@sync.command(name="run", help_epilogue=build_epilogue("sync run"))
def run_sync_worker(options: SyncRunOptions = SyncRunOptions()) -> int:
    """Synchronise mailboxes until Ctrl-C or SIGTERM.

    Messages are written into the store, each exactly once, or into Maildirs. After a signal, the worker finishes work
    in progress. It continues even if stdout is closed.

    Exit status 0 means that the worker was stopped, or with --once that every mailbox is up to date; 1 that a mailbox
    is failing at the end of --once, or that the worker failed; 2 that it didn't start, because an option, a file or a
    variable is invalid or the store can't be used; 130 and 143 that a signal interrupted --once or the start.
    """
    from directsuite.cli.sync import run_sync

    return run_sync(options)


@sync.command(name="status", help_epilogue=build_epilogue("sync status"))
def show_sync_status(options: SyncStatusOptions = SyncStatusOptions()) -> int:
    """Show the status of each mailbox, whether or not a worker is running.

    Exit status 0 means that no mailbox is failing; 1 that one is, or that the worker has not reported for 30 seconds
    although it didn't stop; 2 that the store can't be used. With --max-age, the command only checks whether the worker
    is alive: 0 if its last report is at most that old, 1 if it is older or missing.
    """
    from directsuite.cli import sync_status

    return sync_status.show_status(options)


@sync.command(help_epilogue=build_epilogue("sync audit"))
def audit(options: StoreOptions = StoreOptions()) -> int:
    """Ask the running worker, or the next one, to compare all messages with the server."""
    from directsuite.cli import sync_status

    return sync_status.audit(options)


@sync.command(help_epilogue=build_epilogue("sync retry"))
def retry(options: StoreOptions = StoreOptions()) -> int:
    """Ask the running worker, or the next one, to retry quarantined messages and failing mailboxes."""
    from directsuite.cli import sync_status

    return sync_status.retry(options)


@sign.default
def sign_pdfs(sources: SourcePaths, /, *, options: SignOptions) -> int:
    """Sign PDF files and the PDFs in folders.

    After Ctrl-C, a crash or an outage, repeat the same command: it continues and signs nothing twice. It records its
    progress in a journal next to the output, OUTPUT.signing.db. Exit status 0 means that all PDFs are signed, 1 that
    some are not.
    """
    from directsuite.cli import document
    from directsuite.cli.sign import sign

    if document.is_one_file(sources, options.output):
        return document.sign_file(sources[0], options)
    return sign(sources, options)


@sign.command(sort_key=1, help_epilogue=build_epilogue("sign verify"))
def verify(sources: SourcePaths, /, *, options: VerifyOptions = VerifyOptions()) -> int:
    """Show the signatures of PDFs, and whether the service considers them valid.

    The stated signer is the name in the signature itself, which does not prove an identity. The service doesn't report
    the owner of the certificate; `pdfsig FILE` of poppler-utils does. Exit status 0 means that each PDF has a signature
    and that the service considers all of them valid.
    """
    from directsuite.cli import document

    return document.verify(sources, options)


@sign.command(sort_key=2, help_epilogue=build_epilogue("sign info"))
def info(source: Path, /, *, options: TokenOptions = TokenOptions()) -> int:
    """Show the pages, fields, signatures and properties of a PDF.

    Parameters
    ----------
    source: Path
        A PDF.
    """
    from directsuite.cli import document

    return document.show_info(source, options)


@sign.command(sort_key=3, help_epilogue=build_epilogue("sign flatten"))
def flatten(source: Path, /, *, options: DocumentOutputOptions) -> int:
    """Make a PDF's form fields part of its pages, and write the result to another file.

    Parameters
    ----------
    source: Path
        A PDF.
    """
    from directsuite.cli import document

    return document.flatten(source, options)


@sign.command(sort_key=4, help_epilogue=build_epilogue("sign clear"))
def clear(source: Path, /, *, options: DocumentOutputOptions) -> int:
    """Remove the signature fields of an unsigned PDF, and write the result to another file.

    Parameters
    ----------
    source: Path
        A PDF.
    """
    from directsuite.cli import document

    return document.clear(source, options)


@fax.command(name="list", sort_key=1, help_epilogue=build_epilogue("fax list"))
def list_faxes(number: FaxNumber, /, *, options: FaxListOptions = FaxListOptions()) -> int:
    """List the faxes of a number, newest first."""
    from directsuite.cli import fax

    return fax.list_faxes(number, options)


@fax.command(name="show", sort_key=2, help_epilogue=build_epilogue("fax show"))
def show_fax(number: FaxNumber, handle: str, /, *, options: TokenOptions = TokenOptions()) -> int:
    """Show one fax with its recipients.

    Parameters
    ----------
    handle: str
        The fax's handle, as `fax list` shows it.
    """
    from directsuite.cli import fax

    return fax.show_fax(number, handle, options)


@fax.command(name="watch", sort_key=3, help_epilogue=build_epilogue("fax watch"))
def watch_faxes(number: FaxNumber, /, *, options: FaxWatchOptions = FaxWatchOptions()) -> int:
    """Show each new or changed fax of a number until Ctrl-C, or one fax until its status is final."""
    from directsuite.cli import fax

    return fax.watch_faxes(number, options)


@patient.command(sort_key=1, help_epilogue=build_epilogue("patient find"))
def find(individual: PrivateFile, /, *, options: PatientFindOptions) -> int:
    """Find the Direct address of the patient described by a file.

    Parameters
    ----------
    individual: Path
        A TOML or JSON file that describes the patient: first_name, last_name, ssn4 (the last four digits of the social
        security number) and dob (the date of birth), or the id of the identity-proofing record. It must be readable
        only by you and your group; - is stdin.
    """
    from directsuite.cli import patient

    return patient.find_patient(individual, options)


@patient.command(sort_key=2, help_epilogue=build_epilogue("patient by-username"))
def by_username(
    username: Annotated[str, Parameter(allow_leading_hyphen=True)], /, *, options: PatientFindOptions
) -> int:
    """Find the Direct address of the patient with a username.

    Parameters
    ----------
    username: str
        The part of the address before the @. With -, it is read from stdin, which other users of this machine can't
        see.
    """
    from directsuite.cli import patient

    return patient.find_by_username(username, options)


@patient.command(sort_key=3, help_epilogue=build_epilogue("patient add"))
def add(individual: PrivateFile, /, *, options: PatientAddOptions) -> int:
    """Provision a Direct address for a patient, and debit the login's account.

    The command asks first, and never sends the request twice. If the person has an address in the domain, the command
    provisions nothing and shows the address, with exit status 1. Exit status 7 means that the response was lost: check
    with `patient find` before you repeat the command.

    Parameters
    ----------
    individual: Path
        A TOML or JSON file that describes the patient, as for `patient find`, optionally with direct_username and
        direct_password.
    """
    from directsuite.cli import patient

    return patient.add_patient(individual, options)


@patient.command(sort_key=4, help_epilogue=build_epilogue("patient passwords"))
def passwords(file: PrivateFile, /, *, options: PatientOptions) -> int:
    """Set the passwords of patients.

    After a failure, repeat the same command: it sets the same passwords.

    Parameters
    ----------
    file: Path
        A TOML or JSON file of usernames and passwords: "ada" = "…". It must be readable only by you and your group;
        - is stdin.
    """
    from directsuite.cli import patient

    return patient.set_passwords(file, options)


@app.command(group=TOOLS, sort_key=1, help_epilogue=build_epilogue("doctor"))
def doctor(*, options: DoctorOptions = DoctorOptions()) -> int:
    """Find problems, and explain how to fix them.

    The command checks this machine's settings, each service's URL, host name, connection, certificate and clock, and
    whether each service accepts your token, login or mailbox password. Nothing is saved, sent or changed. Exit status 0
    means that no check failed.

    With --deep it also calls each read-only operation that your credentials allow, and reports how the responses differ
    from the OpenAPI document of the services, as paths and types without values.
    """
    from directsuite.cli.doctor import doctor

    return doctor(options)


@config.command(name="show", help_epilogue=build_epilogue("config show"))
def show_config(*, options: ConfigOptions = ConfigOptions()) -> int:
    """Show each setting and its source: a variable, a line of the settings file, or the default."""
    from directsuite.cli import config

    return config.show_config(options)


@app.command(name="--install-completion", group=MISC, help_epilogue=EPILOGUE)
def install_completion(
    *,
    shell: Literal["bash", "zsh", "fish", "powershell"] | None = None,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"), converter=convert_path)] = None,
) -> int:
    """Install completion for a shell.

    Parameters
    ----------
    shell: str
        The shell; by default the shell that runs the command.
    output: Path
        The file for the script; by default the file that the shell reads.
    """
    from cyclopts.completion.detect import ShellDetectionError, detect_shell

    try:
        shell = detect_shell() if shell is None else shell
    except ShellDetectionError:
        echo_err("The shell can't be detected. Give --shell bash, zsh, fish or powershell.")
        return ExitStatus.USAGE_ERROR
    app.install_completion(shell=shell, output=output)
    needed = (_COMPLETION_REQUIREMENTS if output is None else _CUSTOM_FILE_COMPLETION_REQUIREMENTS).get(shell, "")
    echo_err(f"Completion is installed for {shell}. It works in each new shell{needed}.")
    return ExitStatus.DONE


@sandbox.default
def serve(*, options: SandboxOptions = SandboxOptions()) -> int:
    """Run the four services on this machine, with sample content.

    The sandbox prints each call, and runs until Ctrl-C. The commands below control a running sandbox.
    """
    from directsuite.cli import sandbox

    return sandbox.serve(options)


@sandbox.command(name="env", sort_key=1, help_epilogue=build_epilogue("sandbox env"))
def sandbox_env(*, options: ControlOptions = ControlOptions()) -> int:
    """Print the variables that a client needs, for a shell: eval "$(directsuite sandbox env)"."""
    from directsuite.cli import sandbox

    return sandbox.show_environment(options)


@sandbox.command(name="account", sort_key=2, help_epilogue=build_epilogue("sandbox account"))
def sandbox_account(
    address: str,
    password: Annotated[str | None, Parameter(show=False)] = None,
    /,
    *,
    options: SandboxAccountOptions = SandboxAccountOptions(),
) -> int:
    """Add a mailbox.

    Parameters
    ----------
    address: str
        The Direct address, in any domain.
    """
    from directsuite.cli import sandbox

    return sandbox.add_account(options, address, password)


@sandbox.command(name="patient", sort_key=3, help_epilogue=build_epilogue("sandbox patient"))
def sandbox_patient(
    first_name: str, last_name: str, ssn4: str, dob: str, /, *, options: ControlOptions = ControlOptions()
) -> int:
    """Add an identity-proofed individual, whom `directsuite patient add` can provision.

    Parameters
    ----------
    first_name: str
        The first name.
    last_name: str
        The last name.
    ssn4: str
        The last four digits of the social security number.
    dob: str
        The date of birth, as 1980-02-29.
    """
    from directsuite.cli import sandbox

    return sandbox.add_patient(options, first_name, last_name, ssn4, dob)


@sandbox.command(name="fax", sort_key=4, help_epilogue=build_epilogue("sandbox fax"))
def sandbox_fax(number: str, /, *, options: SandboxFaxOptions = SandboxFaxOptions()) -> int:
    """Add a fax, or change the status of one.

    Parameters
    ----------
    number: str
        The fax number.
    """
    from directsuite.cli import sandbox

    return sandbox.add_or_update_fax(options, number)


@sandbox.command(name="clock", sort_key=5, help_epilogue=build_epilogue("sandbox clock"))
def sandbox_clock(*, options: SandboxClockOptions = SandboxClockOptions()) -> int:
    """Show or change the sandbox's time, which sessions, tokens and deliveries follow."""
    from directsuite.cli import sandbox

    return sandbox.show_or_set_clock(options)


@sandbox.command(name="fault", sort_key=6, help_epilogue=build_epilogue("sandbox fault"))
def sandbox_fault(
    operation: str | None = None,
    kind: str | None = None,
    /,
    *,
    options: SandboxFaultOptions = SandboxFaultOptions(),
) -> int:
    """Make an operation fail, or list the faults.

    Parameters
    ----------
    operation: str
        An operation's name in the specification, such as Send, or '*' for all. Without it, faults are listed.
    kind: str
        The kind of fault: status, latency, hang, reset_before, reset_after, truncate, malformed, expire_token or
        expire_session.
    """
    from directsuite.cli import sandbox

    return sandbox.manage_faults(options, operation, kind)


@sandbox.command(name="ledger", sort_key=7, help_epilogue=build_epilogue("sandbox ledger"))
def sandbox_ledger(operation: str | None = None, /, *, options: ControlListOptions = ControlListOptions()) -> int:
    """List the effects of calls: messages sent, documents signed, patients provisioned.

    Parameters
    ----------
    operation: str
        An operation's name in the specification; without it, the effects of all operations are listed.
    """
    from directsuite.cli import sandbox

    return sandbox.show_ledger(options, operation)


@sandbox.command(name="reset", sort_key=8, help_epilogue=build_epilogue("sandbox reset"))
def sandbox_reset(*, options: ControlOptions = ControlOptions()) -> int:
    """Restore the initial content."""
    from directsuite.cli import sandbox

    return sandbox.reset_sandbox(options)


@app.command(group=TOOLS, sort_key=2, help_epilogue=build_epilogue("demo"))
def demo(*, options: DemoOptions = DemoOptions()) -> int:
    """Use all four services of a sandbox, and check their effects.

    The demo starts its own sandbox; with --keep, its page stays available afterwards. Exit status 0 means that every
    check passed.
    """
    require_extra("sandbox")
    from directsuite.cli.demo.command import run_demo

    return run_demo(options)


@app.command(group=TOOLS, sort_key=4, help_epilogue=build_epilogue("guide"))
def guide(topic: str | None = None, /) -> int:
    """Show a guide, or list the guides.

    Parameters
    ----------
    topic: str
        The name of a guide; without it, all guides are listed.
    """
    from directsuite.cli.guide import show_guide

    return show_guide(topic)
