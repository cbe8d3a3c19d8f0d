"""ONNX Runtime's own profile of a network: every operation's times."""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnxruntime
from numpy.typing import NDArray

from cruciform.deployment.targets.onnxruntime import ONNX_FILE

ENDING = "_kernel_time"


class Operation(NamedTuple):
    """One run of one operation.

    Attributes:
        name: Of the node.
        kind: As ONNX calls it.
        shapes: Of its inputs.
        milliseconds: How long it took.
    """

    name: str
    kind: str
    shapes: list[list[int]]
    milliseconds: float


def profile_runs(folder: Path, images: NDArray[Any], runs: int) -> list[Operation]:
    """Runs what was written into a folder, on one thread, and returns all operations of all runs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    session = onnxruntime.InferenceSession(str(folder / ONNX_FILE), options, providers=["CPUExecutionProvider"])
    for _ in range(runs):
        session.run(None, {session.get_inputs()[0].name: images})
    events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    return [
        Operation(
            event["name"].removesuffix(ENDING),
            event["args"]["op_name"],
            [next(iter(shape.values())) for shape in event["args"]["input_type_shape"]],
            event["dur"] / 1e3,
        )
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith(ENDING)
    ]


def by_kind(
    operations: Sequence[Operation], kind_of: Callable[[Operation], str | None], *, runs: int, loops: int = 1
) -> dict[str, float]:
    """Returns the milliseconds of each kind, every operation at its shortest.

    Args:
        operations: Of all runs.
        kind_of: The kind of an operation; None where it does not count.
        runs: How many there were.
        loops: How often a loop went round in each: what ran more often than there were runs was inside.
    """
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in operations:
        if (kind := kind_of(one)) is not None:
            found[one.name, kind].append(one.milliseconds)
    total: dict[str, float] = defaultdict(float)
    for (_, kind), milliseconds in found.items():
        total[kind] += min(milliseconds) * (loops if len(milliseconds) > runs else 1)
    return dict(total)
