"""How much of the saving in multiply-accumulates becomes time: the realised fraction.

    realised = (time of the dense baseline / time of the network) / (MACs of the baseline / MACs of the network)

1 means that all of it does. The baseline is the fastest dense form of the baseline network that any engine of the same
precision has, measured in the same run, in turns with everything else: a slow baseline would flatter us.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from cruciform.deployment.search.build import PLAIN, Build, EngineSettings, build_engine, noise
from cruciform.deployment.search.choose import Choice, ProgressCallback, choose_build
from cruciform.deployment.search.clock import Timing, time_engines
from cruciform.deployment.targets.target import TARGETS, Engine
from cruciform.errors import DeployError, MissingExtraError
from cruciform.measure.macs import profile

MOST_DRIFT = 0.10
ATTEMPTS = 3  # at a quiet quarter of a minute
FAR = 1.15  # times as slow as the fastest: no baseline, after a first look


@dataclass(frozen=True)
class Row:
    """A network in an engine.

    Attributes:
        network: Its name.
        macs: Its multiply-accumulates for one image.
        timing: Of a batch.
        realised: The realised fraction.
        build: How it was built.
    """

    network: str
    macs: int
    timing: Timing
    realised: float
    build: Build


@dataclass(frozen=True)
class Suite:
    """Networks to compare.

    Attributes:
        baseline: The name of the dense one.
        networks: The names of the others, and what they are called in a summary.
        input_size: Of one image.
        build: Makes a network of a name.
        label: What sets this comparison apart from others of the same file.
        keyed_by_batch: Whether the names in a summary say the batch where it is 1.
    """

    baseline: str
    networks: Mapping[str, str]
    input_size: tuple[int, ...]
    build: Callable[[str], nn.Module]
    label: str = ""
    keyed_by_batch: bool = True


@dataclass(frozen=True)
class Bench:
    """What was measured side by side.

    Attributes:
        suite: What was compared.
        target: The engine.
        batch: Images at a time.
        threads: Of the engine.
        baseline: The dense network in its fastest engine.
        baseline_target: Which that was.
        rivals: What else was tried as a baseline: seconds at the first look, or why not.
        rows: The networks.
    """

    suite: Suite
    target: str
    batch: int
    threads: int
    baseline: Row
    baseline_target: str
    rivals: dict[str, float | str]
    rows: tuple[Row, ...]

    @property
    def gmacs_per_second(self) -> float:
        """The baseline's own speed: a machine or an engine that is slow today shows here."""
        return self.baseline.macs * self.batch / self.baseline.timing.best / 1e9


def run_bench(
    suite: Suite, target: str, setting: EngineSettings, *, on_progress: ProgressCallback = lambda what: None
) -> Bench:
    """Measures a suite.

    Args:
        suite: The networks.
        target: The name of the engine that they run in.
        setting: The same engine, and what of; its size of input is the suite's.
        on_progress: Called with what is being done.

    Raises:
        DeployError: The baseline drifted by more than a tenth within the run, and again when tried again.
    """
    setting = setting.for_times(input_size=suite.input_size)
    models = {name: suite.build(name).eval() for name in (suite.baseline, *suite.networks)}
    with tempfile.TemporaryDirectory() as folder:
        rivals, seen = _baselines(models[suite.baseline], setting, Path(folder), on_progress)
        choices: dict[str, Choice] = {}
        engines: dict[str, Engine] = {}
        for name in suite.networks:
            choices[name] = choose_build(models[name], setting, on_progress=prefixed(on_progress, name))
            part = Path(tempfile.mkdtemp(dir=folder))
            engines[name] = build_engine(models[name], choices[name].build, setting, part)
        times = _side_by_side(rivals, engines, setting, on_progress)
    fastest = min(rivals, key=lambda rival: times[rival].best)
    macs = {name: profile(model, suite.input_size).macs for name, model in models.items()}
    way = fastest.partition(", ")[2] or PLAIN
    baseline = Row(suite.baseline, macs[suite.baseline], times[fastest], 1.0, Build({}, way))
    rows = tuple(
        Row(name, macs[name], times[name], _realised(baseline, macs[name], times[name]), choices[name].build)
        for name in suite.networks
    )
    return Bench(suite, target, setting.batch, setting.threads, baseline, fastest, seen, rows)


def _baselines(
    model: nn.Module, setting: EngineSettings, folder: Path, on_progress: ProgressCallback
) -> tuple[dict[str, Engine], dict[str, float | str]]:
    """Returns the dense network in all engines of the same precision that are not far slower than the fastest."""
    engines: dict[str, Engine] = {}
    seen: dict[str, float | str] = {}
    for name, rival in TARGETS.items():
        there = setting.for_times(target=rival)
        for way in there.ways() if rival.precision == setting.target.precision else ():
            label = name if way == PLAIN else f"{name}, {way}"
            on_progress(f"the dense baseline in {label}")
            try:
                part = Path(tempfile.mkdtemp(dir=folder))
                engines[label] = build_engine(model, Build({}, way), there, part)
            except (DeployError, MissingExtraError) as error:
                seen[label] = str(error)
    if not engines:
        raise DeployError(
            f"the dense baseline runs in no engine of this precision: {'; '.join(map(str, seen.values()))}"
        )
    first = time_engines(engines, noise(setting.batch, setting.input_size), rounds=2, threads=setting.threads)
    seen.update({label: timing.best for label, timing in first.items()})
    limit = FAR * min(timing.best for timing in first.values())
    return {label: engine for label, engine in engines.items() if first[label].best <= limit}, seen


def _side_by_side(
    rivals: dict[str, Engine], engines: dict[str, Engine], setting: EngineSettings, on_progress: ProgressCallback
) -> dict[str, Timing]:
    """Times all in turns; again, a few times, where the fastest baseline drifts."""
    images = noise(setting.batch, setting.input_size)
    for attempt in range(1, ATTEMPTS + 1):
        on_progress("all of them, side by side" + (f", attempt {attempt}" if attempt > 1 else ""))
        times = time_engines({**rivals, **engines}, images, rounds=setting.rounds, threads=setting.threads)
        drift = min((times[rival] for rival in rivals), key=lambda timing: timing.best).drift
        if drift <= MOST_DRIFT:
            return times
    raise DeployError(
        f"the baseline drifted by {drift:.0%} within the run, more than {MOST_DRIFT:.0%}, {ATTEMPTS} times in a row: "
        "the machine is too busy to tell; try again"
    )


def prefixed(on_progress: ProgressCallback, name: str) -> ProgressCallback:
    """Returns what tells the same, and what of."""
    return lambda what: on_progress(f"{name}: {what}")


def _realised(baseline: Row, macs: int, timing: Timing) -> float:
    return (baseline.timing.best / timing.best) / (baseline.macs / macs)
