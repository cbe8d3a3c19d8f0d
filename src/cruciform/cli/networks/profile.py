"""``cruciform profile``: what a network costs."""

from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption, ModelArgument, SizeOption
from cruciform.cli.shared.network_lookup import find_trained
from cruciform.cli.shared.tables import print_table
from cruciform.cli.shared.terminal import console, echo


def profile(
    model: ModelArgument,
    size: SizeOption = None,
    training: Annotated[
        bool, typer.Option("--training", help="Count it as in training, with auxiliary heads.")
    ] = False,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values instead of a table.")] = False,
) -> None:
    """Count parameters and multiply-accumulates per layer, in two ways that must agree.

    Example: cruciform profile vgg11_gmp_lr
    """
    from cruciform.measure import profile_table as report
    from cruciform.measure.macs import profile as count

    network, input_size, _ = find_trained(model, size, on_meta=True)
    counted = count(network, input_size, training=training)
    if as_json:
        echo(report.profile_json(counted), lines=True)
        return
    if as_csv:
        echo(report.profile_csv(counted).removesuffix("\n"), lines=True)
        return
    print_table(
        f"{model}, input {'×'.join(map(str, input_size))}", report.COLUMNS, report.profile_rows(counted), left=4
    )
    out = console()
    out.print(f"{counted.params:,} parameters")
    out.print(f"{counted.macs:,} MACs (multiply-adds; arithmetic and dispatcher agree)")
    out.print(f"{counted.macs_paper:,} MACs (paper: each bias counted once)")
    if counted.uncounted:
        calls = ", ".join(f"{name} {times}×" for name, times in counted.uncounted.items())
        out.print(f"not counted, by convention: {calls}", style="dim")
    for note in counted.notes:
        out.print(f"note: {note}", style="yellow")
