"""AOTInductor: PyTorch compiled ahead of time into one archive of machine code and weights."""

from pathlib import Path

import torch
from torch.fx import GraphModule

from cruciform.deployment.rewrites.graph import export, without_warnings
from cruciform.deployment.targets.compiler import require_compiler
from cruciform.deployment.targets.eager import as_engine
from cruciform.deployment.targets.target import IS_CODE, TARGETS, Engine, Target
from cruciform.errors import DeployError, first_line
from cruciform.files import read_json, write_json

FILE = "model.pt2"
PROCESSOR = "processor.json"
SETTINGS = {
    "freezing": True,  # weights are constants: folded, and laid out for their convolutions
    "cpp.dynamic_threads": True,  # else the thread count at compile time would be fixed in the machine code
}


class AotInductor(Target):
    """PyTorch, compiled when the artifact is written, for processors like this machine's."""

    name = "aotinductor"
    packages = ("torch",)
    extra = "train"
    computes_by_torch = True
    danger = IS_CODE

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Compile with the C++ compiler of the machine; the batch size stays dynamic.

        Raises:
            DeployError: There is no C++ compiler, or it can't compile this network.
        """
        require_compiler()
        program = export(graph, input_size, batch=max(2, batch))
        try:
            with torch.no_grad(), without_warnings():
                torch._inductor.aoti_compile_and_package(
                    program, package_path=str(folder / FILE), inductor_configs=dict(SETTINGS)
                )
        except Exception as error:  # it raises any exception
            raise DeployError(f"AOTInductor can't compile this network: {first_line(error)}") from error
        write_json(folder / PROCESSOR, {"abilities": sorted(_abilities())})

    def load(self, folder: Path, *, threads: int) -> Engine:
        """Load the machine code of the archive; ``open_artifact`` verifies its checksum first.

        Raises:
            DeployError: This processor lacks instructions that it was compiled for.
        """
        needed = set(read_json(folder / PROCESSOR)["abilities"])
        if missing := sorted(needed - _abilities()):
            raise DeployError(
                f"this artifact was compiled for a processor with {', '.join(missing)}, which this one lacks: deploy "
                "on this machine, or on one like it"
            )
        with without_warnings():
            module = torch._inductor.aoti_load_package(str(folder / FILE))
        # Compiled for this memory format without a check: images in another give wrong results.
        return as_engine(module, threads=threads, layout=torch.contiguous_format)


def _abilities() -> set[str]:
    return {name for name, has in torch.cpu.get_capabilities().items() if has is True}


TARGETS.add(AotInductor.name, AotInductor())
