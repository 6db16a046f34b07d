"""The documents of the demo: consent forms to sign, a clinical document to send, and pyHanko's check of signatures.

Coordinates are those of the displayed page. If viewers rotate the page (/Rotate 90), the content is rotated back:

    displayed (x, y)  ──►  in the file (height - y, x)        height: height of the displayed page

The clinical document is a small Continuity of Care Document (C-CDA, HL7 CDA release 2).
"""

from __future__ import annotations

import io
import math
import textwrap
from functools import cache
from typing import Any
from xml.etree import ElementTree as ET

import attrs
import pikepdf
from pikepdf import Array, Dictionary, Name, String
from pyhanko.keys import load_certs_from_pemder_data
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign.validation import validate_pdf_signature
from pyhanko.sign.validation.status import SignatureCoverageLevel
from pyhanko_certvalidator import ValidationContext

from directsuite.cli.demo.context import check_condition

PATIENT_FIELD = "PatientSignature"

_MARGIN = 54.0
_GAP = 18.0
_SIGNATURE_HEIGHT = 64.0
_PAGE_SIZES = ((612.0, 792.0), (595.0, 842.0), (612.0, 1008.0), (420.0, 595.0))  # points: Letter, A4, Legal, A5
_ROTATED_FORM_INTERVAL = 5
_TEXT_SIZE, _LINE_HEIGHT = 10.5, 15.0
_MEAN_CHAR_WIDTH_RATIO = 0.5  # width of a Helvetica character relative to the text size, rounded up

_PARAGRAPHS = (
    "I have been told about the planned treatment, its purpose, its risks, and what else could be done in its place. "
    "I had time to ask questions, and they were answered.",
    "I know that I may withdraw this consent at any time, without giving a reason and without disadvantage, by telling "
    "the clinic or by a Direct message to its address.",
    "The clinic keeps this form with my record. A copy of it, signed, is sent to my own Direct address at no "
    "charge (clinic rules, § 7).",
)


@attrs.frozen(kw_only=True)
class Form:
    """A consent form. width, height: size of the displayed pages, in points."""

    number: int
    width: float
    height: float
    pages: int
    is_rotated: bool
    is_countersigned: bool

    @classmethod
    def from_number(cls, number: int) -> Form:
        """Return the form with this number, from 1, which determines page size, rotation and page count."""
        width, height = _PAGE_SIZES[number % len(_PAGE_SIZES)]
        return cls(
            number=number,
            width=width,
            height=height,
            pages=1 + number % 3,
            is_rotated=number % _ROTATED_FORM_INTERVAL == 2,
            is_countersigned=number % 2 == 0,
        )

    @property
    def signature_width(self) -> float:
        """The width of each of two adjacent signatures, in points."""
        return (self.width - 2 * _MARGIN - _GAP) / 2

    @property
    def clinic_signature_rect(self) -> tuple[float, float, float, float]:
        """The position of the clinic's signature: left, top, width, height, from the top left of the unrotated page."""
        seen_left = _MARGIN + self.signature_width + _GAP
        left, bottom, right, top = self.to_file_coordinates(
            (seen_left, _MARGIN, seen_left + self.signature_width, _MARGIN + _SIGNATURE_HEIGHT)
        )
        page_height = self.width if self.is_rotated else self.height
        return left, page_height - top, right - left, top - bottom

    def to_file_coordinates(self, seen: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        """Convert a rectangle of the displayed page (left, bottom, right, top) to the coordinates of the file."""
        left, bottom, right, top = seen
        return (self.height - top, left, self.height - bottom, right) if self.is_rotated else seen


def build_consent_form(form: Form) -> bytes:
    """Return the form as a PDF. The bytes are the same in every run."""
    with pikepdf.new() as opened:
        document: Any = opened  # pikepdf's types are incomplete
        font = document.make_indirect(
            Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica, Encoding=Name.WinAnsiEncoding)
        )
        for page in range(1, form.pages + 1):
            size = (form.height, form.width) if form.is_rotated else (form.width, form.height)
            added = document.add_blank_page(page_size=size)
            added.obj.Resources = Dictionary(Font=Dictionary(F1=font))
            added.obj.Contents = document.make_stream(_draw_page(form, page))
            if form.is_rotated:
                added.obj.Rotate = 90
        _add_fields(document, form, font)
        document.docinfo["/Title"] = String(f"Consent form {form.number}")
        document.docinfo["/Producer"] = String("directsuite demo")
        output = io.BytesIO()
        document.save(output, deterministic_id=True)
        return output.getvalue()


@cache
def draw_handwriting() -> bytes:
    """Return a PNG of a black pen stroke on a transparent background."""
    from PIL import Image, ImageDraw

    width, height, steps = 480, 160, 400
    picture = Image.new("RGBA", (width, height), (0, 0, 0, 0))
    points = [
        (
            20 + 440 * step / steps + 26 * math.sin(step / 11),
            80 - 52 * math.cos(step / 17) * math.exp(-step / 260) + 8 * math.sin(step / 5),
        )
        for step in range(steps)
    ]
    ImageDraw.Draw(picture).line(points, fill=(20, 30, 110, 255), width=5, joint="curve")
    output = io.BytesIO()
    picture.save(output, "PNG")
    return output.getvalue()


def _draw_page(form: Form, page: int) -> bytes:
    pieces = [b"q"]
    if form.is_rotated:
        pieces.append(b"0 1 -1 0 %g 0 cm" % form.height)
    y = form.height - _MARGIN - 18
    pieces.append(_draw_text(_MARGIN, y, 18, f"Consent form {form.number}"))
    y -= 20
    pieces.append(_draw_text(_MARGIN, y, 9, f"Page {page} of {form.pages}"))
    if page == 1:
        y = _get_name_field_rect(form)[1]
        pieces.append(_draw_text(_MARGIN, y + 6, _TEXT_SIZE, "Name"))
        pieces.append(_draw_text(_MARGIN, _MARGIN + _SIGNATURE_HEIGHT + 6, 9, "Patient"))
        if form.is_countersigned:
            pieces.append(
                _draw_text(_MARGIN + form.signature_width + _GAP, _MARGIN + _SIGNATURE_HEIGHT + 6, 9, "Clinic")
            )
    y -= 30
    columns = int((form.width - 2 * _MARGIN) / (_TEXT_SIZE * _MEAN_CHAR_WIDTH_RATIO))
    for paragraph in _PARAGRAPHS:
        for line in textwrap.wrap(paragraph, columns):
            pieces.append(_draw_text(_MARGIN, y, _TEXT_SIZE, line))
            y -= _LINE_HEIGHT
        y -= _LINE_HEIGHT / 2
    return b"\n".join([*pieces, b"Q"])


def _draw_text(x: float, y: float, size: float, text: str) -> bytes:
    escaped = text.encode("cp1252").replace(b"\\", rb"\\").replace(b"(", rb"\(").replace(b")", rb"\)")
    return b"BT /F1 %g Tf %g %g Td (%s) Tj ET" % (size, x, y, escaped)


def _get_name_field_rect(form: Form) -> tuple[float, float, float, float]:
    top = form.height - _MARGIN - 60
    return _MARGIN + 48, top - 20, form.width - _MARGIN, top


def _add_fields(document: Any, form: Form, font: Any) -> None:
    page = document.pages[0].obj
    seen = _get_name_field_rect(form)
    across, up = seen[2] - seen[0], seen[3] - seen[1]
    appearance = document.make_stream(
        b"/Tx BMC q 0.6 w 0.5 G 0.3 0.3 %g %g re S\n%s\nQ EMC"
        % (across - 0.6, up - 0.6, _draw_text(4, 6, _TEXT_SIZE, "Ada Example")),
        Type=Name.XObject,
        Subtype=Name.Form,
        BBox=Array([0, 0, across, up]),
        Matrix=Array([0, 1, -1, 0, up, 0] if form.is_rotated else [1, 0, 0, 1, 0, 0]),
        Resources=Dictionary(Font=Dictionary(F1=font)),
    )
    name = _make_widget(document, form, page, seen, FT=Name.Tx, T=String("patient_name"), V=String("Ada Example"))
    name.DA = String(f"/F1 {_TEXT_SIZE:g} Tf 0 g")
    name.MK = Dictionary(R=90 if form.is_rotated else 0)
    name.AP = Dictionary(N=appearance)
    place = (_MARGIN, _MARGIN, _MARGIN + form.signature_width, _MARGIN + _SIGNATURE_HEIGHT)
    signature = _make_widget(document, form, page, place, FT=Name.Sig, T=String(PATIENT_FIELD))
    page.Annots = Array([name, signature])
    document.Root.AcroForm = Dictionary(
        Fields=Array([name, signature]), DR=Dictionary(Font=Dictionary(F1=font)), DA=String("/F1 0 Tf 0 g")
    )


def _make_widget(document: Any, form: Form, page: Any, seen: tuple[float, float, float, float], **entries: Any) -> Any:
    return document.make_indirect(
        Dictionary(
            Type=Name.Annot,
            Subtype=Name.Widget,
            Rect=Array(list(form.to_file_coordinates(seen))),
            P=page,
            F=4,
            **entries,
        )
    )


_NAMESPACE = "urn:hl7-org:v3"
_ORGANIZATION_OID = "2.25.329800735698586629295641978511506172918"  # a UUID-derived OID (ISO 9834-8)
_LOINC = {"codeSystem": "2.16.840.1.113883.6.1", "codeSystemName": "LOINC"}
_TIMESTAMP = "20260301093000+0000"


def build_clinical_summary() -> bytes:
    """Return a Continuity of Care Document with one section, in UTF-8."""
    document = ET.Element("ClinicalDocument", {"xmlns": _NAMESPACE})
    _add_element(document, "realmCode", code="US")
    _add_element(document, "typeId", root="2.16.840.1.113883.1.3", extension="POCD_HD000040")
    for template in ("2.16.840.1.113883.10.20.22.1.1", "2.16.840.1.113883.10.20.22.1.2"):
        _add_element(document, "templateId", root=template, extension="2015-08-01")
    _add_element(document, "id", root=_ORGANIZATION_OID, extension="visit-1")
    _add_element(document, "code", code="34133-9", displayName="Summarization of Episode Note", **_LOINC)
    _add_element(document, "title", "Visit summary")
    _add_element(document, "effectiveTime", value=_TIMESTAMP)
    _add_element(document, "confidentialityCode", code="N", codeSystem="2.16.840.1.113883.5.25")
    _add_element(document, "languageCode", code="en-US")
    _add_people(document)
    body = _add_element(_add_element(document, "component"), "structuredBody")
    section = _add_element(_add_element(body, "component"), "section")
    _add_element(section, "templateId", root="2.16.840.1.113883.10.20.22.2.6.1", extension="2015-08-01")
    _add_element(section, "code", code="48765-2", displayName="Allergies and adverse reactions", **_LOINC)
    _add_element(section, "title", "Allergies")
    _add_element(_add_element(section, "text"), "paragraph", "No known allergies. Temperature on arrival: 37 °C.")
    return bytes(ET.tostring(document, encoding="utf-8", xml_declaration=True))


def check_clinical_summary(content: bytes) -> None:
    """Raise CheckFailedError unless this is a ClinicalDocument in XML with a patient and a section."""
    try:
        document = ET.fromstring(content)  # noqa: S314  the document was made by the demo
    except ET.ParseError:
        document = ET.Element("")
    names = {"": _NAMESPACE}
    check_condition(
        document.tag == f"{{{_NAMESPACE}}}ClinicalDocument", "the clinical document is not a ClinicalDocument in XML"
    )
    check_condition(
        document.find("recordTarget/patientRole/patient/name/family", names) is not None,
        "the clinical document names no patient",
    )
    check_condition(
        document.find("component/structuredBody/component/section/text", names) is not None,
        "the clinical document has no section",
    )


def _add_people(document: ET.Element) -> None:
    role = _add_element(_add_element(document, "recordTarget"), "patientRole")
    _add_element(role, "id", root=_ORGANIZATION_OID, extension="patient-1")
    patient = _add_element(role, "patient")
    name = _add_element(patient, "name")
    _add_element(name, "given", "Ada")
    _add_element(name, "family", "Example")
    _add_element(patient, "administrativeGenderCode", code="F", codeSystem="2.16.840.1.113883.5.1")
    _add_element(patient, "birthTime", value="19800229")
    author = _add_element(document, "author")
    _add_element(author, "time", value=_TIMESTAMP)
    assigned = _add_element(author, "assignedAuthor")
    _add_element(assigned, "id", root=_ORGANIZATION_OID, extension="author-1")
    device = _add_element(assigned, "assignedAuthoringDevice")
    _add_element(device, "softwareName", "directsuite demo")
    custodian = _add_element(
        _add_element(_add_element(document, "custodian"), "assignedCustodian"), "representedCustodianOrganization"
    )
    _add_element(custodian, "id", root=_ORGANIZATION_OID)
    _add_element(custodian, "name", "Example Clinic")


def _add_element(parent: ET.Element, name: str, text: str | None = None, /, **attributes: str) -> ET.Element:
    child = ET.SubElement(parent, name, attributes)
    child.text = text
    return child


@attrs.frozen(kw_only=True)
class SignatureVerdict:
    """The result of verifying one signature.

    intact: the signed bytes are unchanged. valid: it was made with the certificate's key. trusted: the authority issued
    the certificate. covers_revision: it covers the complete file at signing time. has_only_allowed_changes: later
    changes are permitted.
    """

    field: str
    intact: bool
    valid: bool
    trusted: bool
    covers_revision: bool
    has_only_allowed_changes: bool

    @property
    def is_accepted(self) -> bool:
        """True if all checks passed."""
        return self.intact and self.valid and self.trusted and self.covers_revision and self.has_only_allowed_changes


def verify_signatures(content: bytes, authority: bytes) -> list[SignatureVerdict]:
    """Verify every signature of a PDF. Blocks. authority: the PEM certificate to trust."""
    load: Any = load_certs_from_pemder_data
    roots = list(load(authority))
    opened: Any = PdfFileReader(io.BytesIO(content))
    verdicts: list[SignatureVerdict] = []
    for signature in opened.embedded_regular_signatures:
        context = ValidationContext(trust_roots=roots, allow_fetching=False)
        status: Any = validate_pdf_signature(signature, context)
        verdicts.append(
            SignatureVerdict(
                field=str(signature.field_name),
                intact=bool(status.intact),
                valid=bool(status.valid),
                trusted=bool(status.trusted),
                covers_revision=status.coverage >= SignatureCoverageLevel.ENTIRE_REVISION,
                has_only_allowed_changes=bool(status.docmdp_ok),
            )
        )
    return verdicts
