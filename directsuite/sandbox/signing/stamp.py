"""What a visible signature looks like: the graphical signature, who signed, why and when.

It is drawn as a page of its own with pikepdf and then taken over by pyHanko as the signature's appearance. On a
page that viewers turn, it is drawn turned the other way, so that it reads upright.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pikepdf
from pikepdf import Array, Dictionary, Name
from pyhanko.pdf_utils.content import AppearanceContent
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.stamp import BaseStampStyle

from directsuite.sandbox.refusals import InvalidParameterError
from directsuite.sandbox.signing.document import new_stream
from directsuite.sandbox.signing.form import upright
from directsuite.sandbox.signing.text import Helvetica, TextStyle, font_for, paragraph

if TYPE_CHECKING:
    from PIL.Image import Image
    from pyhanko.pdf_utils.layout import BoxConstraints
    from pyhanko.pdf_utils.writer import BasePdfFileWriter

_MOST_PIXELS = 8_000_000  # a picture of a few kilobytes can unpack to gigabytes
_PICTURE_FORMATS = ("PNG", "JPEG", "GIF", "BMP")
_GAP = 2.0  # points around the picture and between it and the text

Draw = Callable[[float, float], bytes]


def read_picture(picture: bytes) -> Image:
    """Return a graphical signature as an image. Raises InvalidParameterError for an unreadable or too large one."""
    from PIL import Image

    try:
        opened = Image.open(io.BytesIO(picture), formats=_PICTURE_FORMATS)
        if opened.width * opened.height > _MOST_PIXELS:
            raise InvalidParameterError(
                f"graphicalSignature has {opened.width} x {opened.height} pixels, more than {_MOST_PIXELS} in all"
            )
        return opened.convert("RGBA")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise InvalidParameterError(f"graphicalSignature has more than {_MOST_PIXELS} pixels") from None
    except (OSError, SyntaxError, ValueError, EOFError):  # Pillow raises all of these for a damaged file
        raise InvalidParameterError("graphicalSignature is not a readable PNG, JPEG, GIF or BMP picture") from None


def draw_stamp(width: float, height: float, *, lines: list[str], picture: Image | None, turned: int) -> bytes:
    """Return a PDF of one page with the look of a signature of this size on a page that is turned by `turned` degrees.

    Its background is white, since the page below may be a dark scan.
    """
    across, up, matrix = upright(turned, width, height)
    text_left, text_bottom, text_width, text_height = 0.0, 0.0, across, up
    with pikepdf.new() as pdf:
        resources = Dictionary()
        content = b"1 g 0 0 %.3f %.3f re f\n%.3f %.3f %.3f %.3f %.3f %.3f cm\n" % (width, height, *matrix)
        if picture is not None:
            beside = across >= up
            room = (across / 2, up) if beside else (across, up / 2)
            scale = min((room[0] - 2 * _GAP) / picture.width, (room[1] - 2 * _GAP) / picture.height)
            drawn = (max(picture.width * scale, 0.01), max(picture.height * scale, 0.01))
            left, bottom = (room[0] - drawn[0]) / 2, up - room[1] + (room[1] - drawn[1]) / 2
            content += b"q %.3f 0 0 %.3f %.3f %.3f cm /Picture Do Q\n" % (*drawn, left, bottom)
            resources["/XObject"] = Dictionary(Picture=_image(pdf, picture))
            if beside:
                text_left, text_width = across / 2, across / 2
            else:
                text_height = up / 2
        text = "\n".join(lines)
        font = font_for(text) or Helvetica()
        resources["/Font"] = Dictionary(Text=font.resource(pdf))
        style = TextStyle(font, 0.0, "0 g", 0, text_width, text_height)
        content += b"q 1 0 0 1 %.3f %.3f cm\n%sQ\n" % (text_left, text_bottom, paragraph(style, text))
        page = Dictionary(
            Type=Name.Page,
            MediaBox=Array([0, 0, round(width, 3), round(height, 3)]),
            Resources=resources,
            Contents=new_stream(pdf, content),
        )
        pdf.pages.append(pikepdf.Page(pdf.make_indirect(page)))
        output = io.BytesIO()
        pdf.save(output)
        return output.getvalue()


@dataclass(frozen=True)
class DrawnStampStyle(BaseStampStyle):
    """Tells pyHanko to use what `draw` gives for a width and height as the appearance of a signature."""

    draw: Draw | None = None

    def create_stamp(self, writer: BasePdfFileWriter, box: BoxConstraints, text_params: dict[str, Any]) -> Any:
        """The appearance for a box; called by pyHanko."""
        return _DrawnStamp(writer, box, self.draw)


class _DrawnStamp(AppearanceContent):
    def __init__(self, writer: BasePdfFileWriter, box: BoxConstraints, draw: Draw | None) -> None:
        super().__init__(writer=writer, box=box)
        self._signed_document: Any = writer  # the writer of the base class has no type
        self._draw = draw

    def register(self) -> Any:
        """The appearance as a form object of the document that is being signed."""
        if self._draw is None:
            raise ValueError("a stamp needs something to draw")
        drawn = self._draw(float(self.box.width), float(self.box.height))
        return self._signed_document.import_page_as_xobject(PdfFileReader(io.BytesIO(drawn)))


def _image(pdf: pikepdf.Pdf, picture: Image) -> pikepdf.Object:
    """A picture as an image of the PDF, its transparency as a soft mask."""

    def channel(pixels: bytes, space: Name) -> pikepdf.Object:
        return new_stream(
            pdf,
            zlib.compress(pixels),
            Type=Name.XObject,
            Subtype=Name.Image,
            Width=picture.width,
            Height=picture.height,
            BitsPerComponent=8,
            ColorSpace=space,
            Filter=Name.FlateDecode,
        )

    image = channel(picture.convert("RGB").tobytes(), Name.DeviceRGB)
    image["/SMask"] = channel(picture.getchannel("A").tobytes(), Name.DeviceGray)
    return image
