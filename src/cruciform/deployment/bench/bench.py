"""How much of the MAC saving turns into speed: the realised fraction.

    realised = (time of the dense baseline / time of the network) / (MACs of the baseline / MACs of the network)

1 means all of it. The baseline is the fastest dense form of the baseline network in any engine of the same precision,
timed in the same run, interleaved with everything else: a slow baseline would flatter the result.
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
from cruciform.text.text_tables import html_table, text_table
from cruciform.text.wording import plural

MOST_DRIFT = 0.10
ATTEMPTS = 3  # to find a time when the machine is idle
FAR = 1.15  # relative to the fastest; slower dense builds are dropped after a first timing
BENCH_COLUMNS = ("network", "MACs", "ms, best", "ms, median", "time / baseline", "realised")


@dataclass(frozen=True)
class Row:
    """A network in an engine.

    Attributes:
        network: Its name.
        macs: Its MACs for one image.
        timing: The times of a batch.
        realised: The realised fraction.
        build: The forms of its layers, and how it was exported.
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
        baseline: The name of the dense network.
        networks: The names of the others, and their short names in a summary.
        input_size: Channels and spatial size of one image.
        build: Builds a network by its name.
        label: Distinguishes this comparison from others in the same file.
        keyed_by_batch: Whether names in a summary contain a batch size of 1.
    """

    baseline: str
    networks: Mapping[str, str]
    input_size: tuple[int, ...]
    build: Callable[[str], nn.Module]
    label: str = ""
    keyed_by_batch: bool = True


@dataclass(frozen=True)
class Bench:
    """Networks timed beside their dense baseline.

    Attributes:
        suite: The networks that were compared.
        target: The engine.
        batch: The batch size.
        threads: Threads of the engine.
        baseline: The dense network in its fastest engine.
        baseline_target: That engine.
        rivals: Other builds tried as a baseline: their seconds in a first timing, or the error.
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
        """The speed of the baseline, which shows a slow machine or engine."""
        return self.baseline.macs * self.batch / self.baseline.timing.best / 1e9

    @property
    def title(self) -> str:
        """What was measured."""
        threads, rounds = plural(self.threads, "thread"), plural(len(self.baseline.timing.rounds), "round")
        name = self.suite.label or self.suite.baseline
        return f"{name} in {self.target}, batch size {self.batch}, {threads}, {rounds}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The headers of ``table``."""
        return BENCH_COLUMNS

    @property
    def table(self) -> list[tuple[str, ...]]:
        """All networks as text, the baseline first."""
        return [
            (
                row.network,
                f"{row.macs:,}",
                f"{1e3 * row.timing.best:.2f}",
                f"{1e3 * row.timing.middle:.2f}",
                f"{row.timing.best / self.baseline.timing.best:.0%}",
                f"{row.realised:.2f}",
            )
            for row in (self.baseline, *self.rows)
        ]

    @property
    def note(self) -> str:
        """Where the baseline ran, and how fast."""
        return f"baseline: {self.baseline.network} in {self.baseline_target}, {self.gmacs_per_second:.0f} GMAC/s"

    def __str__(self) -> str:
        return "\n".join([self.title, text_table(BENCH_COLUMNS, self.table), self.note])

    def _repr_html_(self) -> str:
        """Show it as a table in notebooks."""
        return html_table(BENCH_COLUMNS, self.table, caption=self.title, notes=[self.note])


def run_bench(suite: Suite, setting: EngineSettings, *, on_progress: ProgressCallback = lambda what: None) -> Bench:
    """Time a suite.

    Args:
        suite: The networks.
        setting: The engine that they run in; the input size is the suite's.
        on_progress: Called with what is being done.

    Raises:
        DeployError: The baseline's time drifted by more than 10 % within the run, in every attempt.
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
        times = time_side_by_side(rivals, engines, setting, on_progress)
    fastest = min(rivals, key=lambda rival: times[rival].best)
    macs = {name: profile(model, suite.input_size).macs for name, model in models.items()}
    way = fastest.partition(", ")[2] or PLAIN
    baseline = Row(suite.baseline, macs[suite.baseline], times[fastest], 1.0, Build({}, way))
    rows = tuple(
        Row(name, macs[name], times[name], _realised(baseline, macs[name], times[name]), choices[name].build)
        for name in suite.networks
    )
    return Bench(suite, setting.target.name, setting.batch, setting.threads, baseline, fastest, seen, rows)


def _baselines(
    model: nn.Module, setting: EngineSettings, folder: Path, on_progress: ProgressCallback
) -> tuple[dict[str, Engine], dict[str, float | str]]:
    """Return the dense network in all engines of the same precision that are nearly as fast as the fastest."""
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
        raise DeployError(f"no engine of this precision runs the dense baseline: {'; '.join(map(str, seen.values()))}")
    first = time_engines(engines, noise(setting.batch, setting.input_size), rounds=2, threads=setting.threads)
    seen.update({label: timing.best for label, timing in first.items()})
    limit = FAR * min(timing.best for timing in first.values())
    return {label: engine for label, engine in engines.items() if first[label].best <= limit}, seen


def time_side_by_side(
    rivals: dict[str, Engine], engines: dict[str, Engine], setting: EngineSettings, on_progress: ProgressCallback
) -> dict[str, Timing]:
    """Time all of them, interleaved; repeat a few times if the fastest baseline drifts."""
    images = noise(setting.batch, setting.input_size)
    for attempt in range(1, ATTEMPTS + 1):
        on_progress("all networks, interleaved" + (f", attempt {attempt}" if attempt > 1 else ""))
        times = time_engines({**rivals, **engines}, images, rounds=setting.rounds, threads=setting.threads)
        drift = min((times[rival] for rival in rivals), key=lambda timing: timing.best).drift
        if drift <= MOST_DRIFT:
            return times
    raise DeployError(
        f"the baseline's time drifted by {drift:.0%} within the run, more than {MOST_DRIFT:.0%}, {ATTEMPTS} times in a "
        "row: the machine is too busy to measure; try again when it is idle"
    )


def prefixed(on_progress: ProgressCallback, name: str) -> ProgressCallback:
    """Return a progress callback that puts a name before each message."""
    return lambda what: on_progress(f"{name}: {what}")


def _realised(baseline: Row, macs: int, timing: Timing) -> float:
    return (baseline.timing.best / timing.best) / (baseline.macs / macs)
