"""The shapes that the specification leaves open, as such services document them: a row for each."""

from __future__ import annotations

from datetime import UTC, datetime

import directsuite as ds
from tests.known_facts.readers import Row, read_attributes, read_document, read_faxes

MOMENT = datetime(2016, 7, 5, 17, 47, 15, tzinfo=UTC)

SHAPE_ROWS: list[Row] = [
    (
        "fax MessageObject",
        {"MessageDetail": [{"fax_number": "1", "status": "waiting", "updated_ts": 1467740835000, "description": "d"}]},
        read_faxes,
        [ds.FaxMessage(fax_number="1", status=ds.FaxStatus.WAITING, updated_ts=MOMENT, description="d")],
    ),
    (
        "fax RecipientObject",
        {"MessageDetail": [{"recipients": [{"Address": "1", "Name": "n", "PageCount": "2", "description": "d"}]}]},
        read_faxes,
        [ds.FaxMessage(recipients=[ds.FaxRecipient(address="1", name="n", page_count=2, description="d")])],
    ),
    (
        "SignatureObject in GetDocInfo",
        {
            "signatures": [
                {
                    "name": "n",
                    "width": 1,
                    "height": 2,
                    "left": 3,
                    "top": 4,
                    "pageIndex": 1,
                    "isSigned": True,
                    "signerName": "s",
                    "signatureTime": "t",
                    "reason": "r",
                    "isValid": False,
                }
            ]
        },
        read_attributes(read_document, "signatures"),
        [
            ds.DocumentSignature(
                name="n",
                width=1,
                height=2,
                left=3,
                top=4,
                page_index=1,
                is_signed=True,
                signer_name="s",
                signature_time="t",
                reason="r",
                is_valid=False,
            )
        ],
    ),
    (
        "FormFieldObject",
        {
            "formFields": [
                {"name": "n", "value": "v", "left": 1, "top": 2, "width": 3, "height": 4, "pageIndex": 1, "tabIndex": 2}
            ]
        },
        read_attributes(read_document, "form_fields"),
        [ds.FormField(name="n", value="v", left=1, top=2, width=3, height=4, page_index=1, tab_index=2)],
    ),
    (
        "PageObject",
        {"pages": [{"index": 1, "width": 612, "height": 792, "rotate": 90}]},
        read_attributes(read_document, "pages"),
        [ds.Page(index=1, width=612, height=792, rotate=90)],
    ),
    (
        "MetaDataObject as pairs",
        {"metaData": [{"key": "Title", "value": "t"}]},
        read_attributes(read_document, "meta_data"),
        {"Title": "t"},
    ),
    (
        "MetaDataObject as an object",
        {"metaData": {"Title": "t"}},
        read_attributes(read_document, "meta_data"),
        {"Title": "t"},
    ),
    (
        "every other field is kept",
        {"pages": [{"index": 1, "label": "i"}]},
        read_attributes(read_document, "pages"),
        [ds.Page(index=1, extra={"label": "i"})],
    ),
]
