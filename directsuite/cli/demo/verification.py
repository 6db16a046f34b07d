"""pyHanko's word on the signatures of a PDF: read from the file alone, with nothing of the client.

Later changes are judged by pyHanko's own rules: only what a further signature needs is allowed.
"""

from __future__ import annotations

import io
from typing import Any

import attrs
from pyhanko.keys import load_certs_from_pemder_data
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign.validation import validate_pdf_signature
from pyhanko.sign.validation.status import SignatureCoverageLevel
from pyhanko_certvalidator import ValidationContext


@attrs.frozen(kw_only=True)
class Verdict:
    """What is known of one signature.

    intact: what it covers is unchanged. valid: it was made with the certificate's key. trusted: the certificate leads
    to the authority. covered: it covers the file as it stood when it was made. unharmed: only what may follow a
    signature follows it.
    """

    field: str
    intact: bool
    valid: bool
    trusted: bool
    covered: bool
    unharmed: bool

    @property
    def good(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.intact and self.valid and self.trusted and self.covered and self.unharmed


def verify(content: bytes, authority: bytes) -> list[Verdict]:
    """The verdict on every signature of a PDF. authority: the PEM certificate to trust. Not to be called on an event
    loop.
    """
    load: Any = load_certs_from_pemder_data
    roots = list(load(authority))
    opened: Any = PdfFileReader(io.BytesIO(content))
    verdicts: list[Verdict] = []
    for signature in opened.embedded_regular_signatures:
        context = ValidationContext(trust_roots=roots, allow_fetching=False)
        status: Any = validate_pdf_signature(signature, context)
        verdicts.append(
            Verdict(
                field=str(signature.field_name),
                intact=bool(status.intact),
                valid=bool(status.valid),
                trusted=bool(status.trusted),
                covered=status.coverage >= SignatureCoverageLevel.ENTIRE_REVISION,
                unharmed=bool(status.docmdp_ok),
            )
        )
    return verdicts
