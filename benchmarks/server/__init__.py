"""A server of prepared responses in a separate process. It needs little CPU, so that the clients are measured.

responses    the operations, and the bytes of their responses
__main__     the process, with the necessary part of HTTP/1.1
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Self

import attrs

_ROOT = Path(__file__).resolve().parents[2]


@attrs.frozen(kw_only=True)
class ServerScenario:
    """The sizes of responses. The first segment of a URL's path contains them: /messages=50,…/signing/pdf.

    messages: messages of a folder. attachment: bytes of the attachment of each message, 0 for none.
    document: bytes of a document. latency: seconds before the response of GetMessagesByUIDs and SignAndPull.
    """

    messages: int = attrs.field(default=50, converter=int)
    attachment: int = attrs.field(default=0, converter=int)
    document: int = attrs.field(default=0, converter=int)
    latency: float = attrs.field(default=0.0, converter=float)

    def to_segment(self) -> str:
        """Return the segment of a path."""
        return ",".join(f"{name}={value}" for name, value in attrs.asdict(self).items())

    @classmethod
    def from_segment(cls, segment: str) -> Self:
        """Read a segment of a path. Raises TypeError or ValueError if it is invalid."""
        return cls(**dict(pair.split("=", 1) for pair in segment.split(",")))


@contextlib.contextmanager
def run_server() -> Generator[str]:
    """Run the server and yield its URL, for `make_scenario_url`."""
    # If this process ends in any way, the server's standard input ends, and then the server.
    command = sys.executable, "-m", "benchmarks.server"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            if not (port := process.stdout.readline().decode().strip()):
                raise RuntimeError("The server of the benchmarks did not start.")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def make_scenario_url(url: str, **sizes: Any) -> str:
    """Return the base URL of a scenario. sizes: the members of ServerScenario."""
    return f"{url}/{ServerScenario(**sizes).to_segment()}"
