"""The layers that ``engine_sweep`` exports, and what the engines that they are exported to make of them."""

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engine_cases import CHANNELS, KERNELS, STEPS, Finding
from isolation import Report, isolated
from numpy.typing import NDArray
from torch import Tensor, nn

from cruciform.deployment.parity.compare import compare
from cruciform.deployment.search.build import EngineSettings, build_graph, noise, write_engine
from cruciform.deployment.search.layer_forms import FORMS
from cruciform.deployment.targets.target import TARGETS, Engine
from cruciform.errors import DeployError
from cruciform.nn.composite import CompositeConv
from cruciform.plan import FilterGroup, LayerPlan, Stage
from cruciform.spec import ConvSpec, Ints

EXPORTED = ("onnxruntime", "openvino")
SIZES: dict[int, Ints] = {1: (61,), 2: (28, 57), 3: (9, 10, 28)}
BATCHES, THREADS = (1, 3), (1, 2)
EACH = 5  # filters of every shape
TOLERANCE = 1e-4
"""Largest error as a fraction of the largest expected value, in float32."""
SECONDS = 600.0


@dataclass(frozen=True)
class Exported:
    """A stride, a dilation and a padding; one network has all shapes of filters and all numbers of channels."""

    engine: str
    stride: Ints
    dilation: Ints
    padded: bool

    def __str__(self) -> str:
        padding = "padded" if self.padded else "not padded"
        return f"{len(self.stride)}-D, stride {self.stride}, dilation {self.dilation}, {padding}"


class _SideBySide(nn.Module):
    """A layer for each number of channels, each reading its own part of the input; outputs are concatenated."""

    def __init__(self, case: Exported) -> None:
        super().__init__()
        kernels = KERNELS[len(case.stride)]
        window = tuple(map(max, *kernels))
        pads = [(k - 1) // 2 * step if case.padded else 0 for k, step in zip(window, case.dilation, strict=True)]
        d = EACH * len(kernels)
        stages = (Stage(tuple(FilterGroup(kernel, EACH) for kernel in kernels)),)
        join: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(case.stride) - 1]
        self.blocks = nn.ModuleList()
        for c in CHANNELS:
            spec = ConvSpec(c, d, kernel=window, stride=case.stride, padding=tuple(pads), dilation=case.dilation)
            self.blocks.append(nn.Sequential(CompositeConv(LayerPlan(spec, stages)), nn.LeakyReLU(0.5), join(d, d, 1)))

    def forward(self, x: Tensor) -> Tensor:
        parts = torch.split(x, CHANNELS, dim=1)
        return torch.cat([block(part) for block, part in zip(self.blocks, parts, strict=True)], dim=1)


def exported_groups(engine: str) -> Iterator[Exported]:
    """Returns all networks for an engine."""
    for rank in (1, 2, 3):
        for (stride, dilation), padded in itertools.product(STEPS[rank], (False, True)):
            yield Exported(engine, stride, dilation, padded)


def sweep_exported(case: Exported) -> list[Finding]:
    """Exports a network in every form and way, and runs it with one thread and with two."""
    lines, ended = isolated(partial(_examine, case), seconds=SECONDS)
    findings = [Finding(case.engine, f"{case}, {what}", raw, guarded) for what, raw, guarded in map(_fields, lines)]
    return findings if ended == "ok" else [*findings, Finding(case.engine, f"{case}, the next", ended, ended)]


def _fields(line: str) -> tuple[str, str, str]:
    what, raw, guarded = line.split("\t")
    return what, raw, guarded


# In the process of its own


def _examine(case: Exported, report: Report) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, size = _SideBySide(case).eval(), (sum(CHANNELS), *SIZES[len(case.stride)])
    images = noise(max(BATCHES), size)
    with torch.no_grad():
        exact = model.double()(torch.from_numpy(images).double()).numpy()
    model.float()
    setting = EngineSettings(TARGETS.get(case.engine), size)
    for form in FORMS if case.padded else FORMS[:1]:  # the forms differ in what stands around the convolutions
        graph = build_graph(model, {f"blocks.{index}.0": form for index in range(len(CHANNELS))}, setting)
        for way in setting.ways():
            with tempfile.TemporaryDirectory() as folder:
                try:
                    write_engine(graph, way, setting, Path(folder))
                except DeployError:  # this way is not for such a network
                    continue
                for threads, batch in itertools.product(THREADS, BATCHES):
                    engine = setting.target.load(Path(folder), threads=threads)
                    verdicts = list(_verdicts(engine(images[:batch]), exact[:batch]))
                    refused = set(verdicts) != {"ok"} and _is_refused(model, engine, images, setting)
                    for c, raw in zip(CHANNELS, verdicts, strict=True):
                        what = f"{c} channels, {form}, {way}, batch size {batch}, {threads} threads"
                        report(f"{what}\t{raw}\t{'refused' if refused else raw}")


def _is_refused(model: nn.Module, engine: Engine, images: NDArray[Any], setting: EngineSettings) -> bool:
    """Whether the check before anything is shipped sees that an engine computes something else."""
    try:
        compare(model, engine, images, batch=setting.batch, target=setting.target, name="it")
    except DeployError:
        return True
    return False


def _verdicts(found: NDArray[Any], exact: NDArray[Any]) -> Iterator[str]:
    for ours, theirs in zip(np.split(found, len(CHANNELS), 1), np.split(exact, len(CHANNELS), 1), strict=True):
        error = np.abs(ours - theirs).max() / np.abs(theirs).max()
        yield "ok" if error <= TOLERANCE else f"wrong: by {error:.2g}"
