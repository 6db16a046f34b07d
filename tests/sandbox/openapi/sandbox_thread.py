"""A sandbox in a separate thread, for tests without an event loop."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from directsuite.sandbox.server import Sandbox
from directsuite.testing.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

T = TypeVar("T")


@dataclass(frozen=True)
class SandboxThread:
    sandbox: Sandbox
    thread: LoopThread

    @property
    def root(self) -> str:
        return self.sandbox.root_url

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.thread.call(coroutine)


@contextmanager
def run_sandbox() -> Generator[SandboxThread]:
    with LoopThread() as thread:
        sandbox = Sandbox()
        thread.call(sandbox.__aenter__())
        yield SandboxThread(sandbox, thread)
        thread.call(sandbox.__aexit__(None, None, None))
