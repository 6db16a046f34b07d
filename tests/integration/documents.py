"""A PDF to sign, made on the fly."""

from __future__ import annotations

import functools
import io
from importlib import import_module
from typing import Any

from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.sign.fields import SigFieldSpec, append_signature_field

canvas: Any = import_module("reportlab.pdfgen.canvas")  # which has no types


@functools.cache
def make_consent_form() -> bytes:
    """Return a page with the text field `patient` and the empty signature fields `PatientSig` and `WitnessSig`."""
    output = io.BytesIO()
    drawing: Any = canvas.Canvas(output, pagesize=(612, 792))
    drawing.setTitle("Consent")
    drawing.acroForm.textfield(name="patient", x=160, y=600, width=200, height=20, value="Ada")
    drawing.showPage()
    drawing.save()
    writer: Any = IncrementalPdfFileWriter(io.BytesIO(output.getvalue()))
    for name, left in (("PatientSig", 72), ("WitnessSig", 320)):
        append_signature_field(writer, SigFieldSpec(name, box=(left, 100, left + 200, 170)))
    with_fields = io.BytesIO()
    writer.write(with_fields)
    return with_fields.getvalue()
