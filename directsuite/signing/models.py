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
    """The service's name for the document's type."""
    created_time: datetime | None = None
    """The time of Save."""
    identifier: Annotated[str, Wire(strict=True)]
    """For later calls. A response to Save without it raises an error."""
    document_digest: Annotated[str | None, Wire(strict=True)] = None
    """The digest of the current version, empty after deletion."""
    description: str | None = None
    """The service's remark."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DocumentSignature(Model):
    """A signature field of a document, signed or not (SignatureObject of GetDocInfo)."""

    _shown: ClassVar[tuple[str, ...]] = ("is_signed", "is_valid", "page_index")

    name: str | None = None
    """Unique in the document."""
    width: float | None = None
    """Points."""
    height: float | None = None
    """Points."""
    left: float | None = None
    """From the left edge of the page."""
    top: float | None = None
    """From the top edge of the page."""
    page_index: int | None = None
    """From 1."""
    is_signed: bool | None = None
    """True if the field is signed."""
    signer_name: str | None = None
    """The name as reported by the service, usually that in the signature (`Signature.gs_name`), which is not verified.
    GetDocInfo does not report the owner of the certificate.
    """
    signature_time: Annotated[str | None, Wire(aliases=("SignatureTime",))] = None
    """As the service's text."""
    reason: Annotated[str | None, Wire(aliases=("Reason",))] = None
    """The reason in the signature."""
    is_valid: bool | None = None
    """True if the service considers the signature valid. None: not reported."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FormField(Model):
    """A form field and its value (FormFieldObject)."""

    _shown: ClassVar[tuple[str, ...]] = ("page_index", "tab_index")

    name: str | None = None
    """The field's name."""
    value: str | None = None
    """The field's value."""
    left: float | None = None
    """From the left edge of the page."""
    top: float | None = None
    """From the top edge of the page."""
    width: float | None = None
    """Points."""
    height: float | None = None
    """Points."""
    page_index: int | None = None
    """From 1."""
    tab_index: int | None = None
    """The position in the tab order."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Page(Model):
    """A page of a document (PageObject)."""

    _shown: ClassVar[tuple[str, ...]] = ("index", "width", "height", "rotate")

    index: int | None = None
    """The number, from 1."""
    width: float | None = None
    """Before rotation."""
    height: float | None = None
    """Before rotation."""
    rotate: int | None = None
    """0, 90, 180 or 270 degrees clockwise."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DocumentInfo(StoredDocument):
    """The details of a stored document, returned by GetDocInfo."""

    identifier: Annotated[str, Wire(strict=True)] = ""
    """The document's identifier."""
    signatures: list[DocumentSignature] = attrs.field(factory=list[DocumentSignature])
    """The signature fields, signed or not."""
    form_fields: list[FormField] = attrs.field(factory=list[FormField])
    """The form fields, none after Flatten."""
    pages: list[Page] = attrs.field(factory=list[Page])
    """In their order."""
    meta_data: dict[str, str] = attrs.field(factory=dict[str, str])
    """The properties of the PDF, such as Title or Author."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DocumentUpdate(Model):
    """The response of a changing operation. It can be passed to the next call instead of the identifier."""

    _shown: ClassVar[tuple[str, ...]] = ("identifier",)

    identifier: Annotated[str, Wire(strict=True)] = ""
    """That of the call if the response has none."""
    document_digest: Annotated[str | None, Wire(strict=True)] = None
    """The digest after the change; empty after Delete."""
    description: str | None = None
    """The service's remark."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Widget(Model):
    """The position and size of a signature, in points from the top left corner of the unrotated page.

    The bottom right corner is at the page's width and height, which `get_doc_info` returns. With `rotate=90`, that
    corner is displayed at the bottom left.
    """

    _shown: ClassVar[tuple[str, ...]] = ("x", "y", "width", "height", "page")

    x: float | None = attrs.field(default=None, validator=validate_number)
    """From the left edge of the page."""
    y: float | None = attrs.field(default=None, validator=validate_number)
    """From the top edge of the page."""
    width: float | None = attrs.field(default=None, validator=validate_number)
    """Points."""
    height: float | None = attrs.field(default=None, validator=validate_number)
    """Points."""
    page: int | None = attrs.field(default=None, validator=validate_whole_number)
    """From 1."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Signature(Model):
    """A signature to create: the body of Sign, and an element of MultiSign's list (specification 2.A).

    Without a `widget` it is invisible, unless the document has an empty signature field of its `name`.
    """

    _shown: ClassVar[tuple[str, ...]] = ("widget", "gmt_offset")

    name: str | None = None
    """The name of the signature and its field, unique in the document."""
    widget: Widget | None = None
    """Where it is drawn, with signer, reason and time. None: in the empty field of its name, if any."""
    reason: str | None = None
    """The reason for signing, such as `Consent`, also drawn in the widget."""
    gs_name: str | None = None
    """The signer's name in the signature and the widget, not verified."""
    timezone: str | None = None
    """The signer's IANA time zone, such as `America/New_York`."""
    gmt_offset: Annotated[int | None, Wire("GMTOffset")] = attrs.field(default=None, validator=validate_whole_number)
    """The signer's difference from GMT in hours, such as -5."""
    graphical_signature: bytes | None = attrs.field(default=None, validator=validate_bytes)
    """A PNG or JPEG image, drawn in the widget."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class MultiSignRequest(Model):
    """The body of MultiSign."""

    signatures: Annotated[list[Signature], Wire("Signatures")]
