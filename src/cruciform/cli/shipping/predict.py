"""``cruciform predict``: the best classes of many images."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import BatchOption, JsonOption, SizeOption, WeightsOption
from cruciform.cli.shared.parsing import ending, optional_size
from cruciform.cli.shared.progress import progress_bar
from cruciform.cli.shared.tables import print_json
from cruciform.cli.shared.terminal import console


def predict(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="An artifact of 'cruciform deploy', a run, a model directory, or another network with known "
            "preprocessing, as timm:NAME with --weights.",
        ),
    ],
    images: Annotated[str, typer.Argument(metavar="IMAGES", help="A folder of images, or a set of shards.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", callback=ending(".parquet"), help="The .parquet file to write."),
    ],
    top: Annotated[int, typer.Option(min=1, help="Classes to keep for each image, the best ones.")] = 5,
    batch: BatchOption = 16,
    part: Annotated[int, typer.Option(min=1, help="Images between two points that it can resume from.")] = 1024,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the engine, in each process.")] = 1,
    on_ray: Annotated[bool, typer.Option("--ray", help="On a Ray cluster: RAY_ADDRESS, or this machine.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes, with --ray.")] = 2,
    trust: Annotated[bool, typer.Option("--trust", help="Open artifacts that are code, or as good as code.")] = False,
    weights: WeightsOption = None,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the best classes of every image into a Parquet file, once per image.

    If it is interrupted, the same command resumes. An image that can't be read gets a row with the error.

    Example: cruciform predict onnx shards/val -o predictions.parquet --ray --workers 2

    Deploy a run or a model directory first: cruciform deploy runs/modern_cifar10 -o onnx

    Exits with 0 if all images could be read, else with 1.
    """
    from cruciform.api.predict import PredictOptions
    from cruciform.api.predict import predict as predict_images

    with progress_bar("predicting, parts") as on_progress:
        options = PredictOptions(top, batch, part, threads, trust, workers if on_ray else None, on_progress)
        found = predict_images(model, images, output, weights=weights, input_size=optional_size(size), options=options)
    if as_json:
        print_json({"output": str(output), **found.to_dict()})
    else:
        console().print(found.summary)
    if found.errors:
        raise typer.Exit(1)
