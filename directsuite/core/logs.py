"""Events as log records."""

import logging

from directsuite.core.events import Event


class LogListener:
    """Events as log records."""

    def __init__(self, logger: logging.Logger) -> None: ...
    def __call__(self, event: Event) -> None: ...
