"""``cruciform convert``: a network rebuilt from basis filters, as a directory."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption, SizeOption
from cruciform.cli.shared.network_lookup import check_network, find_model, refuse_saved, write_converted
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.errors import OptionError


def convert(
    network: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK",
            callback=check_network,
            help="timm:resnet18, torchvision:resnet18, monai:UNet-3d, vgg11_gmp, or package.module:function.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write a model directory here; left out: only say what would be."),
    ] = None,
    scheme: Annotated[
        str,
        typer.Option(
            help="full, sf, lr, lr-join, lr-join-wfull, or cross:full=0.25 and the like; for volumes also cross3, "
            "planes, axial."
        ),
    ] = "lr",
    init: Annotated[
        str,
        typer.Option(
            help="auto: pytorch where the network has norms, paper-completed elsewhere; or paper-completed, "
            "paper-literal, paper-identity, per-group, pytorch, identity; or fit: by least squares to the weights that "
            "package.module:function loads."
        ),
    ] = "auto",
    protect: Annotated[
        list[str] | None, typer.Option(help="Keep convolutions with such names, as 'layer1.*'; may be repeated.")
    ] = None,
    channels: Annotated[int, typer.Option(min=1, help="Keep convolutions with fewer channels.")] = 1,
    keep_first: Annotated[bool, typer.Option("--keep-first", help="Keep the first convolution.")] = False,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a network, report on every convolution, and save it without pickle.

    Example: cruciform convert timm:resnet18 --scheme lr -o resnet18-lr
    """
    from cruciform.conversion import where
    from cruciform.conversion.convert import FIT, apply_conversion_
    from cruciform.conversion.planning import Rules
    from cruciform.nn.init_rules import NORMED_RULE
    from cruciform.sources.build_network import split_reference
    from cruciform.sources.network_library import SOURCES

    refuse_saved(network)
    if init == FIT and split_reference(network)[0] in SOURCES:
        raise OptionError(
            f"{network} is built without trained weights, so there is nothing to fit. Name a function of yours that "
            "returns the trained network, package.module:function; or in Python: "
            "cruciform.convert(model, 'lr-join', init='fit')"
        )
    model, usual = find_model(network, size)
    rule = where.channels(channels) if channels > 1 else where.everywhere()
    rules = Rules(
        scheme,
        where=rule & ~where.first() if keep_first else rule,
        protect=protect or (),
        input_size=usual,
    )
    conversion = apply_conversion_(model, rules, init=init)
    report = conversion.report
    written = write_converted(conversion, output, network) if output else None
    if as_json:
        print_json(report.to_dict())
        return
    print_table(
        f"{network}, scheme {scheme}",
        ("layer", "was", "action", "now, or why not", "parameters", "now", "MACs", "now", "share"),
        [
            (
                ", ".join(row.names),
                row.convolution,
                row.action,
                str(row.plan) if row.plan else row.reason,
                f"{row.params_before:,}",
                f"{row.params_after:,}",
                f"{row.macs_before or 0:,}",
                f"{row.macs_after or 0:,}",
                f"{report.share(row) or 0:.1%}",
            )
            for row in report.layers
        ],
        left=4,
    )
    console().print(report.summary())
    if report.verified:
        console().print(str(report.verification))
    for warning in report.warnings:
        console().print(warning, style="yellow")
    if init == "auto" and report.replaced:
        norms = "norms" if report.init == NORMED_RULE else "no norms"
        console().print(f"initialized by {report.init}, for it has {norms}; --init takes others")
    if written:
        console().print(written)
