"""Time each filter group of gmp-lr: the paper's figure of multiply-accumulates against time, again.

Every group is a network of its own, one convolution, in an engine of its own; all of them are timed interleaved on one
thread, and the shortest time of each counts, as everywhere (``cruciform.deployment.search.clock``).
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from cruciform.deployment.search.build import Build, EngineSettings, build_engine, noise
from cruciform.deployment.search.clock import Timing, time_engines
from cruciform.deployment.targets.target import TARGETS, Engine
from cruciform.measure.record import record_result
from cruciform.models.vgg import VGG11, VGGConfig
from cruciform.models.zoo import model_config
from cruciform.paper.published import published_timings
from cruciform.plan import FilterGroup, LayerPlan
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

TIMINGS_FILE = "paper-timings.json"
NETWORK = "vgg11_gmp_lr"


@dataclass(frozen=True)
class TimedPart:
    """A filter group of a layer.

    Attributes:
        layer: Its name in the paper's figure.
        plan: Of the layer that it is in.
        group: Which of the groups.
        size: Height and width of what it reads.
    """

    layer: str
    plan: LayerPlan
    group: FilterGroup
    size: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one image, by the paper's rule."""
        counts = self.plan.group_macs((self.size, self.size), count="paper")[0]
        return counts[self.plan.stages[0].groups.index(self.group)]

    def build(self) -> nn.Module:
        """Return the group alone, as a network."""
        height, width = self.group.kernel
        return nn.Sequential(
            nn.Conv2d(
                self.plan.spec.in_channels, self.group.filters, (height, width), padding=(height // 2, width // 2)
            )
        )


def count_groups() -> list[tuple[str, int]]:
    """Return (layer, multiply-accumulates) of every group by the paper's rule, in the paper's order."""
    return [(part.layer, part.macs) for part in timed_parts()]


def timed_parts(input_size: int | None = None) -> list[TimedPart]:
    """Return the filter groups of gmp-lr under the names of the paper's figure.

    Args:
        input_size: Of the image; the network's own where left out.
    """
    config = model_config(NETWORK)
    size = input_size or config.input_size
    widths = config.widths if isinstance(config, VGGConfig) else VGG11
    names = iter(one.layer for one in published_timings())
    found: list[TimedPart] = []
    c = config.in_channels
    for stage in widths:
        for d in stage:
            plan = make_plan(ConvSpec(c, d, 3, padding=1), "lr")
            found += [TimedPart(next(names), plan, group, size) for group in plan.stages[0].groups]
            c = d
        size //= 2
    return found


def time_parts(
    chosen: Sequence[TimedPart],
    target: str,
    *,
    batch: int = 1,
    rounds: int = 15,
    on_progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Timing]:
    """Time filter groups in interleaved rounds, on one thread.

    Args:
        chosen: Which.
        target: The name of the engine.
        batch: Images at a time.
        rounds: Turns of each.
        on_progress: Called with what is being done.
    """
    engines: dict[str, Engine] = {}
    with tempfile.TemporaryDirectory() as folder:
        for part in chosen:
            on_progress(f"{part.layer}: building")
            size = (part.plan.spec.in_channels, part.size, part.size)
            setting = EngineSettings(TARGETS.get(target).with_images(noise(32, size)), size, batch=batch, rounds=rounds)
            own = Path(tempfile.mkdtemp(dir=folder))
            engines[part.layer] = _fed(build_engine(part.build().eval(), Build({}), setting, own), batch, size)
        on_progress("all filter groups, side by side")
        # Each has images of its own size; the clock's are for engines that share them.
        return time_engines(engines, np.zeros(0, dtype=np.float32), rounds=rounds)


def describe_timings(
    times: Mapping[str, Timing], chosen: Sequence[TimedPart], *, target: str, batch: int
) -> dict[str, Any]:
    """Return times as plain data: a line for each filter group, with its multiply-accumulates."""
    macs = {part.layer: part.macs for part in chosen}
    layers = [
        {
            "layer": layer,
            "macs": macs[layer],
            "milliseconds": 1e3 * timing.best,
            "milliseconds_median": 1e3 * timing.middle,
            "drift": timing.drift,
        }
        for layer, timing in times.items()
    ]
    rounds = min(len(timing.rounds) for timing in times.values())
    about = {
        "network": NETWORK,
        "input_size": chosen[0].size,
        "target": target,
        "batch": batch,
        "threads": 1,
        "rounds": rounds,
    }
    return {**about, "clock": "processor time", "layers": layers}


def record_timings(details: Mapping[str, Any], path: Path, *, command: str) -> dict[str, float]:
    """Write described times into a file of results, and return its summary."""
    macs = [layer["macs"] for layer in details["layers"]]
    milliseconds = [layer["milliseconds"] for layer in details["layers"]]
    summary = {
        "milliseconds": round(sum(milliseconds), 3),
        "gmacs_per_second": round(details["batch"] * sum(macs) / sum(milliseconds) / 1e6, 2),
        "correlation": round(correlation(macs, milliseconds), 4),
        "largest_drift": round(max(layer["drift"] for layer in details["layers"]), 3),
    }
    packages = TARGETS.get(details["target"]).packages
    record_result(path, summary=summary, details=details, command=command, n=details["rounds"], packages=packages)
    return summary


def _fed(engine: Engine, batch: int, size: tuple[int, ...]) -> Engine:
    images = noise(batch, size)
    return lambda _: engine(images)


def correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return Pearson's correlation; 0 where one of the two does not vary."""
    if len(set(xs)) < 2 or len(set(ys)) < 2:
        return 0.0
    return float(np.corrcoef(np.asarray(xs, dtype=float), np.asarray(ys, dtype=float))[0, 1])
