"""Keeps what libraries say about themselves off people's terminals, and off the network."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cruciform.deployment.rewrites.graph import without_warnings

TELEMETRY = "openvino_telemetry"


@contextmanager
def without_telemetry() -> Iterator[None]:
    """Lets OpenVINO and NNCF be imported without the package that reports their use to Intel and Google.

    Both report unless somebody has opted out, import by import, and both do without the package where it is missing.
    What has been imported outside of this keeps reporting.
    """
    before = {name: module for name, module in sys.modules.items() if name == TELEMETRY}  # of blocks around this too
    sys.modules[TELEMETRY] = None  # type: ignore[assignment]  # Python's own sign for "can't be imported"
    try:
        yield
    finally:
        sys.modules.pop(TELEMETRY, None)
        sys.modules.update(before)


@contextmanager
def without_remarks() -> Iterator[None]:
    """Keeps warnings, and log lines below errors, off the terminal."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        with without_warnings():
            yield
    finally:
        logging.disable(before)
