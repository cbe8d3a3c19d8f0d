"""``cruciform filters``: the learned filters of a network."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption, ModelArgument, SizeOption, WeightsOption
from cruciform.cli.shared.network_lookup import open_typed
from cruciform.cli.shared.parsing import picture
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console

MOST_DRAWN = 24  # layers; more would make a picture that nobody can look at


def filters(
    model: ModelArgument,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PNG",
            callback=picture,
            help="Plot into this file (.png, .svg, .pdf); needs the extra 'plot'.",
        ),
    ] = None,
    layer: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only layers whose name matches, as 'blocks.*', or contains this.")
    ] = "*",
    weights: WeightsOption = None,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show basis filters, their equivalent kernels and spectra, and the energy of every filter group.

    Example: cruciform filters runs/cifar_fast_lr3_cifar10 -o filters.png
    """
    from cruciform.measure.filters import RANKS, network_filters

    found = network_filters(open_typed(model, size, weights=weights).model, layer)
    if plot:
        from cruciform.plot.filters import draw_filters
        from cruciform.plot.style import save_picture

        source = (
            f"{Path(model).name}: the filters with the most energy, and of each the input channel with the most; "
            "brown: negative, violet: positive. Dashed: effective rank. Energy: of every filter group of the first "
            "stage."
        )
        save_picture(draw_filters(found[:MOST_DRAWN], source=source), plot)
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    print_table(
        f"Filters of {model}",
        ("layer", "plan", "energy of each group", "effective rank", "of", "spatial rank"),
        [
            (
                one.name,
                str(one.plan),
                ", ".join(
                    f"{group.shape} {group.energy:.0%}"
                    for group in one.groups
                    if group.stage == 0 and group.energy is not None
                ),
                "–" if one.effective_rank is None else f"{one.effective_rank:.1f}",
                str(len(one.spectrum)) if one.spectrum else "–",
                "–" if one.spatial_rank is None else f"{one.spatial_rank:.2f}",
            )
            for one in found
        ],
        left=3,
    )
    out = console()
    for name, meaning in RANKS.items():
        out.print(f"{name}: {meaning}", style="dim")
    for one in found:
        if one.why_not:
            out.print(f"{one.name} has no equivalent kernel: {one.why_not}", style="dim")
    if plot:
        out.print(f"plotted: {plot}")
    if plot and len(found) > MOST_DRAWN:
        out.print(f"the first {MOST_DRAWN} of {len(found)} layers are plotted; choose others with --layer PATTERN")
