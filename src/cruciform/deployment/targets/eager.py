"""PyTorch itself, channels last: torch's own archive of the exported program, run as it is or compiled at loading."""

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
BATCH = "batch"  # the archive's note of the number of images that it is made for


class Eager(Target):
    """PyTorch, one operation after the other, or compiled when it is loaded.

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
        """Writes torch's archive."""
        program = export(graph, input_size, batch=max(2, batch))
        with without_warnings():
            torch.export.save(program, folder / FILE, extra_files={BATCH: str(batch)})

    def load(self, folder: Path, *, threads: int) -> Engine:
        """Reads the archive, which we wrote, and lays its weights out with their channels last.

        To compile takes a C++ compiler, and seconds to a minute. It is done once for one image and once for any other
        number: here for the number that the archive is made for, for the other when it first comes.

        Raises:
            DeployError: It shall be compiled, and there is no C++ compiler, or the compiler fails on this network.
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

        # Whole or not at all: a part that can't be compiled, or one compiled too often, would else run as it is.
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
    """Returns what runs a module of PyTorch on so many threads, its images laid out in one way."""

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
