"""PDF documents for the tests."""

from __future__ import annotations

import io
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, String
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.sign.fields import FieldMDPAction, FieldMDPSpec, MDPPerm, SigFieldSpec, append_signature_field
from pyhanko.sign.signers import PdfSignatureMetadata, PdfSigner, Signer

canvas: Any = import_module("reportlab.pdfgen.canvas")  # which has no types

WIDTH, HEIGHT = 612, 792


def make_plain_pages(pages: int = 1) -> bytes:
    output = io.BytesIO()
    drawing: Any = canvas.Canvas(output, pagesize=(WIDTH, HEIGHT))
    drawing.setTitle("Consent")
    for page in range(1, pages + 1):
        drawing.drawString(72, 740, f"Page {page}")
        drawing.showPage()
    drawing.save()
    return output.getvalue()


def make_consent_form() -> bytes:
    """A form of three pages: text, check box, choice and radio fields on the first, the second turned by 90 degrees."""
    output = io.BytesIO()
    drawing: Any = canvas.Canvas(output, pagesize=(WIDTH, HEIGHT))
    form: Any = drawing.acroForm
    drawing.setTitle("Consent")
    drawing.drawString(72, 740, "Consent for treatment")
    form.textfield(name="patient_name", x=160, y=600, width=200, height=20, value="alice", fontSize=11)
    form.checkbox(name="agree", x=160, y=560, size=16, buttonStyle="check", checked=True)
    form.checkbox(name="news", x=200, y=560, size=16, buttonStyle="cross", checked=False)
    form.choice(name="state", x=160, y=520, width=120, height=20, options=["Texas", "Ohio"], value="Ohio", fontSize=11)
    form.radio(name="plan", value="basic", x=160, y=480, size=16, selected=False)
    form.radio(name="plan", value="full", x=200, y=480, size=16, selected=True)
    drawing.linkURL("http://127.0.0.1/", (72, 700, 200, 720))
    drawing.showPage()
    drawing.setPageRotation(90)
    drawing.drawString(72, 740, "Turned page")
    drawing.showPage()
    drawing.setPageRotation(0)
    drawing.drawString(72, 740, "Last page")
    drawing.showPage()
    drawing.save()
    return add_signature_fields(
        output.getvalue(),
        ("PatientSig", 0, (72, 100, 272, 170)),
        ("WitnessSig", 1, (72, 100, 272, 170)),
        ("UnusedSig", 2, (72, 40, 272, 90)),
    )


def add_signature_fields(content: bytes, *places: tuple[str, int, tuple[int, int, int, int]]) -> bytes:
    """The document with empty signature fields: name, page from 0, and corners."""
    writer: Any = IncrementalPdfFileWriter(io.BytesIO(content))
    for name, page, box in places:
        append_signature_field(writer, SigFieldSpec(name, on_page=page, box=box))
    output = io.BytesIO()
    writer.write(output)
    return output.getvalue()


def make_single_field_form(**members: Any) -> bytes:
    """A page with a single form field, merged with its widget; the page starts at its media box's (100, 50)."""
    with pikepdf.new() as pdf:
        page = pdf.add_blank_page(page_size=(400, 300))
        page.obj["/MediaBox"] = Array([100, 50, 500, 350])
        field: Any = pdf.make_indirect(
            Dictionary({"/Type": Name.Annot, "/Subtype": Name.Widget, "/Rect": Array([150, 200, 450, 230]), "/F": 4})
        )
        for key, value in members.items():
            field[f"/{key}"] = value
        page.obj["/Annots"] = Array([field])
        pdf.Root["/AcroForm"] = pdf.make_indirect(Dictionary(Fields=Array([field]), DA=String("/Helv 0 Tf 0 g")))
        return save_to_bytes(pdf)


def make_nested_fields() -> bytes:
    """Signature fields below a parent `group` with a text field, and below a parent `pair`."""
    with pikepdf.new() as pdf:
        page = pdf.add_blank_page(page_size=(WIDTH, HEIGHT))
        widgets: list[Any] = []

        def child(parent: Any, name: str, kind: Name, left: int) -> Any:
            widget: Any = pdf.make_indirect(
                Dictionary(
                    Type=Name.Annot, Subtype=Name.Widget, FT=kind, T=String(name), Parent=parent, F=4,
                    Rect=Array([left, 100, left + 100, 150]),
                )
            )  # fmt: skip
            widgets.append(widget)
            return widget

        group: Any = pdf.make_indirect(Dictionary(T=String("group")))
        group["/Kids"] = Array([child(group, "first", Name.Sig, 50), child(group, "note", Name.Tx, 200)])
        pair: Any = pdf.make_indirect(Dictionary(T=String("pair")))
        pair["/Kids"] = Array([child(pair, "one", Name.Sig, 350), child(pair, "two", Name.Sig, 480)])
        page.obj["/Annots"] = Array(widgets)
        pdf.Root["/AcroForm"] = pdf.make_indirect(Dictionary(Fields=Array([group, pair]), DA=String("/Helv 0 Tf 0 g")))
        return save_to_bytes(pdf)


def make_rotated_page(degrees: int, *, crop: tuple[int, int, int, int] | None = None) -> bytes:
    """A page that viewers rotate, with a crop box that does not start at the origin if one is given."""
    with open_pages() as pdf:
        page: Any = pdf.pages[0].obj
        page["/Rotate"] = degrees
        if crop is not None:
            page["/CropBox"] = Array(list(crop))
        return save_to_bytes(pdf)


def make_encrypted_form(user_password: str) -> bytes:
    """A form that is encrypted; an empty user password lets everyone read it."""
    with pikepdf.open(io.BytesIO(make_consent_form())) as pdf:
        return save_to_bytes(pdf, encryption=pikepdf.Encryption(owner="owner", user=user_password))


def save_to_bytes(pdf: pikepdf.Pdf, **options: Any) -> bytes:
    output = io.BytesIO()
    pdf.save(output, **options)
    return output.getvalue()


@contextmanager
def open_field(**members: Any) -> Generator[tuple[pikepdf.Pdf, Any]]:
    """Open a page with a single form field. Yield the document and the field."""
    with pikepdf.open(io.BytesIO(make_single_field_form(**members))) as pdf:
        form: Any = pdf.Root["/AcroForm"]
        yield pdf, form["/Fields"][0]


def open_pages() -> pikepdf.Pdf:
    """Open a document of one page without a form."""
    return pikepdf.open(io.BytesIO(make_plain_pages()))


def make_stream(pdf: Any, content: bytes, **entries: Any) -> Any:
    """A new stream of `pdf` with this content. pikepdf's types of this method are incomplete."""
    return pdf.make_stream(content, **entries)


def certify(content: bytes, signer: Signer, permission: MDPPerm = MDPPerm.NO_CHANGES) -> bytes:
    """Add a certification signature that permits some changes. Not usable in an event loop."""
    writer: Any = IncrementalPdfFileWriter(io.BytesIO(content))
    metadata = PdfSignatureMetadata(field_name="Author", certify=True, docmdp_permissions=permission)
    pdf_signer: Any = PdfSigner
    return bytes(pdf_signer(metadata, signer).sign_pdf(writer).getvalue())


def lock_fields(content: bytes, signer: Signer) -> bytes:
    """Add a signature that locks all fields. Not usable in an event loop."""
    writer: Any = IncrementalPdfFileWriter(io.BytesIO(content))
    field = SigFieldSpec("Author", field_mdp_spec=FieldMDPSpec(FieldMDPAction.ALL))
    pdf_signer: Any = PdfSigner
    signed = pdf_signer(PdfSignatureMetadata(field_name="Author"), signer, new_field_spec=field).sign_pdf(writer)
    return bytes(signed.getvalue())


def make_unrendered_field(value: str, **members: Any) -> bytes:
    """A field, by default of text, in a form with NeedAppearances."""
    field = members or {"FT": Name.Tx, "V": String(value)}
    with pikepdf.open(io.BytesIO(make_single_field_form(T=String("note"), **field))) as pdf:
        form: Any = pdf.Root["/AcroForm"]
        form["/NeedAppearances"] = True
        return save_to_bytes(pdf)


def make_stale_field(*, old: str, new: str) -> bytes:
    """A text field with an outdated appearance, in a form with NeedAppearances."""
    with pikepdf.open(io.BytesIO(make_unrendered_field(new))) as pdf:
        pdf_with_streams: Any = pdf
        form: Any = pdf.Root["/AcroForm"]
        font = Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica)
        form["/Fields"][0]["/AP"] = Dictionary(
            N=pdf_with_streams.make_stream(
                b"BT /F 12 Tf 5 5 Td (%s) Tj ET" % old.encode(),
                Type=Name.XObject, Subtype=Name.Form, BBox=Array([0, 0, 300, 30]),
                Resources=Dictionary(Font=Dictionary(F=font)),
            )
        )  # fmt: skip
        return save_to_bytes(pdf)


def make_radio_group(chosen: str) -> bytes:
    """Two radio buttons, a and b, without appearances."""
    with pikepdf.new() as pdf:
        page = pdf.add_blank_page(page_size=(WIDTH, HEIGHT))
        group: Any = pdf.make_indirect(
            Dictionary({"/FT": Name.Btn, "/Ff": 1 << 15, "/T": String("radio"), "/V": Name(f"/{chosen}")})
        )
        group["/Kids"] = Array(
            [
                pdf.make_indirect(
                    Dictionary(
                        Type=Name.Annot, Subtype=Name.Widget, Parent=group, F=4, AS=Name(f"/{name}"),
                        Rect=Array([left, 50, left + 20, 70]), MK=Dictionary(BC=Array([0])),
                    )
                )
                for left, name in ((50, "a"), (80, "b"))
            ]
        )  # fmt: skip
        page.obj["/Annots"] = group["/Kids"]
        pdf.Root["/AcroForm"] = pdf.make_indirect(Dictionary(Fields=Array([group])))
        return save_to_bytes(pdf)


def make_form_with_stray_widget(text: str) -> bytes:
    """A form with one field, and a widget with an appearance that belongs to no field."""
    with pikepdf.open(io.BytesIO(make_stale_field(old=text, new="x"))) as pdf:
        form: Any = pdf.Root["/AcroForm"]
        stray = form["/Fields"][0]
        form["/NeedAppearances"] = False
        form["/Fields"] = Array([pdf.make_indirect(Dictionary(FT=Name.Tx, T=String("other"), V=String("y")))])
        assert stray["/AP"] is not None
        with pytest.warns(pikepdf.PageCopyWarning):
            return save_to_bytes(pdf)


def make_separate_widgets(*names: str) -> bytes:
    """A page with empty signature fields whose widgets are separate objects."""
    writer: Any = IncrementalPdfFileWriter(io.BytesIO(make_plain_pages()))
    for number, name in enumerate(names):
        box = (50 + 250 * number, 100, 250 + 250 * number, 160)
        append_signature_field(writer, SigFieldSpec(name, box=box, combine_annotation=False))
    output = io.BytesIO()
    writer.write(output)
    return output.getvalue()


def measure_peak() -> int:
    """Return the peak memory of this process in bytes. Not on Windows."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, getrusage also counts the process that started this one
        [line] = [each for each in status.read_text().splitlines() if each.startswith("VmHWM")]
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
