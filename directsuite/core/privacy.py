"""Removes the arguments of a public callable from the tracebacks of its errors.

Tools that report errors print the local variables of every frame. In this package, these may be names, numbers and
messages of patients. Therefore, when an error leaves a public callable, the frames of this package and of the libraries
in `_LIBRARIES` are removed from its traceback. The frames of the caller remain, also those of code that this package
called, for example a source that failed. If the error shows a bug of this package, all frames remain, but the local
variables in those of the package and the libraries are deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from types import FrameType, FunctionType, TracebackType
from typing import Any, Generic, TypeVar, cast

from directsuite.errors import DirectSuiteError

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")

SCRUBBED_DUNDERS = frozenset(
    {"__init__", "__call__", "__enter__", "__exit__", "__aenter__", "__aexit__", "__aiter__", "__anext__"}
)
_PACKAGE = __name__.partition(".")[0]
_LIBRARIES = sys.stdlib_module_names | {
    *("aiohttp", "attr", "attrs", "cattrs", "fsspec", "msgspec", "multidict", "oauthlib", "opentelemetry"),
    *("procrastinate", "psycopg", "psycopg_pool", "pybase64", "tenacity", "yarl"),
}
"""Packages that call, or are called by, this package. Their frames may contain arguments, headers and bodies."""
_SYSTEM_ERRORS = (OSError, MemoryError, RecursionError, StopAsyncIteration, GeneratorExit)
_SCRUBBED_ATTR = "__is_scrubbed__"
EXPECTED_ATTR = "__is_expected__"
"""An attribute of errors that this package raises, but that do not show a bug of it."""


def scrub_traceback(function: C) -> C:
    """Return a wrapper of a function that removes arguments from the tracebacks of its errors.

    This includes errors of the coroutine, async generator or async context manager that the function returns.
    """
    made: Callable[..., Any]
    if inspect.iscoroutinefunction(function):
        made = _wrap_coroutine_function(function)
    elif inspect.isasyncgenfunction(function):
        made = _wrap_factory(function, ScrubbedGenerator)
    elif inspect.isasyncgenfunction(getattr(function, "__wrapped__", None)):  # decorated with asynccontextmanager
        made = _wrap_factory(function, _ScrubbedAsyncContext)
    else:
        made = _wrap_function(function)
    setattr(made, _SCRUBBED_ATTR, True)
    return cast("C", made)


def scrub_class(cls: type[T]) -> type[T]:
    """Scrub the public methods and `SCRUBBED_DUNDERS` of a class and its bases in this package. Return the class."""
    for base in cls.__mro__:
        members = vars(base).items() if base.__module__.partition(".")[0] == _PACKAGE else ()
        for name, member in list(members):
            function: object = getattr(member, "__func__", member)
            is_public = not name.startswith("_") or name in SCRUBBED_DUNDERS
            if is_public and isinstance(function, FunctionType) and not is_scrubbed(function):
                scrubbed = scrub_traceback(function)
                # A class method and a static method are wrapped again.
                setattr(base, name, scrubbed if member is function else type(member)(scrubbed))
    return cls


def is_scrubbed(function: object) -> bool:
    """Return True if a function was scrubbed."""
    return hasattr(function, _SCRUBBED_ATTR)


def strip_frames(error: BaseException, handled: BaseException | None) -> None:
    """Remove the frames of this package and its libraries from an error and its causes and contexts.

    If the error shows a bug of this package, clear the local variables of these frames instead. Must be called in the
    `except` block around the call that failed.

    handled: the exception that the caller was already handling before this call, or None. It remains unchanged.
    """
    links = list(_iter_chain(error, handled))
    if not _is_expected(error):
        _clear_frames(links)
        return
    for link in links:
        if isinstance(link, DirectSuiteError) and link.__suppress_context__:
            # Some tools print a suppressed context, which may name files. Only `error` itself gets `handled` as its
            # context: in a cause, it could make the chain a loop.
            link.__context__ = handled if link is error else None
        ours = [line for line in _iter_traceback(link) if _is_ours(line)]
        if ours:
            rest = ours[-1].tb_next
            while rest is not None and _get_package(rest) in _LIBRARIES:
                rest = rest.tb_next
            link.__traceback__ = rest


def _is_expected(error: BaseException) -> bool:
    """Return True unless the error shows a bug of this package: an unexpected exception that its own code raised."""
    expected = isinstance(error, (DirectSuiteError, asyncio.CancelledError, *_SYSTEM_ERRORS))
    expected = expected or hasattr(error, EXPECTED_ATTR)
    return expected or not all(_is_ours(line) for line in deque(_iter_traceback(error), maxlen=1))


def _clear_frames(links: list[BaseException]) -> None:
    suspended = set(_iter_task_frames())
    for link in links:
        for line in _iter_traceback(link):
            if (_is_ours(line) or _get_package(line) in _LIBRARIES) and line.tb_frame not in suspended:
                with contextlib.suppress(RuntimeError):  # the frame is still running
                    line.tb_frame.clear()


def _iter_task_frames() -> Iterator[FrameType]:
    """Yield the frames of all unfinished tasks. Clearing such a frame would end its coroutine."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no event loop is running
        return
    for task in tasks:
        waiting: Any = task.get_coro()
        while waiting is not None:
            kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(waiting, f"{kind}_frame")), None)
            if kind is None:
                # A step of an async generator has no frame. Its first referent is the generator.
                is_anext = type(waiting).__name__.startswith("async_generator_")
                waiting = next(iter(gc.get_referents(waiting)), None) if is_anext else None
                continue
            if (frame := getattr(waiting, f"{kind}_frame")) is not None:
                yield frame
            waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")


def _iter_chain(error: BaseException, end: BaseException | None) -> Iterator[BaseException]:
    seen, waiting = {id(None), id(end)}, [error]
    while waiting:
        link = waiting.pop()
        if id(link) not in seen:
            seen.add(id(link))
            yield link
            waiting += [each for each in (link.__context__, link.__cause__) if each is not None]
            waiting += getattr(link, "exceptions", ())  # members of an exception group


def _iter_traceback(error: BaseException) -> Iterator[TracebackType]:
    line = error.__traceback__
    while line is not None:
        yield line
        line = line.tb_next


def _is_ours(line: TracebackType) -> bool:
    return _get_package(line) == _PACKAGE


def _get_package(line: TracebackType) -> str:
    return str(line.tb_frame.f_globals.get("__name__")).partition(".")[0]


def _wrap_coroutine_function(
    method: Callable[..., Coroutine[Any, Any, Any]],
) -> Callable[..., Coroutine[Any, Any, Any]]:
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


def _wrap_function(method: Callable[..., Any]) -> Callable[..., Any]:
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


def _wrap_factory(method: Callable[..., Any], wrapper: Callable[[Any], Any]) -> Callable[..., Any]:
    called = _wrap_function(method)

    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(called(*args, **kwargs))

    return wrapped


class ScrubbedGenerator(AsyncGenerator[T, None]):
    """An async generator whose errors show no arguments."""

    def __init__(self, generator: AsyncGenerator[T, None]) -> None:
        self._generator = generator

    @scrub_traceback
    async def __anext__(self) -> T:
        return await self._generator.__anext__()

    @scrub_traceback
    async def asend(self, value: None) -> T:
        """Do what `asend` of any async generator does."""
        return await self._generator.asend(value)

    @scrub_traceback
    async def athrow(self, *args: Any) -> T:
        """Do what `athrow` of any async generator does."""
        return await self._generator.athrow(*args)

    @scrub_traceback
    async def aclose(self) -> None:
        """Do what `aclose` of any async generator does."""
        await self._generator.aclose()


class _ScrubbedAsyncContext(AbstractAsyncContextManager[T, bool | None], Generic[T]):
    def __init__(self, context: AbstractAsyncContextManager[T, bool | None]) -> None:
        self._context = context

    @scrub_traceback
    async def __aenter__(self) -> T:
        return await self._context.__aenter__()

    @scrub_traceback
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._context.__aexit__(kind, error, traceback)
