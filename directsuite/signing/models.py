"""Models of the signing service (specification 2.A).

Where the specification leaves the format open, the models follow public documentation of such services. Lengths are in
points (1/72 inch). Pages are counted from 1. Unknown members of a response are in `extra`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

import attrs

from directsuite.core.privacy import scrub_class
from directsuite.wire.models import Model, Wire, validate_bytes, validate_number, validate_whole_number


@attrs.frozen(kw_only=True, repr=False, eq=False)
class StoredDocument(Model):
    """A PDF that the service retains until it is deleted, or for 4 hours after its last use."""

    _shown: ClassVar[tuple[str, ...]] = ("identifier", "document_type", "created_time")

    document_type: str | None = None
    """The service's name for the type of the document, such as `PDF`."""
    created_time: datetime | None = None
    """The time of Save, with the time zone UTC, such as 2026-05-01 12:00:00+00:00."""
    identifier: Annotated[str, Wire(strict=True)]
    """The ID of the document for later calls, such as `3f2c9a7e51d84b60`. Its format depends on the service. A response
    to Save without it raises an error.
    """
    document_digest: Annotated[str | None, Wire(strict=True)] = None
    """A text that differs for each version of the document, such as a SHA-256 in hexadecimal; its format depends on the
    service. Empty after deletion.
    """
    description: str | None = None
    """The service's remark for people, such as `stored`."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DocumentSignature(Model):
    """A signature field of a document, signed or not (SignatureObject of GetDocInfo)."""

    _shown: ClassVar[tuple[str, ...]] = ("is_signed", "is_valid", "page_index")

    name: str | None = None
    """The name of the field, unique in the document, such as `PatientSig`."""
    width: float | None = None
    """The width of the field in points, such as 200.0. 0 for an invisible signature."""
    height: float | None = None
    """The height of the field in points, such as 50.0. 0 for an invisible signature."""
    left: float | None = None
    """The distance of the field from the left edge of the page in points, such as 72.0."""
    top: float | None = None
    """The distance of the field from the top edge of the page in points, such as 144.5."""
    page_index: int | None = None
    """The number of the page with the field, from 1."""
    is_signed: bool | None = None
    """True if the field is signed, False if it is empty."""
    signer_name: str | None = None
    """The name as reported by the service, usually that in the signature (`Signature.gs_name`), which is not verified.
    GetDocInfo does not report the owner of the certificate.
    """
    signature_time: Annotated[str | None, Wire(aliases=("SignatureTime",))] = None
    """The time of the signature as text in the format of the service, such as `2026-05-01 08:00:00`."""
    reason: Annotated[str | None, Wire(aliases=("Reason",))] = None
    """The reason in the signature, such as `Consent`."""
    is_valid: bool | None = None
    """True if the service considers the signature valid. None: not reported."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FormField(Model):
    """A form field and its value (FormFieldObject)."""

    _shown: ClassVar[tuple[str, ...]] = ("page_index", "tab_index")

    name: str | None = None
    """The name of the field, such as `patient`."""
    value: str | None = None
    """The value of the field as text, such as `Ada`; empty if the field is not filled in."""
    left: float | None = None
    """The distance of the field from the left edge of the page in points, such as 72.0."""
    top: float | None = None
    """The distance of the field from the top edge of the page in points, such as 144.5."""
    width: float | None = None
    """The width of the field in points, such as 200.0."""
    height: float | None = None
    """The height of the field in points, such as 20.0."""
    page_index: int | None = None
    """The number of the page with the field, from 1."""
    tab_index: int | None = None
    """The position of the field in the tab order, from 1."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Page(Model):
    """A page of a document (PageObject)."""

    _shown: ClassVar[tuple[str, ...]] = ("index", "width", "height", "rotate")

    index: int | None = None
    """The number of the page, from 1."""
    width: float | None = None
    """The width of the unrotated page in points, such as 612.0 (US Letter) or 595.0 (A4)."""
    height: float | None = None
    """The height of the unrotated page in points, such as 792.0 (US Letter) or 842.0 (A4)."""
    rotate: int | None = None
    """The clockwise rotation of the page when it is displayed: 0, 90, 180 or 270 degrees."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DocumentInfo(StoredDocument):
    """The details of a stored document, returned by GetDocInfo."""

    identifier: Annotated[str, Wire(strict=True)] = ""
    """The ID of the document, as in StoredDocument. That of the call if the response has none."""
    signatures: list[DocumentSignature] = attrs.field(factory=list[DocumentSignature])
    """The signature fields, signed or empty."""
    form_fields: list[FormField] = attrs.field(factory=list[FormField])
    """The form fields that can be filled in. Empty after Flatten."""
    pages: list[Page] = attrs.field(factory=list[Page])
    """The pages, in their order."""
    meta_data: dict[str, str] = attrs.field(factory=dict[str, str])
    """The properties of the PDF and their values, such as `{"Title": "Consent", "Author": "Ada Example"}`."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DocumentUpdate(Model):
    """The response of a changing operation. It can be passed to the next call instead of the identifier."""

    _shown: ClassVar[tuple[str, ...]] = ("identifier",)

    identifier: Annotated[str, Wire(strict=True)] = ""
    """The ID of the document, as in StoredDocument. That of the call if the response has none."""
    document_digest: Annotated[str | None, Wire(strict=True)] = None
    """The digest after the change, as in StoredDocument. Empty after Delete."""
    description: str | None = None
    """The service's remark for people, such as `signed`."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Widget(Model):
    """The position and size of a signature, in points from the top left corner of the unrotated page.

    The bottom right corner is at the page's width and height, which `get_doc_info` returns. With `rotate=90`, that
    corner is displayed at the bottom left.
    """

    _shown: ClassVar[tuple[str, ...]] = ("x", "y", "width", "height", "page")

    x: float | None = attrs.field(default=None, validator=validate_number)
    """The distance from the left edge of the page in points, such as 72 for one inch."""
    y: float | None = attrs.field(default=None, validator=validate_number)
    """The distance from the top edge of the page in points, such as 620."""
    width: float | None = attrs.field(default=None, validator=validate_number)
    """The width in points, such as 200."""
    height: float | None = attrs.field(default=None, validator=validate_number)
    """The height in points, such as 50."""
    page: int | None = attrs.field(default=None, validator=validate_whole_number)
    """The number of the page, from 1."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Signature(Model):
    """A signature to create: the body of Sign, and an element of MultiSign's list (specification 2.A).

    Without a `widget` it is invisible, unless the document has an empty signature field of its `name`.
    """

    _shown: ClassVar[tuple[str, ...]] = ("widget", "gmt_offset")

    name: str | None = None
    """The name of the signature and its field, unique in the document, such as `PatientSig`. Without a name, it cannot
    be verified after a lost response whether the document was signed.
    """
    widget: Widget | None = None
    """Where the signature is drawn, with signer, reason and time, such as `Widget(x=72, y=620, width=200, height=50,
    page=1)`. None: in the empty field with its `name`, if there is one.
    """
    reason: str | None = None
    """The reason for signing as free text, such as `Consent`. It is part of the signature and drawn in the widget."""
    gs_name: str | None = None
    """The name of the signer as free text, such as `Ada Example`. It is part of the signature and drawn in the widget.
    It is not verified, and need not be the name in the certificate.
    """
    timezone: str | None = None
    """The IANA time zone of the signer, in which the widget shows the time of signing, such as `America/New_York` or
    `Europe/Berlin`. It includes daylight saving time, unlike `gmt_offset`.
    """
    gmt_offset: Annotated[int | None, Wire("GMTOffset")] = attrs.field(default=None, validator=validate_whole_number)
    """The difference between the signer's local time and GMT in hours, such as -5 for New York in winter. Only whole
    numbers: use `timezone` for zones such as India (5.5 hours). The specification names neither the unit, nor which of
    the two applies if both are set.
    """
    graphical_signature: bytes | None = attrs.field(default=None, validator=validate_bytes)
    """An image, such as the handwritten signature, drawn in the widget: the bytes of a PNG or JPEG file, such as
    `Path("signature.png").read_bytes()`. They are sent as base64.
    """


@attrs.frozen(kw_only=True, repr=False, eq=False)
class MultiSignRequest(Model):
    """The body of MultiSign."""

    signatures: Annotated[list[Signature], Wire("Signatures")]
    """The signatures to create, at least one."""
