"""``cruciform.bench``: how much of the MAC saving turns into speed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cruciform.deployment.bench.bench import Bench, Suite
    from cruciform.deployment.search.build import EngineSettings


@dataclass(frozen=True)
class BenchOptions:
    """How ``bench`` measures.

    Attributes:
        threads: Threads of the engine. One: CPU time is measured; more: wall-clock time.
        rounds: How often networks are timed, interleaved; the shortest time counts.
        search_seconds: Time limit of the search for the fastest form of each network.
        on_progress: Called with what is being measured.
    """

    threads: int = 1
    rounds: int = 7
    search_seconds: float = 120.0
    on_progress: Callable[[str], None] | None = None


def bench(
    suite: "str | Suite" = "vgg",
    *,
    targets: Sequence[str] = ("onnxruntime",),
    batches: Sequence[int] = (1,),
    result: str | Path | None = None,
    plot: str | Path | None = None,
    options: BenchOptions | None = None,
) -> "tuple[Bench, ...]":
    """Time networks in their fastest forms beside the fastest dense baseline.

    Args:
        suite: The networks to compare: ``vgg``, ``nin``, ``volumes``, ``resnet``, ``compressed``, or a ``Suite`` of
            your own.
        targets: The engines, by name.
        batches: The batch sizes.
        result: A .json file to record into, each comparison when it is done; others in it are kept.
        plot: A picture to draw MACs against milliseconds into.
        options: Threads, rounds, time limit, progress.

    Returns:
        A comparison for each engine and batch size.

    Raises:
        DeployError: The baseline's time drifted by more than 10 % within a run: the machine is too busy.
    """
    from cruciform.deployment.bench.bench import prefixed, run_bench
    from cruciform.deployment.bench.bench_result import check_result, record_bench
    from cruciform.deployment.bench.suites import find_suite
    from cruciform.deployment.search.build import EngineSettings
    from cruciform.deployment.targets.target import TARGETS

    options = options or BenchOptions()
    on_progress = options.on_progress or (lambda what: None)
    suites = find_suite(suite) if isinstance(suite, str) else (suite,)
    engines = [TARGETS.get(name) for name in targets]
    for one in suites if result else ():
        check_result(Path(str(result)), one)
    if plot:
        from cruciform.plot.style import check_picture

        check_picture(Path(plot))
    done = []
    for one, engine, batch in product(suites, engines, batches):
        setting = EngineSettings(engine, one.input_size, batch, options.threads, options.rounds, options.search_seconds)
        done.append(run_bench(one, setting, on_progress=prefixed(on_progress, f"{engine.name}, batch size {batch}")))
        if result:
            name = suite if isinstance(suite, str) else one.label or one.baseline
            packages = [package for _, target in TARGETS.items() for package in target.packages]
            record_bench(done[-1], Path(result), command=_command(name, setting), packages=packages)
    if plot:
        _draw(done, Path(plot), options.threads, None if result is None else Path(result))
    return tuple(done)


def _command(suite: str, setting: "EngineSettings") -> str:
    return (
        f"cruciform bench --suite {suite} --target {setting.target.name} --batch {setting.batch} --threads "
        f"{setting.threads} --rounds {setting.rounds} --search-seconds {setting.search_seconds:g}"
    )


def _draw(done: "Sequence[Bench]", plot: Path, threads: int, result: Path | None) -> None:
    from cruciform.deployment.bench.bench_result import describe, read_parts
    from cruciform.plot.bench import draw_bench
    from cruciform.text.wording import plural

    # With a file of results, everything that is in it: its comparisons may come from several runs.
    parts = read_parts(result) if result else [describe(bench) for bench in done]
    points = {
        ", ".join(filter(None, (part.get("comparison"), part["target"], f"batch size {part['batch']}"))): [
            (network, row["macs"] / 1e9, row["milliseconds"] / part["batch"])
            for network, row in part["networks"].items()
        ]
        for part in parts
        if part["threads"] == threads
    }
    draw_bench(points, plot, title=f"{done[0].suite.baseline}, {plural(threads, 'thread')}")
