"""The package changes nothing in the process of its program."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, gc, logging, os, signal, socket, sys, threading, time, warnings

import aiohttp  # a program that calls services has it


def describe():
    loop, root = asyncio.get_running_loop(), logging.getLogger()
    return {
        "signals": [signal.getsignal(each) for each in signal.Signals],
        "garbage collector": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), [*gc.callbacks]],
        "warnings": [[*warnings.filters], warnings.showwarning],
        "environment": [dict(os.environ), os.getcwd(), os.umask(0o22), os.umask(0o22), time.tzname],
        "loop": [loop.get_debug(), loop.slow_callback_duration, loop.get_task_factory(), loop.get_exception_handler(),
                 asyncio.get_event_loop_policy()],
        "logging": [root.level, [*root.handlers], [*root.filters], root.manager.disable, logging.getLoggerClass(),
                    logging.getLogRecordFactory(), logging.lastResort],
        "hooks": [sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook, sys.gettrace()],
        "limits": [sys.getswitchinterval(), sys.getrecursionlimit(), sys.get_int_max_str_digits(),
                   socket.getdefaulttimeout(), threading.stack_size()],
        "memory allocator": "ctypes" in sys.modules,  # mallopt can be called only through ctypes
    }


async def use_suite():
    before = describe()
    import directsuite as ds
    async with ds.DirectSuite(ds.Settings(message_url="http://127.0.0.1:9"), token="1") as suite:
        box = suite.mailbox("alice@direct.example.test", "secret").with_options(retry=ds.RetryPolicy(attempts=1))
        try:
            await box.get_message_count()
        except ds.ConnectFailedError:
            pass
        during = describe()
    after = describe()
    return [name for name in before if not before[name] == during[name] == after[name]]


print(asyncio.run(use_suite()))
"""


@pytest.mark.process
def test_opening_using_and_closing_a_suite_change_nothing_in_the_process() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
