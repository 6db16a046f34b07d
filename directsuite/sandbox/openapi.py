"""The four services as an OpenAPI 3.1 document, which is written in openapi.yaml beside this file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec.yaml

_FILE = Path(__file__).with_suffix(".yaml")


def document() -> dict[str, Any]:
    """A new copy of the document, with paths from the sandbox's root.

    Raises ImportError without PyYAML, which comes with the extra `directsuite[sandbox]`.
    """
    described: dict[str, Any] = msgspec.yaml.decode(_FILE.read_bytes())
    return described
