"""A server of canned answers, in a process of its own: as light as can be, so that what is measured is the client.

with served() as url, and at(url, messages=500, attachment=200_000) is the base URL of a scenario with these sizes

scenario   the sizes that a base URL asks for
answers    the answers' bytes: records, messages, documents of any size from one repeated block
routes     which operation gets which answer
protocol   HTTP/1.1, no more of it than the clients send
pinning    the server to one core, the clients to another
__main__   the process
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

from benchmarks.server.scenario import ServerScenario

_ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def run_server() -> Generator[str]:
    """Run the server; the URL to give to `at`."""
    command = (sys.executable, "-m", "benchmarks.server")
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    # Its standard input ends when this process does, however that ends, and the server with it.
    with subprocess.Popen(  # noqa: S603 (our own module)
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().decode().strip()
            if not port:
                raise RuntimeError("the benchmarks' server did not start")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def make_scenario_url(
    url: str, *, messages: int = 50, attachment: int = 0, document: int = 0, latency: float = 0.0
) -> str:
    """The base URL of a scenario.

    messages: records of GetMessages, GetMessageMetaData and GetMessageCount. attachment: decoded bytes of the one that
    each message carries, 0 for none. document: decoded bytes of what GetDoc answers. latency: seconds before
    GetMessagesByUIDs, or SignAndPull, is answered.
    """
    scenario = ServerScenario(messages=messages, attachment=attachment, document=document, latency=latency)
    return f"{url}/{scenario.to_segment()}"
