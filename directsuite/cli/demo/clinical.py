"""A clinical document: a small Continuity of Care Document (C-CDA, HL7 CDA release 2), and a look at one that came."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from directsuite.cli.demo.scene import hold

_NAMESPACE = "urn:hl7-org:v3"
_ORGANIZATION = "2.25.329800735698586629295641978511506172918"  # an OID made of a random UUID, as ISO 9834-8 allows
_LOINC = {"codeSystem": "2.16.840.1.113883.6.1", "codeSystemName": "LOINC"}
_AT = "20260301093000+0000"


def summary() -> bytes:
    """A Continuity of Care Document of one patient with one section, in UTF-8."""
    document = ET.Element("ClinicalDocument", {"xmlns": _NAMESPACE})
    _add(document, "realmCode", code="US")
    _add(document, "typeId", root="2.16.840.1.113883.1.3", extension="POCD_HD000040")
    for template in ("2.16.840.1.113883.10.20.22.1.1", "2.16.840.1.113883.10.20.22.1.2"):
        _add(document, "templateId", root=template, extension="2015-08-01")
    _add(document, "id", root=_ORGANIZATION, extension="visit-1")
    _add(document, "code", code="34133-9", displayName="Summarization of Episode Note", **_LOINC)
    _add(document, "title", "Visit summary")
    _add(document, "effectiveTime", value=_AT)
    _add(document, "confidentialityCode", code="N", codeSystem="2.16.840.1.113883.5.25")
    _add(document, "languageCode", code="en-US")
    _add_people(document)
    body = _add(_add(document, "component"), "structuredBody")
    section = _add(_add(body, "component"), "section")
    _add(section, "templateId", root="2.16.840.1.113883.10.20.22.2.6.1", extension="2015-08-01")
    _add(section, "code", code="48765-2", displayName="Allergies and adverse reactions", **_LOINC)
    _add(section, "title", "Allergies")
    _add(_add(section, "text"), "paragraph", "No known allergies. Temperature on arrival: 37 °C.")
    return bytes(ET.tostring(document, encoding="utf-8", xml_declaration=True))


def check(content: bytes) -> None:
    """Raise NotHeldError unless this is well-formed XML, a ClinicalDocument with a patient and a section."""
    try:
        document = ET.fromstring(content)  # noqa: S314  the demo's own document, back from the demo's own sandbox
    except ET.ParseError:
        document = ET.Element("")
    names = {"": _NAMESPACE}
    hold(document.tag == f"{{{_NAMESPACE}}}ClinicalDocument", "the clinical document is no ClinicalDocument in XML")
    hold(document.find("recordTarget/patientRole/patient/name/family", names) is not None, "it names no patient")
    hold(document.find("component/structuredBody/component/section/text", names) is not None, "it has no section")


def _add_people(document: ET.Element) -> None:
    role = _add(_add(document, "recordTarget"), "patientRole")
    _add(role, "id", root=_ORGANIZATION, extension="patient-1")
    patient = _add(role, "patient")
    name = _add(patient, "name")
    _add(name, "given", "Ada")
    _add(name, "family", "Example")
    _add(patient, "administrativeGenderCode", code="F", codeSystem="2.16.840.1.113883.5.1")
    _add(patient, "birthTime", value="19800229")
    author = _add(document, "author")
    _add(author, "time", value=_AT)
    assigned = _add(author, "assignedAuthor")
    _add(assigned, "id", root=_ORGANIZATION, extension="author-1")
    device = _add(assigned, "assignedAuthoringDevice")
    _add(device, "softwareName", "directsuite demo")
    keeper = _add(_add(_add(document, "custodian"), "assignedCustodian"), "representedCustodianOrganization")
    _add(keeper, "id", root=_ORGANIZATION)
    _add(keeper, "name", "Example Clinic")


def _add(parent: ET.Element, name: str, text: str | None = None, /, **attributes: str) -> ET.Element:
    child = ET.SubElement(parent, name, attributes)
    child.text = text
    return child
