"""Typer annotations of the arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.store.check_reference import check_reference

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        callback=check_reference,
        help="A network of 'cruciform models', timm:NAME, torchvision:NAME, monai:NAME, package.module:function, "
        "a run, or a model directory.",
    ),
]
SizeOption = Annotated[
    str | None, typer.Option("--input", metavar="CxHxW", help="Channels and spatial size of one input, as 3x224x224.")
]
WeightsOption = Annotated[
    Path | None,
    typer.Option(
        "--weights", metavar="FILE", help="Trained weights (.safetensors) of a network by name or by function."
    ),
]
TargetOption = Annotated[str, typer.Option(help="The engine; an unknown name lists them all.")]
BatchOption = Annotated[int, typer.Option(min=1, help="Batch size.")]
ThreadsOption = Annotated[int, typer.Option(min=1, help="Threads of the engine.")]
RoundsOption = Annotated[int, typer.Option(min=1, help="Timing rounds, interleaved; the shortest time counts.")]
LimitsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="[UNIT=]LIMIT",
        help="Time of a batch: 60% of the original's, or 12ms. Other cost units by name, as macs=50%; an unknown one "
        "lists them all. May be repeated.",
    ),
]
ProtectOption = Annotated[list[str] | None, typer.Option(help="Keep layers with such names, as 'layer1.*'.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")]
BackendOption = Annotated[
    str, typer.Option(help="local: this process; ddp: several, under torchrun; ray: on a Ray cluster.")
]
WorkersOption = Annotated[int, typer.Option(min=1, help="Processes, for ddp and ray.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def processes_typed(backend: str, workers: int) -> list[str]:
    """Return the options that start the same processes again; none for a single local one."""
    return [] if backend == "local" else ["--backend", backend, "--workers", str(workers)]
