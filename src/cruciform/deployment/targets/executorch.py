"""ExecuTorch: one file for its small runtime, run by XNNPACK where possible."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import GraphModule

from cruciform.deployment.rewrites.graph import export, without_warnings
from cruciform.deployment.targets.target import TARGETS, Engine, Target
from cruciform.errors import DeployError, MissingExtraError, first_line
from cruciform.text.native_output import without_chatter

FILE = "model.pte"
AT_WORK: WeakSet[Any] = WeakSet()
"""The loaded methods, which share the one thread pool of the process."""


class ExecuTorch(Target):
    """PyTorch's engine for edge devices, here on the CPU of this machine."""

    name = "executorch"
    packages = ("executorch",)
    extra = "executorch"
    danger = "that engine does not check sizes and offsets in its file, so a forged one can access any memory"

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Delegate to XNNPACK what it supports, at a static batch size.

        With a dynamic batch size it supports no max pooling and no reshape, which then run in slow reference code
        (nin_c3_lr at batch size 1: 8.1 ms instead of 3.4), and the requested upper bound is lost.
        """
        executorch = _import_executorch()
        program = export(graph, input_size, batch=batch, exactly=True)
        try:
            with torch.no_grad(), without_warnings(), without_chatter():
                lowered = executorch.lower(program, partitioner=[executorch.partitioner()])
                made = lowered.to_executorch()
        except Exception as error:  # it raises whatever it meets
            raise DeployError(f"ExecuTorch can't convert this network: {first_line(error)}") from error
        with (folder / FILE).open("wb") as file:
            made.write_to_file(file)

    def load(self, folder: Path, *, threads: int) -> Engine:
        """Open the program; other batch sizes run in pieces, the last one padded.

        Raises:
            DeployError: An operation is not supported, or another artifact of this engine is open in this process with
                another number of threads.
        """
        executorch = _import_executorch()
        _set_threads(executorch.library, threads)
        remarks: list[str] = []
        try:
            with without_chatter(remarks=remarks):
                method = executorch.runtime.get().load_program(folder / FILE).load_method("forward")
                size = method.metadata.input_tensor_meta(0).sizes()
                method.execute([torch.zeros(size)])  # unsupported operations fail only here
        except RuntimeError as error:
            why = first_line(error) if not remarks else remarks[0]
            raise DeployError(f"ExecuTorch can't run this network: {why}; choose another target") from error
        AT_WORK.add(method)
        batch = size[0]

        def run(images: NDArray[Any]) -> NDArray[Any]:
            outputs = []
            for first in range(0, len(images), batch):
                piece = images[first : first + batch]
                if len(piece) < batch:
                    piece = np.pad(piece, ((0, batch - len(piece)), *((0, 0),) * (piece.ndim - 1)))
                outputs.append(method.execute([torch.from_numpy(np.ascontiguousarray(piece))])[0].numpy())
            return np.concatenate(outputs)[: len(images)]

        return run


def _set_threads(library: Any, threads: int) -> None:
    # Every loaded method keeps a pointer to the pool: replacing it crashes the process when one is used again.
    with without_chatter():
        current = library._threadpool_get_thread_count()
        if current != threads and not AT_WORK:
            library._unsafe_reset_threadpool(threads)
            current = library._threadpool_get_thread_count()
    if current != threads:
        raise DeployError(
            f"ExecuTorch has one thread pool per process, here of {current}, which can't be resized to {threads} while "
            f"an artifact is open: use {current} threads, delete the other artifact, or use another process"
        )


def _import_executorch() -> Any:
    try:
        with without_warnings(), without_chatter():
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
            from executorch.exir import to_edge_transform_and_lower
            from executorch.extension.pybindings import portable_lib
            from executorch.runtime import Runtime
    except ImportError as error:
        raise MissingExtraError(
            f"ExecuTorch is not installed ({error}): pip install 'cruciform[executorch]'"
        ) from error
    return SimpleNamespace(
        lower=to_edge_transform_and_lower, partitioner=XnnpackPartitioner, library=portable_lib, runtime=Runtime
    )


TARGETS.add(ExecuTorch.name, ExecuTorch())
