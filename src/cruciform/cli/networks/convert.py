"""``cruciform convert``: replace the convolutions of a network by basis filters."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption, ModelArgument, SizeOption, WeightsOption
from cruciform.cli.shared.network_lookup import open_typed, save_converted
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.schemes import SCHEMES


def convert(
    model: ModelArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Write a model directory here. Left out: a dry run."),
    ] = None,
    scheme: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(SCHEMES.registered())}; cross with options, as cross:full=0.25; or several, as "
            "'lr or sf': the first that applies to a layer."
        ),
    ] = "lr",
    init: Annotated[
        str,
        typer.Option(
            help="Initialization of the new layers. auto: pytorch where the network has norms, paper-completed "
            "elsewhere; fit: least squares to the trained weights; or a rule of cruciform.initialize_."
        ),
    ] = "auto",
    protect: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Keep convolutions of these names; may be repeated.")
    ] = None,
    channels: Annotated[int, typer.Option(min=1, help="Keep convolutions with fewer channels.")] = 1,
    keep_first: Annotated[bool, typer.Option("--keep-first", help="Keep the first convolution.")] = False,
    weights: WeightsOption = None,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a network, print the conversion table, and save it without pickle.

    Example: cruciform convert timm:resnet18 --scheme lr -o resnet18-lr
    """
    from cruciform.api.convert import convert_
    from cruciform.conversion import where
    from cruciform.conversion.conversion_report import CONVERSION_COLUMNS
    from cruciform.nn.init_rules import NORMED_RULE

    opened = open_typed(model, size, weights=weights)
    rule = where.channels(channels) if channels > 1 else where.everywhere()
    conversion = convert_(
        opened,
        scheme,
        init=init,
        where=rule & ~where.first() if keep_first else rule,
        protect=protect or (),
        input_size=opened.needed_input_size,
    )
    report = conversion.report
    written = save_converted(conversion, output, opened) if output else None
    if as_json:
        print_json(report.to_dict())
        return
    print_table(f"{model}, scheme {scheme}", CONVERSION_COLUMNS, report.rows, left=3)
    out = console()
    for note in report.notes:
        out.print(note, style="yellow" if note in report.warnings else None)
    if init == "auto" and report.replaced:
        norms = "norms" if report.init == NORMED_RULE else "no norms"
        out.print(f"initialized by {report.init}, since the network has {norms}; --init takes others")
    if report.init != "fit" and report.replaced and opened.trained:
        out.print("the trained weights of replaced layers are lost; --init fit starts from them", style="yellow")
    if written:
        out.print(written)
