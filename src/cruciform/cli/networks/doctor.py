"""``cruciform doctor``: can this network be trained as it is initialized?"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption, ModelArgument, SizeOption
from cruciform.cli.shared.network_lookup import find_trained
from cruciform.cli.shared.parsing import picture
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.errors import OptionError
from cruciform.files import check_regular

if TYPE_CHECKING:
    from torch import Tensor, nn

STYLES = {True: "bold green", False: "bold red", None: "bold"}
"""Of the verdict; None where there is none."""


def doctor(
    model: ModelArgument,
    init: Annotated[
        str | None,
        typer.Option(
            help="Initialize it anew: paper-completed, paper-literal, paper-identity, per-group, pytorch or "
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
    """Measure whether gradients survive, block by block; exit code 1 if they don't. Trained weights get no verdict.

    Example: cruciform doctor vgg11_gmp_lr_join --init pytorch
    """
    import torch

    from cruciform.measure.gradients import COLUMNS, diagnose

    torch.manual_seed(seed)
    found = find_trained(model, size, init=init)
    inputs = _read_images(images) if images else found.input_size
    trained = False if init else _is_trained(model, found.model)
    diagnosis = diagnose(found.model, inputs, batch=batch, seed=seed, trained=trained)
    start = f"initialized by {init}" if init else "trained weights" if diagnosis.trained else "initialized as built"
    if plot:
        from cruciform.plot.doctor import draw_diagnosis

        draw_diagnosis(diagnosis, plot, title=f"{model}, {start}")
    if as_json:
        print_json({**asdict(diagnosis), "verdict": diagnosis.verdict, "trainable": diagnosis.trainable})
    else:
        print_table(f"{model}, {start}: variance ratios of each block", COLUMNS, diagnosis.rows, left=2)
        out = console()
        if plot:
            out.print(f"drawn: {plot}")
        out.print(diagnosis.finding)
        if diagnosis.note:
            out.print(diagnosis.note, style="dim")
        if diagnosis.advice:
            out.print(diagnosis.advice)
        out.print(diagnosis.verdict, style=STYLES[diagnosis.trainable])
    if diagnosis.trainable is False:
        raise typer.Exit(1)


def _is_trained(name: str, network: "nn.Module") -> bool | None:
    """Tells whether what was typed holds trained weights; None where only the network itself can tell."""
    from cruciform.store.directory import CARD
    from cruciform.store.run_marker import is_run
    from cruciform.store.trained_weights import holds_trained_weights

    path = Path(name)
    if (path / CARD).is_file():
        return holds_trained_weights(path, network)
    return True if is_run(path) else None


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
