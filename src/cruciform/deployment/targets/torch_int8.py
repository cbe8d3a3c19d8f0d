"""PyTorch in int8: quantized by torchao, compiled like ``aotinductor``."""

import operator
import platform
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from cruciform.deployment.rewrites.graph import aten, export
from cruciform.deployment.targets.aotinductor import AotInductor
from cruciform.deployment.targets.compiler import require_compiler
from cruciform.deployment.targets.int8_target import Int8Target, needs_reduced_range
from cruciform.deployment.targets.library_output import without_remarks
from cruciform.deployment.targets.target import IS_CODE, TARGETS, Engine
from cruciform.errors import DeployError, MissingExtraError

AHEAD = AotInductor()
"""Compiles the quantized network and runs it."""
BATCH = 50  # batch size of the calibration

MODULES = {
    aten.conv1d.default: nn.Conv1d, aten.conv2d.default: nn.Conv2d, aten.linear.default: nn.Linear,
    aten.relu.default: nn.ReLU, aten.silu.default: nn.SiLU, aten.hardtanh.default: nn.Hardtanh,
    aten.hardswish.default: nn.Hardswish, aten.add.Tensor: operator.add,
}  # fmt: skip
"""Operations in torchao's patterns, which identify them by the modules that they usually come from."""


class TorchInt8(Int8Target):
    """PyTorch, compiled, with int8 weights and activations."""

    name = "torch-int8"
    packages = ("torch", "torchao")
    extra = "int8"
    computes_by_torch = True
    danger = IS_CODE  # it is compiled, as aotinductor's are

    def write(self, graph: GraphModule, input_size: tuple[int, ...], folder: Path, *, batch: int) -> None:
        """Quantize, and compile.

        Raises:
            DeployError: There are no images, no C++ compiler, or it is another kind of processor.
        """
        images = torch.from_numpy(self.calibration_images(input_size))
        if platform.machine() not in ("x86_64", "AMD64"):
            raise DeployError(f"{self.name} needs an x86 processor, not {platform.machine()}; try openvino-int8")
        require_compiler()  # fail now rather than after minutes
        with without_remarks(), torch.no_grad():
            quantized = _quantize(_recognizable(export(graph, input_size, batch=max(2, batch))), images)
            AHEAD.write(quantized, input_size, folder, batch=batch)

    def load(self, folder: Path, *, threads: int) -> Engine:
        """Load the machine code of the archive, as ``aotinductor`` does."""
        return AHEAD.load(folder, threads=threads)


def _recognizable(program: torch.export.ExportedProgram) -> Any:
    """Return the graph of a program in which torchao's quantizer finds its patterns.

    It identifies operations by the modules that they come from. These are ours here, or none, so they are set.
    """
    graph: Any = program.module(check_guards=False)
    for node in list(graph.graph.nodes):
        if node.target is aten.clone.default:  # left by dropout in evaluation mode; it would end a pattern
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
        elif node.target in MODULES:
            node.meta["source_fn_stack"] = [(node.name, MODULES[node.target])]
    graph.recompile()
    return graph


def _quantize(graph: Any, images: Tensor) -> Any:
    try:
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
    except ImportError as error:
        raise MissingExtraError(f"{TorchInt8.name} needs torchao ({error}): pip install 'cruciform[int8]'") from error
    settings = x86.get_default_x86_inductor_quantization_config(reduce_range=needs_reduced_range())
    quantizer = x86.X86InductorQuantizer().set_global(settings)
    if any(_rounds_up(node) for node in graph.graph.nodes):
        # Compiled, an int8 pooling ignores ceil_mode and returns maps that are too small (torch 2.13).
        quantizer.set_function_type_qconfig(F.max_pool2d, None)
    prepared = prepare_pt2e(graph, quantizer)
    for part in images.split(BATCH):
        prepared(part)
    return convert_pt2e(prepared)


def _rounds_up(node: Node) -> bool:
    """Return whether a node is a max pooling with ceil_mode."""
    return node.target is aten.max_pool2d.default and len(node.args) > 5 and bool(node.args[5])


TARGETS.add(TorchInt8.name, TorchInt8())
