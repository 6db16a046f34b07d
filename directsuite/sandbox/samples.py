"""The sample data of a new sandbox: mailboxes with messages, a T-User, faxes, and individuals to provision."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from email.message import EmailMessage

import attrs

from directsuite.sandbox import fax, patients, registration
from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.messaging.parsing import build_content
from directsuite.sandbox.server import DEMO_LOGIN

DOMAIN = "direct.example.test"
ALICE, BOB = MAILBOXES = (f"alice@{DOMAIN}", f"bob@{DOMAIN}")
MAILBOX_LOGIN = "sandbox"
TUSER = ("demo-tuser", "demo-login")
FAX_NUMBER = "15550100100"
INDIVIDUALS = (
    ("Ada", "Example", "1234", "1980-02-29", "ALASKA"),
    ("Grace", "Sample", "5678", "1975-12-09", "Vermont"),
    ("Li", "Muster", "4321", "1990-07-14", "Oregon"),
    ("Zoë", "Modelo", "8765", "2001-10-31", "Texas"),
)
REFERRALS = "INBOX.Referrals"

_HOUR_MS = 3_600_000  # milliseconds
_CCDA = b'<?xml version="1.0" encoding="utf-8"?>\n<ClinicalDocument xmlns="urn:hl7-org:v3"/>\n'


@attrs.frozen
class _Sample:
    age_hours: int
    sender: str
    subject: str
    body: str
    attachment: tuple[str, str, bytes] | None = None
    """The name, media type and content of a file."""
    folder: str = mailboxes.INBOX
    is_read: bool = False


_MESSAGES = (
    _Sample(
        500, "desk@clinic.example.test", "Referral of A. Example", "Please see her soon.", folder=REFERRALS,
        attachment=("summary.xml", "text/xml", _CCDA), is_read=True,
    ),
    _Sample(331, "lab@lab.example.test", "Blood count", "All within limits.", is_read=True),
    _Sample(
        190, "ward@hospital.example.test", "Discharge summary", "The summary is attached.",
        attachment=("discharge.xml", "text/xml", _CCDA), is_read=True,
    ),
    _Sample(170, "desk@clinic.example.test", "Appointment", "Is Tuesday at nine possible?", is_read=True),
    _Sample(98, "desk@pharmacy.example.test", "Question about a dose", "Is it 5 mg or 50 mg?"),
    _Sample(52, "lab@lab.example.test", "Blood count, repeated", "See the table.",
            attachment=("count.csv", "text/csv", b"test,value\nHb,13.9\n")),
    _Sample(26, "ward@hospital.example.test", "Referral of G. Sample", "The patient has been told.",
            attachment=("referral.xml", "text/xml", _CCDA)),
    _Sample(0, BOB, "Welcome to the sandbox", "This mailbox is yours to play with."),
)  # fmt: skip


def add_sample_content(connection: sqlite3.Connection, now: int) -> None:
    """Add the sample data, unless both sample mailboxes exist. now: milliseconds since 1970."""
    # One transaction adds all data, so it exists if the mailboxes exist.
    if all(mailboxes.find_account_id(connection, address) is not None for address in MAILBOXES):
        return
    for address in MAILBOXES:
        if mailboxes.find_account_id(connection, address) is None:
            mailboxes.create_account(connection, address, MAILBOX_LOGIN, at_ms=now)
    mailboxes.create_tuser(connection, *TUSER, MAILBOXES)
    registration.add_reseller(connection, *DEMO_LOGIN, [DOMAIN])
    for first_name, last_name, ssn4, dob, state in INDIVIDUALS:
        person = patients.IndividualDescription(first_name=first_name, last_name=last_name, ssn4=ssn4, dob=dob)
        contact = patients.Contact(email=f"{first_name.lower()}@example.test", state=state, country="US")
        patients.add_individual(connection, person, contact)
    for number in range(1, 13):
        status = "waiting" if number == 12 else "complete"
        fax.add_fax(connection, fax.NewFax(fax_number=FAX_NUMBER, status=status, description=f"Fax {number}"), now=now)
    alice = mailboxes.find_account_id(connection, ALICE)
    if alice is not None:
        mailboxes.create_folder(connection, alice, REFERRALS)
        for sample in _MESSAGES:
            _add_message(connection, alice, sample, now)


def _add_message(connection: sqlite3.Connection, account: int, sample: _Sample, now: int) -> None:
    received = now - sample.age_hours * _HOUR_MS
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = sample.sender, ALICE, sample.subject
    message["Message-ID"] = f"<sample-{sample.age_hours}@{sample.sender.partition('@')[2]}>"
    message["Date"] = datetime.fromtimestamp(received / 1000, UTC)
    message.set_content(sample.body)
    if sample.attachment is not None:
        filename, media_type, content = sample.attachment
        maintype, _, subtype = media_type.partition("/")
        message.add_attachment(content, maintype=maintype, subtype=subtype, filename=filename)
    folder = mailboxes.get_folder(connection, account, sample.folder).id
    uid = mailboxes.append_message(connection, folder, build_content(bytes(message)), received_ms=received)
    if sample.is_read:
        mailboxes.set_seen(connection, folder, [uid], seen=True)
