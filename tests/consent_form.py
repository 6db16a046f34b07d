"""A PDF with a filled field and an empty signature field."""

from __future__ import annotations

import io
from typing import Any

import pikepdf
from pikepdf import Array, Dictionary, Name, String


def build_consent_form(number: int) -> bytes:
    with pikepdf.new() as opened:
        document: Any = opened  # pikepdf's types are incomplete
        font = Dictionary(F1=Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica))
        page = document.add_blank_page(page_size=(612, 792)).obj
        page.Resources = Dictionary(Font=font)
        page.Contents = document.make_stream(f"BT /F1 12 Tf 54 720 Td (Consent form {number}) Tj ET".encode())
        shape = document.make_stream(b"/Tx BMC BT /F1 11 Tf 4 6 Td (Ada Example) Tj ET EMC", BBox=[0, 0, 300, 20])
        shape.stream_dict.update({"/Subtype": Name.Form, "/Resources": Dictionary(Font=font)})
        common: Any = {"Type": Name.Annot, "Subtype": Name.Widget, "P": page, "F": 4}
        name = Dictionary(FT=Name.Tx, T="patient_name", V="Ada Example", Rect=[54, 640, 354, 660], **common)
        name.DA, name.AP = String("/F1 11 Tf 0 g"), Dictionary(N=shape)
        signature = Dictionary(FT=Name.Sig, T="PatientSignature", Rect=[54, 54, 290, 118], **common)
        page.Annots = Array([document.make_indirect(each) for each in (name, signature)])
        document.Root.AcroForm = Dictionary(Fields=page.Annots, DR=Dictionary(Font=font), DA=String("/F1 0 Tf 0 g"))
        document.docinfo["/Title"], document.docinfo["/Producer"] = f"Consent form {number}", "directsuite demo"
        output = io.BytesIO()
        document.save(output, deterministic_id=True)
        return output.getvalue()
