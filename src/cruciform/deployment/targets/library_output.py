"""Suppress warnings, log lines and telemetry of libraries."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cruciform.deployment.rewrites.graph import without_warnings

TELEMETRY = "openvino_telemetry"
NO_TELEMETRY = "ORT_DISABLE_TELEMETRY"


@contextmanager
def without_telemetry() -> Iterator[None]:
    """Import engines without what reports their use to their makers: OpenVINO, NNCF, and ONNX Runtime since 1.29.

    All report unless the user has opted out. The first two work without the package that does it; the third decides
    once, when it is imported. What others import outside of this block still reports.
    """
    before = {name: module for name, module in sys.modules.items() if name == TELEMETRY}  # also of enclosing blocks
    chosen = os.environ.get(NO_TELEMETRY)
    sys.modules[TELEMETRY] = None  # type: ignore[assignment]  # Python's own sign for "can't be imported"
    os.environ[NO_TELEMETRY] = "1"
    try:
        yield
    finally:
        sys.modules.pop(TELEMETRY, None)
        sys.modules.update(before)
        del os.environ[NO_TELEMETRY]
        os.environ.update({} if chosen is None else {NO_TELEMETRY: chosen})


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
