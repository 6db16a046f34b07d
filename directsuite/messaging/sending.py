"""The bodies of messages to send: JSON in memory, with the contents of files streamed into their places."""

from __future__ import annotations

import secrets
from typing import Any

import attrs

from directsuite.core.body import AT_ONCE, RequestBody
from directsuite.core.progress import Meter, Progress
from directsuite.core.source import InMemory, content_of
from directsuite.messaging.models import SendRequest
from directsuite.wire import codec


def send_body(request: SendRequest, progress: Progress | None = None) -> RequestBody:
    """The body of a send. Attachments made of paths, files and streams are read and coded while they are sent.

    Contents in memory are coded then too, where they are large. progress: told of the bytes of the former together.
    """
    meter = Meter(progress)
    request = _with_sources(request)
    document = codec.unstructure(request)
    sources = [attachment.source for attachment in request.message.attachment_list]
    if all(source is None for source in sources):
        return RequestBody.of(codec.encode(document))
    mark = secrets.token_hex(16)  # stands for a file's content in the JSON, and can't occur in it otherwise
    entries: list[dict[str, Any]] = document["message"]["attachmentList"]
    for entry, source in zip(entries, sources, strict=True):
        if source is not None:
            entry["content"] = mark
    texts = codec.encode(document).split(mark.encode())
    parts = [RequestBody.of(texts[0])]
    contents = [content_of(source, parameter="attachment_list") for source in sources if source is not None]
    told = [None if progress is None or isinstance(content, InMemory) else meter.advance for content in contents]
    for content, accepted, text in zip(contents, told, texts[1:], strict=True):
        content.refuse_taken("attachment_list")
        parts += [RequestBody.base64(content, accepted), RequestBody.of(text)]
    sizes = [content.size for content in contents if not isinstance(content, InMemory)]
    meter.total = None if None in sizes else sum(size for size in sizes if size is not None)
    return RequestBody.joined(parts, meter.begin if sizes else _nothing)


def _with_sources(request: SendRequest) -> SendRequest:
    """The request with its contents in memory as sources, where coding all of them at once would take long."""
    attachments = request.message.attachment_list
    if sum(len(attachment.content) for attachment in attachments if attachment.source is None) <= AT_ONCE:
        return request
    attachments = [
        attrs.evolve(attachment, content=b"", source=InMemory(attachment.content))
        if attachment.source is None and attachment.content
        else attachment
        for attachment in attachments
    ]
    return attrs.evolve(request, message=attrs.evolve(request.message, attachment_list=attachments))


def _nothing() -> None:
    """Nobody is told."""
