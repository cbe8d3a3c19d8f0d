"""How much of the saving in multiply-accumulates becomes time: the realised fraction.

    realised = (time of the dense baseline / time of the network) / (MACs of the baseline / MACs of the network)

1 means that all of it does. The baseline is the fastest dense form of the baseline network that any engine of the same
precision has, measured in the same run, in turns with everything else: a slow baseline would flatter us.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from cruciform.deploy.choose import Choice, Setting, build_engine, choose_forms
from cruciform.deploy.clock import Timing, time_engines
from cruciform.deploy.forms import Form
from cruciform.deploy.targets import TARGETS
from cruciform.errors import DeployError
from cruciform.measure.macs import profile

MOST_DRIFT = 0.10
RIVALS = {"openvino-bf16": ("openvino-bf16",)}
F32 = ("onnxruntime", "openvino", "torch")
"""Engines whose dense baselines are compared, by precision."""


@dataclass(frozen=True)
class Row:
    """A network in an engine.

    Attributes:
        network: Its name.
        macs: Its multiply-accumulates for one image.
        timing: Of a batch.
        realised: The realised fraction.
        forms: Of its layers; empty for a dense network.
    """

    network: str
    macs: int
    timing: Timing
    realised: float
    forms: dict[str, Form]


@dataclass(frozen=True)
class Bench:
    """What was measured side by side.

    Attributes:
        target: The engine.
        batch: Images at a time.
        threads: Of the engine.
        baseline: The dense network in its fastest engine.
        baseline_target: Which that was.
        rows: The networks.
    """

    target: str
    batch: int
    threads: int
    baseline: Row
    baseline_target: str
    rows: tuple[Row, ...]

    @property
    def gmacs_per_second(self) -> float:
        """The baseline's own speed: a machine or an engine that is slow today shows here."""
        return self.baseline.macs * self.batch / self.baseline.timing.best / 1e9


@dataclass(frozen=True)
class Suite:
    """Networks to compare.

    Attributes:
        baseline: The name of the dense one.
        networks: The names of the others.
        input_size: Of one image.
        build: Makes a network of a name.
    """

    baseline: str
    networks: Sequence[str]
    input_size: tuple[int, ...]
    build: Callable[[str], nn.Module]


def run_bench(
    suite: Suite,
    target: str,
    *,
    batch: int,
    threads: int = 1,
    rounds: int = 7,
    tell: Callable[[str], None] = lambda what: None,
) -> Bench:
    """Measures a suite.

    Args:
        suite: The networks.
        target: The engine that they run in.
        batch: Images at a time.
        threads: Of the engine: one counts the processor's time, more that on the wall.
        rounds: Turns of each.
        tell: Told what is being done.

    Raises:
        DeployError: The baseline drifted by more than a tenth within the run.
    """
    setting = Setting(TARGETS.get(target), suite.input_size, batch, threads, rounds)
    with tempfile.TemporaryDirectory() as folder:
        engines = {}
        models = {name: suite.build(name).eval() for name in (suite.baseline, *suite.networks)}
        for rival in RIVALS.get(target, F32):
            tell(f"{suite.baseline} in {rival}")
            there = Setting(TARGETS.get(rival), suite.input_size, batch, threads, rounds)
            part = Path(tempfile.mkdtemp(dir=folder))
            engines[f"{suite.baseline} in {rival}"] = build_engine(models[suite.baseline], {}, there, part)
        choices: dict[str, Choice] = {}
        for name in suite.networks:

            def tell_of(what: str, name: str = name) -> None:
                tell(f"{name}: {what}")

            choices[name] = choose_forms(models[name], setting, tell=tell_of)
            part = Path(tempfile.mkdtemp(dir=folder))
            engines[name] = build_engine(models[name], choices[name].forms, setting, part)
        tell("all of them, side by side")
        images = torch.randn(batch, *suite.input_size, generator=torch.Generator().manual_seed(0)).numpy()
        times = time_engines(engines, images, rounds=rounds, threads=threads)
    rivals = {name.rpartition(" in ")[2]: timing for name, timing in times.items() if " in " in name}
    fastest = min(rivals, key=lambda rival: rivals[rival].best)
    _refuse_drift(rivals[fastest])
    macs = {name: profile(model, suite.input_size).macs for name, model in models.items()}
    baseline = Row(suite.baseline, macs[suite.baseline], rivals[fastest], 1.0, {})
    rows = tuple(
        Row(name, macs[name], times[name], _realised(baseline, macs[name], times[name]), dict(choices[name].forms))
        for name in suite.networks
    )
    return Bench(target, batch, threads, baseline, fastest, rows)


def _realised(baseline: Row, macs: int, timing: Timing) -> float:
    return (baseline.timing.best / timing.best) / (baseline.macs / macs)


def _refuse_drift(timing: Timing) -> None:
    middle = len(timing.rounds) // 2
    if middle:
        first, second = min(timing.rounds[:middle]), min(timing.rounds[middle:])
        drift = abs(first - second) / min(first, second)
        if drift > MOST_DRIFT:
            raise DeployError(
                f"the baseline drifted by {drift:.0%} within the run, more than {MOST_DRIFT:.0%}: the machine is too "
                "busy to tell; try again"
            )
