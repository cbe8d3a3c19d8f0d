"""``cruciform bench``: how much of the saving becomes time."""

from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption
from cruciform.cli.shared.network_lookup import find_target
from cruciform.cli.shared.parsing import ending, picture
from cruciform.cli.shared.progress import measuring
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.text.wording import plural


def bench(
    suite: Annotated[str, typer.Option(help="vgg, nin or volumes.")] = "vgg",
    target: Annotated[list[str] | None, typer.Option(help="An engine, as deploy has them; may be repeated.")] = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Images at a time; may be repeated.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="One: processor time; more: time on the wall.")] = 1,
    rounds: Annotated[int, typer.Option(min=2, help="Turns of each network; the shortest counts.")] = 7,
    search_seconds: Annotated[float, typer.Option(min=0, help="Seconds for the whole search of each network.")] = 120,
    result: Annotated[
        Path | None, typer.Option(callback=ending(".json"), help="Record into this file, each part when it is done.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(callback=picture, help="Draw MACs against milliseconds into this file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure networks in their fastest forms against the fastest dense baseline of any engine, side by side.

    Example: cruciform bench --suite vgg --target onnxruntime --batch 1 --batch 16
    """
    from cruciform.deployment.bench.bench import prefixed, run_bench
    from cruciform.deployment.bench.bench_result import check_result, describe, read_parts, record_bench
    from cruciform.deployment.bench.suites import SUITES
    from cruciform.deployment.search.build import EngineSettings
    from cruciform.deployment.targets.target import TARGETS
    from cruciform.errors import OptionError
    from cruciform.registry import did_you_mean

    if suite not in SUITES:
        raise OptionError(f"unknown suite {suite!r}.{did_you_mean(suite, SUITES)} Known: {', '.join(SUITES)}")
    found = []
    engines = {name: find_target(name) for name in target or ["onnxruntime"]}
    if result:
        for made in SUITES[suite]:
            check_result(result, made)
    with measuring() as on_progress:
        for made, name, images in product(SUITES[suite], engines, batch or [1]):
            setting = EngineSettings(engines[name], made.input_size, images, threads, rounds, search_seconds)
            found.append(run_bench(made, name, setting, on_progress=prefixed(on_progress, f"{name}, batch {images}")))
            if result:
                command = f"cruciform bench --suite {suite} --target {name} --batch {images} --threads {threads}"
                packages = [package for _, engine in TARGETS.items() for package in engine.packages]
                record_bench(
                    found[-1],
                    result,
                    command=f"{command} --rounds {rounds} --search-seconds {search_seconds:g}",
                    packages=packages,
                )
    if plot:
        from cruciform.plot.bench import draw_bench

        # With a file of results, all that is in it: its parts may come from several runs.
        parts = read_parts(result) if result else [describe(bench) for bench in found]
        points = {
            ", ".join(filter(None, (part.get("comparison"), part["target"], f"batch {part['batch']}"))): [
                (network, row["macs"] / 1e9, row["milliseconds"] / part["batch"])
                for network, row in part["networks"].items()
            ]
            for part in parts
            if part["threads"] == threads
        }
        draw_bench(points, plot, title=f"{suite}, {plural(threads, 'thread')}")
    if as_json:
        print_json([describe(bench) for bench in found])
        return
    for bench in found:
        print_table(
            f"{suite} in {bench.target}, batch {bench.batch}, {plural(threads, 'thread')}, {plural(rounds, 'round')}",
            ("network", "MACs", "ms, best", "ms, median", "of the baseline", "realised"),
            [
                (
                    row.network,
                    f"{row.macs:,}",
                    f"{1e3 * row.timing.best:.2f}",
                    f"{1e3 * row.timing.middle:.2f}",
                    f"{row.timing.best / bench.baseline.timing.best:.0%}",
                    f"{row.realised:.2f}",
                )
                for row in (bench.baseline, *bench.rows)
            ],
        )
        console().print(
            f"baseline: {bench.baseline.network} in {bench.baseline_target}, {bench.gmacs_per_second:.0f} GMAC/s"
        )
