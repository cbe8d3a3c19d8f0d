"""``cruciform doctor``: whether a network can be trained from its initial weights."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption, ModelArgument, SizeOption, WeightsOption
from cruciform.cli.shared.network_lookup import open_typed
from cruciform.cli.shared.parsing import picture
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.errors import OptionError
from cruciform.files import check_regular

if TYPE_CHECKING:
    from torch import Tensor

STYLES = {True: "bold green", False: "bold red", None: "bold"}
"""Style of the verdict; None: there is no verdict."""


def doctor(
    model: ModelArgument,
    init: Annotated[
        str | None,
        typer.Option(
            help="Initialize it by this rule of cruciform.initialize_ first: auto, paper-completed, pytorch, …. Left "
            "out: as it was built or trained."
        ),
    ] = None,
    weights: WeightsOption = None,
    size: SizeOption = None,
    images: Annotated[
        Path | None, typer.Option(help="Use these images instead of noise: a .npy file of (N, C, H, W) floats.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Batch size of the noise.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the weights and of the noise.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(
            callback=picture, help="Plot the gradient ratios into this file (.png, .svg, .pdf); needs the extra 'plot'."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure whether gradients vanish or explode, block by block; exit code 1 if they do.

    Trained weights get no verdict.

    Example: cruciform doctor vgg11_gmp_lr_join --init pytorch
    """
    import torch

    from cruciform.api.diagnose import diagnose
    from cruciform.measure.gradients import DIAGNOSIS_COLUMNS

    torch.manual_seed(seed)
    opened = open_typed(model, size, weights=weights, init=init)
    inputs = _read_images(images) if images else None
    diagnosis = diagnose(opened, inputs, batch=batch, seed=seed, trained=False if init else None)
    start = f"initialized by {init}" if init else "trained weights" if diagnosis.trained else "initialized as built"
    if plot:
        from cruciform.plot.doctor import draw_diagnosis

        draw_diagnosis(diagnosis, plot, title=f"{model}, {start}")
    if as_json:
        print_json({**asdict(diagnosis), "verdict": diagnosis.verdict, "trainable": diagnosis.trainable})
    else:
        print_table(f"{model}, {start}: variance ratios of each block", DIAGNOSIS_COLUMNS, diagnosis.rows, left=2)
        out = console()
        if plot:
            out.print(f"plotted: {plot}")
        out.print(diagnosis.finding)
        if diagnosis.note:
            out.print(diagnosis.note, style="dim")
        if diagnosis.advice:
            out.print(diagnosis.advice)
        out.print(diagnosis.verdict, style=STYLES[diagnosis.trainable])
    if diagnosis.trainable is False:
        raise typer.Exit(1)


def _read_images(path: Path) -> "Tensor":
    import numpy as np
    import torch

    try:
        array = np.load(check_regular(path), allow_pickle=False)
        images = torch.from_numpy(array.astype(np.float32))
    except (OSError, EOFError, ValueError, TypeError, AttributeError) as error:  # an archive of several arrays is none
        raise OptionError(f"{path} is not a .npy file of (N, C, H, W) floats: {error}") from error
    if not bool(images.isfinite().all()):
        raise OptionError(f"{path} has NaN or Inf; the diagnosis would be of the images, not of the network")
    return images
