"""Types of the signing service, in the order of the specification (section 2.A).

Shapes that the specification leaves open are what such services document in public; whatever else an answer holds
stays in `extra`. Lengths are in points (1/72 inch), pages count from 1.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

import attrs

from directsuite.core.privacy import scrub_class
from directsuite.wire.models import Model, Wire, validate_bytes, validate_number, validate_whole_number


@attrs.frozen(kw_only=True, repr=False, eq=False)
class StoredDocument(Model):
    """A PDF that the service keeps until it is deleted, or for 4 hours without activity."""

    _shown: ClassVar[tuple[str, ...]] = ("identifier", "document_type", "created_time")

    document_type: str | None = None
    """The type of the document, as the service names it."""
    created_time: datetime | None = None
    """When the document was saved."""
    identifier: Annotated[str, Wire(strict=True)]
    """Names the document in every later call. An answer to Save that has none is an error."""
    document_digest: Annotated[str | None, Wire(strict=True)] = None
    """Changes with every update of the document; empty after deletion."""
    description: str | None = None
    """The service's remark about the document."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DocumentSignature(Model):
    """A signature field found in a document, signed or not (SignatureObject of GetDocInfo)."""

    _shown: ClassVar[tuple[str, ...]] = ("is_signed", "is_valid", "page_index")

    name: str | None = None
    """The name of the field, which is unique in its document."""
    width: float | None = None
    """Points."""
    height: float | None = None
    """Points."""
    left: float | None = None
    """Points from the left edge of the page."""
    top: float | None = None
    """Points from the top edge of the page."""
    page_index: int | None = None
    """The page, from 1."""
    is_signed: bool | None = None
    """False for a field that nobody has signed yet."""
    signer_name: str | None = None
    """As the service tells it: in general the name that the signature states (`Signature.gs_name`), which nothing
    proves. GetDocInfo doesn't tell whose certificate it is.
    """
    signature_time: Annotated[str | None, Wire(aliases=("SignatureTime",))] = None
    """When it was signed, as the service writes it."""
    reason: Annotated[str | None, Wire(aliases=("Reason",))] = None
    """Why it was signed, as the signature states it."""
    is_valid: bool | None = None
    """The service's verdict on the signature; None where it gives none."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FormField(Model):
    """A form field of a document and its value (FormFieldObject)."""

    _shown: ClassVar[tuple[str, ...]] = ("page_index", "tab_index")

    name: str | None = None
    """The name of the field."""
    value: str | None = None
    """What it is filled in with."""
    left: float | None = None
    """Points from the left edge of the page."""
    top: float | None = None
    """Points from the top edge of the page."""
    width: float | None = None
    """Points."""
    height: float | None = None
    """Points."""
    page_index: int | None = None
    """The page, from 1."""
    tab_index: int | None = None
    """The position of the field in the order of the tab key."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Page(Model):
    """A page of a document (PageObject)."""

    _shown: ClassVar[tuple[str, ...]] = ("index", "width", "height", "rotate")

    index: int | None = None
    """The number of the page, from 1."""
    width: float | None = None
    """Points, before the page is rotated."""
    height: float | None = None
    """Points, before the page is rotated."""
    rotate: int | None = None
    """0, 90, 180 or 270 degrees clockwise."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DocumentInfo(StoredDocument):
    """What GetDocInfo tells of a stored document."""

    identifier: Annotated[str, Wire(strict=True)] = ""
    """The document's: filled in from the call where the answer has none."""
    signatures: list[DocumentSignature] = attrs.field(factory=list[DocumentSignature])
    """The signature fields, signed or not."""
    form_fields: list[FormField] = attrs.field(factory=list[FormField])
    """The form fields; none after Flatten."""
    pages: list[Page] = attrs.field(factory=list[Page])
    """The pages, in their order."""
    meta_data: dict[str, str] = attrs.field(factory=dict[str, str])
    """The PDF's own properties, such as Title or Author."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DocumentUpdate(Model):
    """What a changing operation answers."""

    _shown: ClassVar[tuple[str, ...]] = ("identifier",)

    identifier: Annotated[str, Wire(strict=True)] = ""
    """The document's: filled in from the call, so that an update can stand for its document in the next one."""
    document_digest: Annotated[str | None, Wire(strict=True)] = None
    """The digest after the change; empty after Delete."""
    description: str | None = None
    """The service's remark about the change."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Widget(Model):
    """Where a signature stands, in points from the top left corner of the unrotated page.

    The bottom right corner is at the page's width and height, which `get_doc_info` gives; on a page with `rotate=90`,
    readers see it at the bottom left.
    """

    _shown: ClassVar[tuple[str, ...]] = ("x", "y", "width", "height", "page")

    x: float | None = attrs.field(default=None, validator=validate_number)
    """Points from the left edge of the page to that of the signature."""
    y: float | None = attrs.field(default=None, validator=validate_number)
    """Points from the top edge of the page to that of the signature."""
    width: float | None = attrs.field(default=None, validator=validate_number)
    """Points."""
    height: float | None = attrs.field(default=None, validator=validate_number)
    """Points."""
    page: int | None = attrs.field(default=None, validator=validate_whole_number)
    """Counts from 1."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Signature(Model):
    """A signature to make: the body of Sign, and an element of MultiSign's list (specification 2.A).

    Without a `widget` it is invisible, unless the document has an empty signature field of its `name`.
    """

    _shown: ClassVar[tuple[str, ...]] = ("widget", "gmt_offset")

    name: str | None = None
    """The name of the signature and of its field: one that no other signature of the document has."""
    widget: Widget | None = None
    """Where it is drawn, with its signer, reason and time. None: in the document's empty field of its name, if any."""
    reason: str | None = None
    """Why it is signed, such as `Consent`: it is part of the signature, and is drawn in the widget."""
    gs_name: str | None = None
    """The signer's name, as the signature states it and the widget shows it. Nothing proves it."""
    timezone: str | None = None
    """The signer's time zone: an IANA name, such as `America/New_York`."""
    gmt_offset: Annotated[int | None, Wire("GMTOffset")] = attrs.field(default=None, validator=validate_whole_number)
    """The difference of the signer's time from GMT, in hours, such as -5."""
    graphical_signature: bytes | None = attrs.field(default=None, validator=validate_bytes)
    """An image, PNG or JPEG, that is drawn in the widget."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class MultiSignRequest(Model):
    """The body of MultiSign."""

    signatures: Annotated[list[Signature], Wire("Signatures")]
