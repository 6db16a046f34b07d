"""Messages out of an answer that is still coming, and what the answer turns out to be at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from directsuite.core import outcome
from directsuite.core.operation import Operation
from directsuite.messaging.models import GetMessageResponse, MessageDetail
from directsuite.wire.codec import Codec
from directsuite.wire.hooks import unread_list
from directsuite.wire.json_stream import ArraySplitter
from directsuite.wire.parsing import MismatchError


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
        """Raise the refusal that the answer is, seen from what stands around its messages."""
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
