"""Flattening: what the form shows becomes part of the pages, and can no longer be filled in.

Links, notes and empty signature fields stay, so that a flattened document can still be signed.
"""

from __future__ import annotations

import pikepdf
from pikepdf import Array, Dictionary

from directsuite.sandbox.signing.appearance import complete_appearances
from directsuite.sandbox.signing.document import open_pdf, rewritten
from directsuite.sandbox.signing.form import Field, acro_form, fields, signature_count, subfields
from directsuite.sandbox.signing.refusals import InvalidActionError


def flatten(content: bytes) -> tuple[bytes, list[str]]:
    """The document with its form baked into the pages, and the names of the fields that went; unchanged without any.

    Raises InvalidActionError for a signed document: rewriting it would break its signatures.
    """
    with open_pdf(content) as pdf:
        signatures = signature_count(pdf)
        if signatures:
            raise InvalidActionError(
                f"the document carries {signatures} signature(s), which flattening would break: flatten before signing"
            )
        form = acro_form(pdf)
        names = [field.name for field in fields(pdf) if field.kind != "signature"]
        if form is None or not names:
            return content, []
        complete_appearances(pdf)
        roots = list(form.get("/Fields", Array([])))  # qpdf takes the form away once it has flattened it
        kept = _set_aside_all_but_fields(pdf)
        pdf.flatten_annotations("all")
        for page, annotations in zip(pdf.pages, kept, strict=True):
            if annotations:
                page.obj["/Annots"] = Array(annotations)
            elif "/Annots" in page.obj:
                del page.obj["/Annots"]
        _keep_signature_fields(pdf, roots)
        return rewritten(pdf), names


def without_outdated_appearances(pdf: pikepdf.Pdf, content: bytes) -> bytes:
    """Return the document with appearances drawn for what its form says, if it leaves that to viewers.

    pdf: the document of these bytes, opened. One that asks for no drawing (/NeedAppearances) keeps its bytes.

    To be done before the first signature: a viewer that redraws the form later would break it.
    """
    form = acro_form(pdf)
    if form is None or "/NeedAppearances" not in form or signature_count(pdf):
        return content
    complete_appearances(pdf)
    return rewritten(pdf)


def _set_aside_all_but_fields(pdf: pikepdf.Pdf) -> list[list[pikepdf.Object]]:
    """Leave the pages only the widgets to bake; give, for each page, the annotations that are to come back."""
    signatures = {widget.objgen for field in fields(pdf) if field.kind == "signature" for widget in field.widgets}
    kept: list[list[pikepdf.Object]] = []
    for page in pdf.pages:
        found = page.obj.get("/Annots")
        items = found if isinstance(found, pikepdf.Array) else Array([])
        annotations = [item for item in items if isinstance(item, pikepdf.Dictionary)]
        baked = [str(note.get("/Subtype")) == "/Widget" and note.objgen not in signatures for note in annotations]
        kept.append([note for note, bake in zip(annotations, baked, strict=True) if not bake])
        page.obj["/Annots"] = Array([note for note, bake in zip(annotations, baked, strict=True) if bake])
    return kept


def _keep_signature_fields(pdf: pikepdf.Pdf, roots: list[pikepdf.Object]) -> None:
    remaining = [field for field in roots if _holds_signature_field(field)]
    if "/AcroForm" in pdf.Root:
        del pdf.Root["/AcroForm"]
    if remaining:
        pdf.Root["/AcroForm"] = pdf.make_indirect(Dictionary(Fields=Array(remaining)))


def _holds_signature_field(node: pikepdf.Object) -> bool:
    """Whether there are signature fields in this part of the form; takes everything else out of it."""
    below = subfields(node)
    if not below:
        return Field("", node, []).kind == "signature"
    remaining = [kid for kid in below if _holds_signature_field(kid)]
    node["/Kids"] = Array(remaining)
    return bool(remaining)
