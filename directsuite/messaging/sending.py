"""The bodies of messages to send: JSON in memory, with the contents of files streamed into their places."""

from __future__ import annotations

import secrets
from typing import Any

from directsuite.core.body import RequestBody
from directsuite.messaging.models import SendRequest
from directsuite.wire import codec


def send_body(request: SendRequest) -> RequestBody:
    """The body of a send. Attachments made by `Attachment.from_path` are read and coded while they are sent."""
    document = codec.unstructure(request)
    files = [attachment.source for attachment in request.message.attachment_list]
    if not any(files):
        return RequestBody.of(codec.encode(document))
    mark = secrets.token_hex(16)  # stands for a file's content in the JSON, and can't occur in it otherwise
    entries: list[dict[str, Any]] = document["message"]["attachmentList"]
    for entry, source in zip(entries, files, strict=True):
        if source is not None:
            entry["content"] = mark
    texts = codec.encode(document).split(mark.encode())
    parts = [RequestBody.of(texts[0])]
    for source, text in zip([source for source in files if source is not None], texts[1:], strict=True):
        parts += [RequestBody.base64(source, parameter="attachment_list"), RequestBody.of(text)]
    return RequestBody.joined(parts)
