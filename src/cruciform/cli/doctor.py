"""``cruciform doctor``: can this network be trained as it is initialised?"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruciform.cli.common import (
    JsonOption,
    ModelArgument,
    SizeOption,
    console,
    find_trained,
    picture,
    print_json,
    print_table,
)
from cruciform.errors import OptionError
from cruciform.files import check_regular
from cruciform.words import plural

if TYPE_CHECKING:
    from torch import Tensor


def doctor(
    model: ModelArgument,
    init: Annotated[
        str | None,
        typer.Option(
            help="Initialise it anew: paper-completed, paper-literal, paper-identity, per-group, pytorch or "
            "identity. Left out: as it is built, which in the zoo is paper-completed without norms and identity with "
            "them, or as it was trained."
        ),
    ] = None,
    size: SizeOption = None,
    images: Annotated[
        Path | None, typer.Option(help="Use these images instead of noise: a .npy file of (N, C, H, W) floats.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="How many noise images.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the weights and the noise.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(
            callback=picture, help="Draw the findings into this file (.png, .svg, .pdf); needs the extra 'plot'."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure whether gradients survive, block by block; exit code 1 if they don't.

    Example: cruciform doctor vgg11_gmp_lr_join --init pytorch
    """
    import torch

    from cruciform.measure.gradients import diagnose

    torch.manual_seed(seed)
    network, input_size, _ = find_trained(model, size, init=init)
    diagnosis = diagnose(network, _read_images(images) if images else input_size, batch=batch, seed=seed)
    if plot:
        from cruciform.plot.doctor import draw_diagnosis

        draw_diagnosis(diagnosis, plot, title=f"{model}, {init or 'as built'}")
    if as_json:
        print_json({**asdict(diagnosis), "verdict": diagnosis.verdict, "trainable": diagnosis.trainable})
    else:
        print_table(
            f"{model}, initialised {init or 'as built'}: variance ratios of each block",
            ("block", "on the deepest path", "gradient in / out", "activation out / in"),
            [(b.name, "yes" if b.on_path else "", *b.ratios) for b in diagnosis.blocks],
            left=2,
        )
        out = console()
        if plot:
            out.print(f"drawn: {plot}")
        out.print(
            f"gradient over the depth of {plural(diagnosis.depth, 'block')}: {diagnosis.gradient_over_depth:.3g} "
            f"(trainable within {diagnosis.low:.3g} to {diagnosis.high:.3g})"
        )
        if diagnosis.note:
            out.print(diagnosis.note, style="dim")
        if diagnosis.advice:
            out.print(diagnosis.advice)
        out.print(diagnosis.verdict, style="bold green" if diagnosis.trainable else "bold red")
    if not diagnosis.trainable:
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
        raise OptionError(f"{path} has numbers that are not finite; the diagnosis would be of them, not of the network")
    return images
