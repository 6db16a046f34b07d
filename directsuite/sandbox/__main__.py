"""`python -m directsuite.sandbox`: the sandbox as a server, also without the extra `directsuite[cli]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from directsuite.sandbox.quirks import PROFILES, Profiles
from directsuite.sandbox.serving import (
    DEFAULT_FOLDER,
    DEFAULT_HOST,
    DEFAULT_KEY_LABEL,
    DEFAULT_PORT,
    PIN_VARIABLE,
    ServingOptions,
    parse_size,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_PORT = 65_535


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sandbox and return the exit status. Raises SystemExit with status 2 if an option is invalid."""
    parser = argparse.ArgumentParser(
        prog="python -m directsuite.sandbox",
        description="Run the four services on loopback until Ctrl-C or SIGTERM.",
        epilog="Exit status: 0 after a signal, 1 if the sandbox cannot start, 2 if an option is invalid.",
    )
    parser.add_argument(
        "--port", type=_parse_port, default=DEFAULT_PORT, help="port, 0 for a free one (default: %(default)s)"
    )
    parser.add_argument("--host", default=DEFAULT_HOST, help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--allow-remote", action="store_true", help="allow a --host that is not loopback, and require a token"
    )
    parser.add_argument(
        "--profile", action="append", choices=PROFILES, help="deviate from the specification; may be repeated"
    )
    parser.add_argument("--imitate", type=Path, metavar="FILE", help="imitate the server of a doctor --deep report")
    storage = parser.add_mutually_exclusive_group()
    storage.add_argument(
        "--data", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="folder of the state (default: %(default)s)"
    )
    storage.add_argument("--memory", action="store_true", help="keep the state in memory only")
    parser.add_argument("--max-body", type=_parse_size, metavar="SIZE", help="maximum size of a request, such as 500M")
    parser.add_argument("--quiet", action="store_true", help="print no calls")
    parser.add_argument("--json", action="store_true", help="print only one line of JSON, for programs")
    token = parser.add_argument_group(
        "the signing key in a PKCS #11 token", f"The PIN is read from --pkcs11-pin-file or {PIN_VARIABLE}."
    )
    token.add_argument("--pkcs11-module", type=Path, metavar="PATH", help="the token's library")
    token.add_argument("--pkcs11-token", default="", metavar="LABEL")
    token.add_argument("--pkcs11-key", default=DEFAULT_KEY_LABEL, metavar="LABEL", help="default: %(default)s")
    token.add_argument("--pkcs11-pin-file", type=Path, metavar="FILE")
    chosen = parser.parse_args(arguments)
    if (chosen.pkcs11_module is None) == bool(chosen.pkcs11_token):
        parser.error("--pkcs11-module and --pkcs11-token must be given together")
    folder = None if chosen.memory else chosen.data
    profile: Profiles = chosen.profile or "strict"
    return run(
        ServingOptions(
            folder=folder,
            host=chosen.host,
            allow_remote=chosen.allow_remote,
            port=chosen.port,
            profile=profile,
            imitate=chosen.imitate,
            max_body=chosen.max_body,
            quiet=chosen.quiet,
            json=chosen.json,
            pkcs11_module=chosen.pkcs11_module,
            pkcs11_token=chosen.pkcs11_token,
            pkcs11_key=chosen.pkcs11_key,
            pkcs11_pin_file=chosen.pkcs11_pin_file,
        )
    )


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > _MAX_PORT:
        raise argparse.ArgumentTypeError(f"give a number from 0 to {_MAX_PORT}")
    return int(text)


def _parse_size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
