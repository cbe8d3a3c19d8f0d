"""PyTorch itself, channels last: torch's own archive of the exported program."""

from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch.fx import GraphModule

from cruciform.deploy.graph import export, without_warnings
from cruciform.deploy.target import TARGETS, Engine, Target

FILE = "model.pt2"


class Eager(Target):
    """PyTorch, one operation after the other."""

    packages = ("torch",)
    extra = "train"

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Writes torch's archive."""
        program = export(graph, input_size, batch=max(2, batch))
        with without_warnings():
            torch.export.save(program, folder / FILE)

    def load(self, folder: Path, *, threads: int) -> Engine:
        """Reads the archive, which we wrote, and lays its weights out with their channels last."""
        with without_warnings():
            module: Any = torch.export.load(folder / FILE).module(check_guards=False)
        module = module.to(memory_format=torch.channels_last)

        def run(images: NDArray[Any]) -> NDArray[Any]:
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            try:
                with torch.inference_mode():
                    x = torch.from_numpy(images).contiguous(memory_format=torch.channels_last)
                    output: NDArray[Any] = module(x).numpy()
                    return output
            finally:
                torch.set_num_threads(before)

        return run


TARGETS.add("torch", Eager())
