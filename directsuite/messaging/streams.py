"""Messages on their way out and in: files read while they are sent, and messages read while an answer comes."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from directsuite.core import outcome
from directsuite.core.events import Meter, Progress
from directsuite.core.operation import Operation
from directsuite.core.upload import AT_ONCE, Content, InMemory, RequestBody, examine
from directsuite.errors import InvalidArgumentError
from directsuite.messaging.models import Attachment, GetMessageResponse, MessageDetail, SendRequest
from directsuite.wire import base64
from directsuite.wire.codec import Codec
from directsuite.wire.models import unread_list
from directsuite.wire.parsing import ArraySplitter, MismatchError


async def send_body(codec: Codec, request: SendRequest, progress: Progress | None = None) -> RequestBody:
    """The body of a send. Attachments made of paths, files and streams are read and coded while they are sent.

    Large contents in memory are coded then too. progress: called with the bytes of the former, added up.
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
    callbacks = [None if progress is None or isinstance(content, InMemory) else meter.advance for content in contents]
    for content, accepted, text in zip(contents, callbacks, texts[1:], strict=True):
        content.refuse_taken("attachment_list")
        parts += [RequestBody.base64(content, accepted), RequestBody.of(text)]
    sizes = [content.size for content in contents if not isinstance(content, InMemory)]
    meter.total = None if None in sizes else sum(size for size in sizes if size is not None)
    return RequestBody.joined(parts, meter.begin if sizes else _nothing)


async def _content(source: Path | Content) -> Content:
    """The content of a source. A file is opened in a thread, since it may be on another machine."""
    if isinstance(source, Content):
        return source
    return (await examine(source, head=0, parameter="attachment_list", size=None))[0]


def _with_sources(attachments: list[Attachment]) -> list[Attachment]:
    """The attachments, with contents in memory as sources if coding all of them at once would take long."""
    if sum(len(attachment.content) for attachment in attachments if attachment.source is None) <= AT_ONCE:
        return attachments
    return [
        attrs.evolve(attachment, content=b"", source=InMemory(attachment.content))
        if attachment.source is None and attachment.content
        else attachment
        for attachment in attachments
    ]


def _nothing() -> None:
    """Do nothing: there is no progress to report."""


class MessageReader:
    """Reads the `messages` of a GetMessageResponse, one at a time."""

    def __init__(self, operation: Operation[Any], codec: Codec) -> None:
        self._operation = operation
        self._codec = codec
        self._splitter = ArraySplitter("messages", shape=codec.shape_of(MessageDetail))
        self._number = 0
        self.skipped = 0
        """Elements of lists that were null, the messages themselves among them."""

    @property
    def pending(self) -> int:
        """Bytes that are kept until a message is whole."""
        return self._splitter.pending

    def feed(self, piece: bytes) -> Iterator[MessageDetail]:
        """The messages that are whole by now. Raises MismatchError with the path of the first wrong place."""
        try:
            for element in self._splitter.feed(piece):
                if element is None:
                    self._skip(1)
                else:
                    yield self._message(element)
                self._number += 1
            return
        except RecursionError:  # a reader needs a few frames more than the parser, which had just enough
            pass
        raise MismatchError("nested less deeply", f"$.messages[{self._number}]")

    def _message(self, element: Any) -> MessageDetail:
        try:
            return self._codec.structure(MessageDetail, element, self._skip)
        except MismatchError as mismatch:
            raise MismatchError(mismatch.expected, f"$.messages[{self._number}]{mismatch.path[1:]}") from None

    def _skip(self, elements: int) -> None:
        self.skipped += elements

    def finish(self) -> None:
        """Raise the refusal that the answer is, if what stands around its messages says so."""
        rest = self._splitter.finish()
        refusal = outcome.judge(self._operation, 200, {}, rest, b"")
        if refusal is not None:
            raise refusal
        if not self._operation.refusals.says_yes(rest):
            raise MismatchError("true", f"$.{self._operation.refusals.flag}")
        if not isinstance(rest.get("messages"), list | None) and rest["messages"] != "null":
            raise MismatchError("a list", "$.messages")
        if (unread := unread_list(GetMessageResponse, rest)) is not None:
            raise MismatchError("present", f"$.{unread}")
