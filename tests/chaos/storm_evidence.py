"""Compare the sandbox's ledger with the results of the storm's calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import directsuite as ds

from .matrix_rows import BOB, DRAFTS, PASSWORD
from .storm_actions import CallReport
from .storm_context import StormContext

SENDS = frozenset({"Send", "SendWithHeader", "SendWithTuser", "SendWithHeaderWithTuser", "Forward"})
NON_IDEMPOTENT_OPERATIONS = SENDS | {
    "CopyMessagesByUIDs",
    "SaveRawMessages",
    "DeleteFolder",
    "ProvisionIDProofedPatient",
    "Flatten",
    "ClearUnsignedFieldsAndPull",
    "Sign",
}
"""Operations of the storm that must not happen twice."""
_REPEATABLE_OPERATIONS = frozenset(
    {"Delete", "CreateFolder", "MoveFolder", "MoveMessagesByUIDs", "MarkMessagesAsReadByUIDs"}
)
"""Repeatable operations, whose effect is identified by its key."""

Effects = dict[tuple[str, str], list[Mapping[str, Any]]]


async def group_effects(context: StormContext) -> Effects:
    subjects = {message.msg_id: message.subject for message in await context.box.get_message_metadata("INBOX.Sent")}
    drafts = {message.uid: message.subject for message in await context.box.get_message_metadata(DRAFTS)}
    effects: Effects = defaultdict(list)
    for effect in await context.sandbox.ledger():
        operation, key, detail = effect["operation"], str(effect["subject"]), effect["detail"]
        if operation in SENDS:
            key = (subjects[key] or "").rpartition(" ")[2]
        elif operation == "SaveRawMessages":
            key = str(drafts[detail["uids"][0]])
        elif operation in ("CopyMessagesByUIDs", "MoveMessagesByUIDs", "MarkMessagesAsReadByUIDs"):
            key = str(detail["uids"][0])
        effects[operation, key].append(effect)
    return effects


def find_untyped_errors(claims: Iterable[CallReport]) -> list[str]:
    return [repr(claim.error) for claim in claims if not isinstance(claim.error, ds.DirectSuiteError | None)]


def find_false_reports(claims: Iterable[CallReport], effects: Effects) -> list[str]:
    false: list[str] = []
    for claim in claims:
        if claim.operation not in NON_IDEMPOTENT_OPERATIONS | _REPEATABLE_OPERATIONS:
            continue
        happened = len(effects.get((claim.operation, claim.key), []))
        if claim.error is None and claim.operation == "DeleteFolder" and not effects.get(("CreateFolder", claim.key)):
            fits = happened == 0  # it was not created, and the listing after a lost response confirms that it is absent
        elif claim.error is None:
            fits = happened == 1
        elif isinstance(claim.error, ds.OutcomeUnknownError):
            fits = happened <= 1
        else:  # an operation that may be repeated may have happened, although no attempt got a response
            fits = happened == 0 if claim.operation in NON_IDEMPOTENT_OPERATIONS else happened <= 1
        if not fits:
            false.append(f"{claim.operation} {claim.key}: {claim.error!r}, {happened} effects")
    return false


def find_mixed_up_responses(claims: Iterable[CallReport], effects: Effects) -> list[str]:
    false: list[str] = []
    for claim in claims:
        if claim.error is not None or claim.operation not in SENDS | {"Flatten", "Sign"}:
            continue
        [effect] = effects[claim.operation, claim.key]
        sent = claim.operation in SENDS
        given = claim.response.smtp_id if sent else claim.response.document_digest
        if given != (effect["subject"] if sent else effect["detail"]["digest"]):
            false.append(f"{claim.operation} {claim.key}")
    return false


async def find_lost_or_duplicate_messages(context: StormContext, claims: Iterable[CallReport]) -> list[str]:
    there = Counter(
        (message.subject or "").rpartition(" ")[2]
        for message in await context.suite.mailbox(BOB, PASSWORD).get_message_metadata()
    )
    doubled = [f"twice: {number}" for number, times in there.items() if times > 1]
    sent = [claim.key for claim in claims if claim.operation in SENDS and claim.error is None]
    return doubled + [f"lost: {number}" for number in sent if number not in there]


async def find_lost_changes(context: StormContext, claims: Iterable[CallReport]) -> list[str]:
    lost: list[str] = []
    for claim in claims:
        if claim.error is None and claim.operation in ("Flatten", "Sign"):
            info = await context.suite.signing.get_doc_info(claim.key)
            signed = [signature.is_signed for signature in info.signatures if signature.name == "PatientSig"]
            seen = signed == [True] if claim.operation == "Sign" else not info.form_fields
            if info.document_digest != claim.response.document_digest or not seen:
                lost.append(f"{claim.operation} {claim.key}")
    return lost
