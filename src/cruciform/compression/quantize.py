"""int8 after the fit: quantized after training, beside the original in int8, which a user could ship instead."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cruciform.budgets.network_time import DENSE_NETWORK, time_network
from cruciform.compression.compression_stage import INT8, CompressionStage
from cruciform.deployment.artifact import open_artifact, write_artifact
from cruciform.deployment.deployed import Artifact
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.search.choose import ProgressCallback, choose_build
from cruciform.deployment.targets.target import TARGETS, Target
from cruciform.errors import OptionError


@dataclass(frozen=True)
class Quantized:
    """A compressed network in int8.

    Attributes:
        stage: What ``evaluate`` said of what ships, and the time that it took.
        seconds: The time of a batch of the compressed network.
        dense_seconds: The same of the original in int8, timed in the same rounds.
        artifact: What ships: the compressed network, or the original where that is as fast.
    """

    stage: CompressionStage
    seconds: float
    dense_seconds: float
    artifact: Artifact = field(repr=False)

    @property
    def pays(self) -> bool:
        """Whether the compressed network is faster than the original in int8."""
        return self.seconds < self.dense_seconds

    @property
    def verdict(self) -> str:
        """What ships in int8, in one sentence."""
        share = f"{self.seconds / self.dense_seconds:.2f} of the original's time in int8"
        if self.pays:
            return f"in int8 the compressed network takes {share}; it is stored in {self.artifact.path}"
        return f"in int8 the compressed network takes {share}: the original ships instead, in {self.artifact.path}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {
            **asdict(self.stage),
            "seconds_of_a_batch": self.seconds,
            "dense_seconds_of_a_batch": self.dense_seconds,
            "ships": "compressed" if self.pays else "original",
        }


def int8_target(name: str) -> Target:
    """Return the int8 variant of an engine.

    Raises:
        OptionError: It has none.
    """
    wanted = name if TARGETS.get(name).precision == INT8 else f"{name}-int8"
    known = [each for each, target in TARGETS.items() if target.precision == INT8]
    if wanted not in known:
        raise OptionError(f"{name} has no int8 variant; engines that have one: {', '.join(known)}")
    return TARGETS.get(wanted)


def quantize(
    original: nn.Module,
    compressed: nn.Module,
    setting: EngineSettings,
    directory: Path,
    *,
    about: Mapping[str, Any],
    judge: Callable[[nn.Module], float | None],
    on_progress: ProgressCallback,
) -> Quantized:
    """Quantize a compressed network and the original, time them side by side, and write what is faster.

    Args:
        original: The trained network.
        compressed: What was made of it.
        setting: The engine in int8, with calibration images, batch size and threads.
        directory: Where the artifact is written.
        about: What else its report contains.
        judge: Returns the evaluation of a network; None where there is none.
        on_progress: Called with what is being done.
    """
    started = time.monotonic()
    choice = choose_build(compressed, setting, on_progress=on_progress)
    on_progress("the compressed network beside the original, in int8")
    networks = {DENSE_NETWORK: (original, {}), "compressed": (compressed, choice.build.forms)}
    times = time_network(networks, setting)
    seconds, dense_seconds = times["compressed"].best, times[DENSE_NETWORK].best
    shipped = compressed
    if seconds >= dense_seconds:
        shipped, choice = original, choose_build(original, setting, on_progress=on_progress)
    write_artifact(shipped, choice, setting, directory, about=about)
    artifact = open_artifact(directory, threads=setting.threads, trust=True)
    stage = CompressionStage(INT8, time.monotonic() - started, judge(_AsModule(artifact)))
    return Quantized(stage, seconds, dense_seconds, artifact)


class _AsModule(nn.Module):
    """An artifact that evaluations take for a network."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__()
        self._run = artifact

    def forward(self, x: Tensor) -> Tensor:
        """Run the engine."""
        return torch.from_numpy(self._run(x.detach().cpu().float().contiguous().numpy())).to(x.device)
