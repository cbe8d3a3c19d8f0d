"""``cruciform report``: one HTML file about a network or a run."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption, ModelArgument, SizeOption, WeightsOption
from cruciform.cli.shared.parsing import ending, optional_size
from cruciform.cli.shared.progress import measuring
from cruciform.cli.shared.tables import print_json
from cruciform.cli.shared.terminal import console


def report(
    model: ModelArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", dir_okay=False, metavar="HTML", callback=ending(".html"), help="Write this file."
        ),
    ],
    rounds: Annotated[int, typer.Option(min=0, help="Timing rounds of each layer; 0 leaves times out.")] = 5,
    deployments: Annotated[
        list[Path] | None,
        typer.Option("--deployment", metavar="DIR", help="List this artifact too; may be repeated."),
    ] = None,
    weights: WeightsOption = None,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one self-contained HTML file about a network: costs, filters, training.

    Example: cruciform report runs/cifar_fast_lr3_cifar10 -o report.html
    """
    from cruciform.api.report import report as write_report

    with measuring() as on_progress:
        written = write_report(
            model,
            output,
            rounds=rounds,
            deployments=deployments or (),
            weights=weights,
            input_size=optional_size(size),
            on_progress=on_progress,
        )
    if as_json:
        print_json(
            {
                "file": str(written.path),
                "bytes": written.size,
                "kind": written.kind,
                "layers": written.layers,
                "deployments": written.deployments,
            }
        )
        return
    console().print(str(written))
