"""``cruciform profile``: parameters and MACs of a network."""

from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption, ModelArgument, SizeOption
from cruciform.cli.shared.network_lookup import open_typed
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
    """Count parameters and multiply-accumulates (MACs) per layer, in two ways that must agree.

    Example: cruciform profile vgg11_gmp_lr
    """
    from cruciform.api.profile import profile as count
    from cruciform.measure.network_profile import PROFILE_COLUMNS

    counted = count(open_typed(model, size, on_meta=True), training=training)
    if as_json:
        echo(counted.to_json(), lines=True)
        return
    if as_csv:
        echo(counted.to_csv().removesuffix("\n"), lines=True)
        return
    print_table(f"{model}, input {'×'.join(map(str, counted.input_size))}", PROFILE_COLUMNS, counted.rows, left=3)
    for line in counted.summary:
        console().print(line, style="yellow" if line.startswith("note: ") else None)
