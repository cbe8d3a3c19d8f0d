"""``cruciform evaluate``: how good a trained network is, and what it takes for what."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import DeviceOption, JsonOption
from cruciform.cli.shared.parsing import picture
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.errors import OptionError
from cruciform.store.recognize import describe_path, is_saved
from cruciform.text.wording import plural

MOST_LISTED = 100  # classes


def _saved(path: Path) -> Path:
    if not is_saved(path):
        raise OptionError(f"{describe_path(path)} To evaluate, name a run, such as runs/nin_cifar10, or a directory "
                          "that 'cruciform convert' wrote")  # fmt: skip
    return path


def evaluate(
    directory: Annotated[
        Path, typer.Argument(metavar="RUN_OR_DIR", callback=_saved, help="A run, or a model directory.")
    ],
    recipe: Annotated[
        str | None, typer.Option(help="For a model directory: the recipe whose data it is judged on.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="For a model directory: data to evaluate it on, preprocessed as it says."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe, as --set evaluation.batch=64."),
    ] = None,
    device: DeviceOption = "auto",
    plot: Annotated[
        Path | None, typer.Option(callback=picture, help="Draw which classes are taken for which into this file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge the newest checkpoint of a run, or a model directory, on every sample once.

    Example: cruciform evaluate runs/nin_c3_lr_cifar10 --plot confusion.png

    A model directory, on your own images (PATH/val/CLASS/*.jpg): cruciform evaluate DIR --data PATH
    """
    from rich.progress import Progress

    from cruciform.training.evaluate_run import judge

    with Progress(transient=True, console=console(error=True)) as bar:
        task = bar.add_task("evaluating", total=None)
        judgement = judge(
            directory,
            recipe=recipe,
            data=data,
            changes=tuple(changes or ()),
            device=device,
            advance=lambda done, of: bar.update(task, completed=done, total=of),
        )
    found, classes = judgement.evaluation, judgement.classes
    if plot:
        from cruciform.plot.confusion import draw_confusion

        draw_confusion(found.confusion, classes, plot, title=f"{directory.name}: {found.top1:.2%} right")
    if as_json:
        said = {
            "directory": str(directory),
            "step": judgement.step,
            **found.summary(),
            "notices": found.notices,
            "per_class": dict(zip(classes, found.per_class(), strict=True)),
            "confusion": found.confusion,
        }
        print_json(said)
        return
    if len(classes) <= MOST_LISTED:
        print_table(
            f"{directory}",
            ("class", "samples", "right", "most often taken for"),
            [
                (name, str(sum(row)), f"{share:.2%}", _mistake(index, row, classes))
                for index, (name, row, share) in enumerate(
                    zip(classes, found.confusion, found.per_class(), strict=True)
                )
            ],
        )
    for notice in found.notices:
        console(error=True).print(notice, style="yellow")
    after = f" after step {judgement.step:,}" if judgement.step is not None else ""
    mirrored = f" ({found.top1_mirrored:.2%} with mirror images)" if found.top1_mirrored is not None else ""
    area = f", area under the ROC curve {found.auc:.4f}" if found.auc is not None else ""
    console().print(
        f"top 1 {found.top1:.2%}{mirrored}, top 5 {found.top5:.2%}{area}, loss {found.loss:.4f} on "
        f"{plural(found.samples, 'sample')}{after}"
    )


def _mistake(index: int, row: tuple[int, ...], classes: tuple[str, ...]) -> str:
    others = [(count, name) for other, (count, name) in enumerate(zip(row, classes, strict=True)) if other != index]
    count, name = max(others, default=(0, ""))
    return f"{name} ({count / sum(row):.1%})" if count else ""
