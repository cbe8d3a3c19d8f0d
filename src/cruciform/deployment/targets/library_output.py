"""Suppress warnings, log lines and telemetry of libraries."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cruciform.deployment.rewrites.graph import without_warnings

TELEMETRY = "openvino_telemetry"


@contextmanager
def without_telemetry() -> Iterator[None]:
    """Import OpenVINO and NNCF without the package that reports their use to Intel and Google.

    Both report unless the user has opted out, and both work without the package. Imports outside of this block still
    report.
    """
    before = {name: module for name, module in sys.modules.items() if name == TELEMETRY}  # also of enclosing blocks
    sys.modules[TELEMETRY] = None  # type: ignore[assignment]  # Python's own sign for "can't be imported"
    try:
        yield
    finally:
        sys.modules.pop(TELEMETRY, None)
        sys.modules.update(before)


@contextmanager
def without_remarks() -> Iterator[None]:
    """Suppress warnings, and log lines below errors."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        with without_warnings():
            yield
    finally:
        logging.disable(before)
