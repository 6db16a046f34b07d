"""`python -m directsuite`: the same as the command `directsuite`."""

from __future__ import annotations

import sys

from directsuite.cli import main

if __name__ == "__main__":
    sys.exit(main())
