"""``cruciform compress``: a trained network made cheaper, without training."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruciform.cli.shared.arguments import (
    BatchOption,
    JsonOption,
    LimitsOption,
    ModelArgument,
    ProtectOption,
    RoundsOption,
    SizeOption,
    TargetOption,
    ThreadsOption,
    WeightsOption,
)
from cruciform.cli.shared.network_lookup import find_target, say_written
from cruciform.cli.shared.parsing import optional_size, read_limit
from cruciform.cli.shared.progress import measuring
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console

if TYPE_CHECKING:
    from torch import nn


def compress(
    model: ModelArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Write the model directory and report.")
    ],
    data: Annotated[
        str | None,
        typer.Option(metavar="FOLDER|RECIPE|RUN", help="Calibration images, without labels; a run has its own."),
    ] = None,
    limits: LimitsOption = None,
    target: TargetOption = "onnxruntime",
    batch: BatchOption = 1,
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 7,
    images: Annotated[int, typer.Option(min=1, help="How many calibration images are taken.")] = 1024,
    block: Annotated[
        int, typer.Option(min=1, help="Layers fitted at once: 1 is the most exact, more are faster in deep networks.")
    ] = 1,
    protect: ProtectOption = None,
    finetune: Annotated[
        int,
        typer.Option(min=0, metavar="EPOCHS", help="Fine-tune by labels and the original; needs a recipe or run."),
    ] = 0,
    int8: Annotated[
        bool, typer.Option("--int8", help="Also write it in int8 into DIR-int8, timed beside the original in int8.")
    ] = False,
    evaluate: Annotated[
        str | None,
        typer.Option(metavar="RECIPE|RUN", help="Measure the accuracy before and after, on its test set."),
    ] = None,
    weights: WeightsOption = None,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compress a trained network without training: layers chosen by measured time, fitted to what they compute.

    Without --budget it may take 60 % of the original's time. Stopped at any moment, the same command resumes it: what
    it has reached is kept beside DIR, in DIR.state.

    Example: cruciform compress runs/cifar_fast_cifar10 --budget 60% -o fast-60

    Then train it for two epochs and quantize it: cruciform compress runs/cifar_fast_cifar10 --finetune 2 --int8
    -o fast-60

    A network of yours: cruciform compress my.module:build --weights w.safetensors --data recipe.toml -o small

    Exits with 9 if the budget can't be met.
    """
    import shutil

    from cruciform.api.compress import CompressOptions
    from cruciform.api.compress import compress as compress_network
    from cruciform.compression.compression_report import COMPARISON_COLUMNS, LAYER_COLUMNS
    from cruciform.compression.compression_result import PAGE
    from cruciform.networks.open_network import open_network
    from cruciform.store.directory import refuse_other_directory

    refuse_other_directory(output)  # minutes before it is written
    find_target(target)
    opened = open_network(model, weights=weights, input_size=optional_size(size))
    state = output.with_name(output.name + ".state")
    quantized = output.with_name(output.name + "-int8") if int8 else None
    with measuring() as on_progress:
        options = CompressOptions(
            images, tuple(protect or ()), block, threads, rounds, finetune, quantized, state, on_progress
        )
        accuracy = partial(_accuracy, recipe=evaluate) if evaluate else None
        budget = dict(map(read_limit, limits or ["60%"]))
        result = compress_network(opened, data, budget, target=target, batch=batch, evaluate=accuracy, options=options)
    result.save(output)
    shutil.rmtree(state, ignore_errors=True)
    report = result.report
    if as_json:
        print_json(report.to_dict())
        return
    print_table(report.title, COMPARISON_COLUMNS, report.comparison, left=1)
    print_table("layers", LAYER_COLUMNS, report.rows, left=4)
    for note in report.notes:
        console().print(note)
    console().print(f"{say_written(output, model, result.base)}; the report is {output / PAGE}")


def _accuracy(network: "nn.Module", *, recipe: str) -> float:
    from cruciform.api.evaluate import evaluate

    return evaluate(network, recipe=recipe).evaluation.top1
