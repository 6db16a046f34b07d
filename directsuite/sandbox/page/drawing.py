"""Makes foreign content safe for a browser: draws pages of PDFs, and neutralizes HTML of messages."""

from __future__ import annotations

import io
import re
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_ACTIVE_ELEMENTS = re.compile(
    r"<(/?)(?=(?:applet|area|audio|base|button|embed|form|frame|frameset|iframe|input|link|meta|object|portal|script"
    r"|source|track|video|image|animate|set|use|foreignobject|template)[\s/>])",
    re.IGNORECASE,
)
_LINK_ATTRIBUTES = re.compile(r"\b(href|src|srcset|imagesrcset|srcdoc|ping|background|poster)(?=\s*=)", re.IGNORECASE)
_SAFE_SOURCE = re.compile(r"""x-(src)(\s*=\s*["']?data:image/(?:png|jpeg|gif|webp)[;,])""", re.IGNORECASE)

_MAX_WIDTH_PIXELS = 1000  # of a drawn page
_pdfium_lock = threading.Lock()  # PDFium is not thread-safe


def neutralize_html(html: str) -> str:
    """Return HTML in which browsers ignore elements and attributes that run code, load or navigate: they are renamed.

    The frame's sandbox and Content-Security-Policy do not prevent DNS prefetching, for example. A tag is always `<`
    directly followed by its name (HTML, 13.2.5.6).
    """
    renamed = _LINK_ATTRIBUTES.sub(r"x-\1", _ACTIVE_ELEMENTS.sub(r"<\1x-", html))
    return _SAFE_SOURCE.sub(r"\1\2", renamed)


def draw_page(file: Path, number: int) -> bytes:
    """Return a page of a PDF, drawn with forms and signatures, as PNG. number: from 1."""
    pdfium: Any = import_module("pypdfium2")  # not typed

    with _pdfium_lock:
        try:
            document = pdfium.PdfDocument(file)
        except pdfium.PdfiumError:
            raise ValueError("PDFium cannot read the document.") from None
        try:
            if not 1 <= number <= len(document):
                raise LookupError(f"The document has no page {number}.")
            document.init_forms()
            page = document[number - 1]
            width, height = page.get_size()
            scale = min(_MAX_WIDTH_PIXELS / max(width, 1), 3 * _MAX_WIDTH_PIXELS / max(height, 1), 4)
            picture = io.BytesIO()
            page.render(scale=scale, may_draw_forms=True).to_pil().save(picture, "PNG")
            return picture.getvalue()
        except pdfium.PdfiumError:
            raise ValueError(f"PDFium cannot draw page {number}.") from None
        finally:
            document.close()
