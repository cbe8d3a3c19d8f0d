"""``cruciform evaluate``: the accuracy of a network."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import DeviceOption, JsonOption, ModelArgument
from cruciform.cli.shared.parsing import picture
from cruciform.cli.shared.progress import progress_bar
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console

MOST_LISTED = 100  # classes


def evaluate(
    network: ModelArgument,
    recipe: Annotated[
        str | None, typer.Option(help="Unless it is a run: the recipe with the data and preprocessing to use.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Unless it is a run: the data, preprocessed as the network requires."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe key, as --set evaluation.batch_size=64."),
    ] = None,
    device: DeviceOption = "auto",
    plot: Annotated[Path | None, typer.Option(callback=picture, help="Plot the confusion matrix to this file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate the newest checkpoint of a run, or any other network, on every sample of a test set.

    Example: cruciform evaluate runs/nin_c3_lr_cifar10 --plot confusion.png

    A model directory on your own images (PATH/val/CLASS/*.jpg): cruciform evaluate DIR --data PATH
    """
    from cruciform.api.evaluate import evaluate as run_evaluation

    with progress_bar("evaluating") as on_progress:
        report = run_evaluation(
            network, recipe=recipe, data=data, changes=changes or (), device=device, on_progress=on_progress
        )
    found, classes = report.evaluation, report.classes
    if plot:
        from cruciform.plot.confusion import draw_confusion

        title = f"{Path(network).name}: {found.top1:.2%} top-1 accuracy"
        draw_confusion(found.confusion, classes, plot, title=title)
    if as_json:
        print_json(report.to_dict())
        return
    if len(classes) <= MOST_LISTED:
        print_table(
            network,
            ("class", "samples", "accuracy", "most often predicted as"),
            [
                (name, str(sum(row)), f"{accuracy:.2%}", _mistake(index, row, classes))
                for index, (name, row, accuracy) in enumerate(
                    zip(classes, found.confusion, found.per_class(), strict=True)
                )
            ],
        )
    for notice in found.notices:
        console(error=True).print(notice, style="yellow")
    console().print(str(report))


def _mistake(index: int, row: tuple[int, ...], classes: tuple[str, ...]) -> str:
    others = [(count, name) for other, (count, name) in enumerate(zip(row, classes, strict=True)) if other != index]
    count, name = max(others, default=(0, ""))
    return f"{name} ({count / sum(row):.1%})" if count else ""
