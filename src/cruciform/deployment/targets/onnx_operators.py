"""Keeps the table of ONNX operators of torch's exporter from one export to the next.

``torch.onnx.export`` makes it each time by parsing the source code of a thousand operators. For a layer or a small
network, of which a search exports hundreds, that takes longer than everything else.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

_exporting = Lock()
_tables: dict[int, Any] = {}


@contextmanager
def kept_operators() -> Iterator[None]:
    """Let ``torch.onnx.export`` use the table that is kept; with a torch that makes it otherwise nothing is changed."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        make = ONNXRegistry.__dict__["from_torchlib"]
    except (ImportError, KeyError):
        yield
        return

    def from_torchlib(cls: Any, opset_version: int) -> Any:
        if opset_version not in _tables:
            _tables[opset_version] = make.__func__(cls, opset_version=opset_version)
        table = copy.copy(_tables[opset_version])
        table.functions = {name: list(functions) for name, functions in table.functions.items()}  # an export may add
        return table

    with _exporting:
        setattr(ONNXRegistry, "from_torchlib", classmethod(from_torchlib))  # noqa: B010 - mypy takes methods for fixed
        try:
            yield
        finally:
            setattr(ONNXRegistry, "from_torchlib", make)  # noqa: B010
