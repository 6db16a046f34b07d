"""The bodies of messages to send: JSON in memory, with the contents of files streamed into their places."""

from __future__ import annotations

import secrets
from pathlib import Path

import attrs

from directsuite.core.events import Meter, Progress
from directsuite.core.upload import AT_ONCE, Content, InMemory, RequestBody, examine
from directsuite.errors import InvalidArgumentError
from directsuite.messaging.models import Attachment, SendRequest
from directsuite.wire import base64
from directsuite.wire.codec import Codec


async def send_body(codec: Codec, request: SendRequest, progress: Progress | None = None) -> RequestBody:
    """The body of a send. Attachments made of paths, files and streams are read and coded while they are sent.

    Contents in memory are coded then too, where they are large. progress: told of the bytes of the former together.
    """
    meter = Meter(progress)
    attachments = _with_sources(request.message.attachment_list)
    sources = [attachment.source for attachment in attachments if attachment.source is not None]
    if not sources:
        return RequestBody.of(codec.encode(request))
    mark = secrets.token_bytes(24)  # stands for a file's content, and can't occur otherwise
    marked = [each if each.source is None else attrs.evolve(each, content=mark) for each in attachments]
    request = attrs.evolve(request, message=attrs.evolve(request.message, attachment_list=marked))
    texts = codec.encode(request).split(base64.encode(mark))
    if len(texts) != len(sources) + 1:
        reason = "the converter writes contents otherwise than as base64, and so not those that are streamed"
        raise InvalidArgumentError(reason, parameter="attachment_list")
    parts = [RequestBody.of(texts[0])]
    contents = [await _content(source) for source in sources]
    told = [None if progress is None or isinstance(content, InMemory) else meter.advance for content in contents]
    for content, accepted, text in zip(contents, told, texts[1:], strict=True):
        content.refuse_taken("attachment_list")
        parts += [RequestBody.base64(content, accepted), RequestBody.of(text)]
    sizes = [content.size for content in contents if not isinstance(content, InMemory)]
    meter.total = None if None in sizes else sum(size for size in sizes if size is not None)
    return RequestBody.joined(parts, meter.begin if sizes else _nothing)


async def _content(source: Path | Content) -> Content:
    """A file is looked at in a thread: it may be on another machine."""
    if isinstance(source, Content):
        return source
    return (await examine(source, head=0, parameter="attachment_list", size=None))[0]


def _with_sources(attachments: list[Attachment]) -> list[Attachment]:
    """The attachments with their contents in memory as sources, where coding all of them at once would take long."""
    if sum(len(attachment.content) for attachment in attachments if attachment.source is None) <= AT_ONCE:
        return attachments
    return [
        attrs.evolve(attachment, content=b"", source=InMemory(attachment.content))
        if attachment.source is None and attachment.content
        else attachment
        for attachment in attachments
    ]


def _nothing() -> None:
    """Nobody is told."""
