"""Keeps what a method was called with out of the tracebacks of its errors.

Tools that report errors print the locals of every frame: of ours these would be folders, names, numbers and bodies of
patients. So an error leaves a public method without our frames: the caller's stay, and those of a broken source of the
caller's. Only of an error that should never happen, a fault of the package's own, the way through here stays to be
seen, with the frame of the method that was called emptied.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, TypeVar, cast

from directsuite.errors import DirectSuiteError

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")

_PACKAGE = __name__.partition(".")[0]
_BENEATH = "aiohttp"
"""What we call, whose frames hold headers and bodies."""


def scrub_traceback(method: C) -> C:
    """The same method, whose errors hold nothing in their frames of what it was called with."""
    return cast("C", (_awaitable if inspect.iscoroutinefunction(method) else _plain)(method))


def scrub_init(cls: type[T]) -> type[T]:
    """The same class, whose `__init__` is scrub_traceback, and shows nothing of what an object was to be made of."""
    setattr(cls, "__init__", scrub_traceback(cls.__init__))  # noqa: B010  type checkers refuse the assignment
    return cls


def strip_frames(error: BaseException, handled: BaseException | None) -> None:
    """Take our frames out of an error that was just caught in the frame around the one that was called.

    handled: what the caller was handling meanwhile, which is the caller's own.
    """
    called = error.__traceback__.tb_next if error.__traceback__ is not None else None
    if called is not None and not _is_foreseen(error):
        called.tb_frame.clear()  # it has ended, since it raised
        return
    for link in _chain(error, handled):
        ours = [line for line in _lines_of(link) if _is_ours(line)]
        if ours:
            rest = ours[-1].tb_next
            while rest is not None and _package_of(rest) == _BENEATH:
                rest = rest.tb_next
            link.__traceback__ = rest


def _is_foreseen(error: BaseException) -> bool:
    """Return True for what is no fault of the package: its own errors, the system's, and those of others' code."""
    expected = isinstance(error, DirectSuiteError | asyncio.CancelledError | OSError | MemoryError | RecursionError)
    return expected or not all(_is_ours(line) for line in deque(_lines_of(error), maxlen=1))


def _chain(error: BaseException, end: BaseException | None) -> Iterator[BaseException]:
    seen = {id(end)}
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__context__ if link.__cause__ is None else link.__cause__


def _lines_of(error: BaseException) -> Iterator[TracebackType]:
    line = error.__traceback__
    while line is not None:
        yield line
        line = line.tb_next


def _is_ours(line: TracebackType) -> bool:
    return _package_of(line) == _PACKAGE


def _package_of(line: TracebackType) -> str:
    return str(line.tb_frame.f_globals.get("__name__")).partition(".")[0]


def _awaitable(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(method)
    async def called(*args: Any, **kwargs: Any) -> Any:
        handled = sys.exception()
        try:
            calling = method(*args, **kwargs)
            args, kwargs = (), {}
            return await calling
        except BaseException as error:
            args, kwargs = (), {}
            strip_frames(error, handled)
            raise

    return called


def _plain(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        handled = sys.exception()
        try:
            return method(*args, **kwargs)
        except BaseException as error:
            args, kwargs = (), {}
            strip_frames(error, handled)
            raise

    return called
