"""PyTorch itself, channels last: an archive of torch.export, run eagerly or compiled when it is loaded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.fx import GraphModule

from cruciform.deployment.rewrites.graph import export, without_warnings
from cruciform.deployment.targets.compiler import require_compiler
from cruciform.deployment.targets.target import IS_CODE, TARGETS, Engine, Target
from cruciform.errors import DeployError
from cruciform.nn.channels_last import MEMORY_FORMATS, channels_last_

FILE = "model.pt2"
BATCH = "batch"  # the entry of the archive with its batch size


class Eager(Target):
    """PyTorch, eager or compiled when it is loaded.

    Args:
        compiled: Whether to compile. The files are the same.
    """

    packages = ("torch",)
    extra = "train"
    computes_by_torch = True
    danger = IS_CODE  # torch's archives hold pickles

    def __init__(self, *, compiled: bool) -> None:
        self.name = "torch-compile" if compiled else "torch"
        self._compiled = compiled

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Write the archive of torch.export."""
        program = export(graph, input_size, batch=max(2, batch))
        with without_warnings():
            torch.export.save(program, folder / FILE, extra_files={BATCH: str(batch)})

    def load(self, folder: Path, *, threads: int) -> Engine:
        """Read the archive and convert its weights to channels last.

        Compiling needs a C++ compiler and takes seconds to a minute: once for batch size 1 and once for all others,
        here for that of the archive, for the other when it is first used.

        Raises:
            DeployError: There is no C++ compiler, or it fails on this network.
        """
        notes = {BATCH: ""}
        with without_warnings():
            program = torch.export.load(folder / FILE, extra_files=notes)
            module: Any = program.module(check_guards=False)
        example = program.example_inputs[0][0]
        layout = MEMORY_FORMATS.get(example.ndim, torch.contiguous_format)
        channels_last_(module)
        if not self._compiled:
            return as_engine(module, threads=threads, layout=layout)
        require_compiler()
        from torch._dynamo.exc import TorchDynamoException  # a second of imports

        # One graph or an error: otherwise parts that can't be compiled, or too often, would run eagerly.
        compiled = torch.compile(module, dynamic=True, fullgraph=True, options={"freezing": True})
        engine = as_engine(compiled, threads=threads, layout=layout)
        try:
            with without_warnings():
                engine(torch.zeros(int(notes[BATCH]), *example.shape[1:]).numpy())
        except TorchDynamoException as error:
            raise DeployError(
                f"torch.compile fails on this network ({str(error).splitlines()[0]}); deploy to another target"
            ) from error
        return engine


def as_engine(module: Callable[[Tensor], Tensor], *, threads: int, layout: torch.memory_format) -> Engine:
    """Return an engine that runs a PyTorch module on a number of threads, in one memory format."""

    def run(images: NDArray[Any]) -> NDArray[Any]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with torch.inference_mode():
                output: NDArray[Any] = module(torch.from_numpy(images).contiguous(memory_format=layout)).numpy()
                return output
        finally:
            torch.set_num_threads(before)

    return run


for target in (Eager(compiled=False), Eager(compiled=True)):
    TARGETS.add(target.name, target)
