"""``cruciform bench``: how much of the MAC saving turns into speed."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption
from cruciform.cli.shared.network_lookup import find_target
from cruciform.cli.shared.parsing import ending, picture
from cruciform.cli.shared.progress import measuring
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console


def bench(
    suite: Annotated[str, typer.Option(help="vgg, nin, volumes, resnet or compressed.")] = "vgg",
    target: Annotated[list[str] | None, typer.Option(help="An engine, as for deploy; may be repeated.")] = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Batch size; may be repeated.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="One: CPU time; more: wall-clock time.")] = 1,
    rounds: Annotated[int, typer.Option(min=2, help="Timing rounds, interleaved; the shortest time counts.")] = 7,
    search_seconds: Annotated[float, typer.Option(min=0, help="Time limit of the search for each network.")] = 120,
    result: Annotated[
        Path | None, typer.Option(callback=ending(".json"), help="Record into this file, each part when it is done.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(callback=picture, help="Draw MACs against milliseconds into this file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Time networks in their fastest forms beside the fastest dense baseline.

    Example: cruciform bench --suite vgg --target onnxruntime --batch 1 --batch 16
    """
    from cruciform.api.bench import BenchOptions
    from cruciform.api.bench import bench as run
    from cruciform.deployment.bench.bench_result import describe

    targets = target or ["onnxruntime"]
    for name in targets:
        find_target(name)
    with measuring() as on_progress:
        options = BenchOptions(threads, rounds, search_seconds, on_progress)
        found = run(suite, targets=targets, batches=batch or [1], result=result, plot=plot, options=options)
    if as_json:
        print_json([describe(one) for one in found])
        return
    for one in found:
        print_table(one.title, one.columns, one.table)
        console().print(one.note)
