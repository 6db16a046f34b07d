"""What others made, in a form that a browser may have: pages of PDFs as pictures, mail's HTML without what acts."""

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

_MAX_WIDTH_PIXELS = 1000  # pixels
_pdfium_lock = threading.Lock()  # PDFium is not made for threads


def neutralize_html(html: str) -> str:
    """Mail's HTML with the elements that act, load or lead somewhere renamed, and attributes that do the same.

    The browser is told too, by the frame's sandbox and a Content-Security-Policy, to run and load nothing; this is for
    what those leave open, such as names that are looked up and connections that are opened in advance. A start tag is
    `<` with the name at once after it, and nothing else (HTML, 13.2.5.6): a name that is not written isn't there.
    """
    renamed = _LINK_ATTRIBUTES.sub(r"x-\1", _ACTIVE_ELEMENTS.sub(r"<\1x-", html))
    return _SAFE_SOURCE.sub(r"\1\2", renamed)


def draw_page(file: Path, number: int) -> bytes:
    """A page of a PDF file as PNG, counted from 1, with forms and signatures.

    Raises LookupError where there is no such page, ValueError for what can't be drawn, and ImportError without the
    extra `directsuite[sandbox]`.
    """
    pdfium: Any = import_module("pypdfium2")  # it has no types

    with _pdfium_lock:
        try:
            document = pdfium.PdfDocument(file)
        except pdfium.PdfiumError:
            raise ValueError("PDFium can't read the document") from None
        try:
            if not 1 <= number <= len(document):
                raise LookupError("the document has no such page")
            document.init_forms()
            page = document[number - 1]
            width, height = page.get_size()
            scale = min(_MAX_WIDTH_PIXELS / max(width, 1), 3 * _MAX_WIDTH_PIXELS / max(height, 1), 4)
            picture = io.BytesIO()
            page.render(scale=scale, may_draw_forms=True).to_pil().save(picture, "PNG")
            return picture.getvalue()
        except pdfium.PdfiumError:
            raise ValueError("PDFium can't draw the page") from None
        finally:
            document.close()
