"""Typer annotations of the arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.network_lookup import check_network

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        callback=check_network,
        help="A network of 'cruciform models', timm:NAME, torchvision:NAME, monai:NAME, your own as "
        "package.module:function, a run of 'cruciform train', or a model directory.",
    ),
]
SizeOption = Annotated[
    str | None, typer.Option("--input", metavar="CxHxW", help="Channels and size of one input, as 3x224x224.")
]
WeightsOption = Annotated[
    Path | None,
    typer.Option(
        "--weights", metavar="FILE", help="Trained weights (.safetensors) of a network by name or by function."
    ),
]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")]
BackendOption = Annotated[
    str, typer.Option(help="local: this process; ddp: several, under torchrun; ray: on a Ray cluster.")
]
WorkersOption = Annotated[int, typer.Option(min=1, help="Processes, for ddp and ray.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]


def processes_typed(backend: str, workers: int) -> list[str]:
    """Returns the options that ask for these processes again; none for the usual one."""
    return [] if backend == "local" else ["--backend", backend, "--workers", str(workers)]
