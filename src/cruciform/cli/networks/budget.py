"""``cruciform budget``: a scheme for every layer, so that the network costs no more than it may."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import (
    BatchOption,
    JsonOption,
    LimitsOption,
    ModelArgument,
    ProtectOption,
    RoundsOption,
    SizeOption,
    TargetOption,
    ThreadsOption,
    WeightsOption,
)
from cruciform.cli.shared.network_lookup import find_target, say_written
from cruciform.cli.shared.parsing import optional_size, read_limit
from cruciform.cli.shared.progress import measuring
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.errors import OptionError


def budget(
    model: ModelArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write the model directory and report here.")
    ] = None,
    limits: LimitsOption = None,
    macs: Annotated[str | None, typer.Option(help="Short for --budget macs=LIMIT: 50%, or a number.")] = None,
    params: Annotated[str | None, typer.Option(help="Short for --budget params=LIMIT: 50%, or a number.")] = None,
    size_bytes: Annotated[
        str | None, typer.Option("--bytes", help="Short for --budget bytes=LIMIT: float32 weights, 50% or 8MB.")
    ] = None,
    target: TargetOption = "onnxruntime",
    batch: BatchOption = 1,
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 7,
    candidate: Annotated[list[str] | None, typer.Option(help="A scheme to choose from; may be repeated.")] = None,
    importance: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN=NUMBER", help="How much layers count, as 'layer1.*=3'.")
    ] = None,
    protect: ProtectOption = None,
    weights: WeightsOption = None,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose a scheme for every layer from measured times, optimally, before any training.

    Example: cruciform budget timm:resnet50 --target onnxruntime --budget 60% -o resnet50-60

    Train the result: cruciform train modern_cifar10 --set model.name=resnet50-60

    Exits with 9 if the budget can't be met.
    """
    from cruciform.api.budget import BudgetOptions
    from cruciform.api.budget import budget as budget_network
    from cruciform.budgets.budget_result import BUDGET_COLUMNS, check_output

    short = {"macs": macs, "params": params, "bytes": size_bytes}
    given = dict(map(read_limit, limits or [])) | {unit: text for unit, text in short.items() if text}
    importances = dict(map(_read_importance, importance or []))
    if output:
        check_output(output)  # hours before it is written
    find_target(target)
    with measuring() as on_progress:
        options = BudgetOptions(
            tuple(candidate or ()), importances, tuple(protect or ()), None, threads, rounds, on_progress
        )
        result = budget_network(
            model,
            given,
            target=target,
            batch=batch,
            weights=weights,
            input_size=optional_size(size),
            options=options,
        )
    if output:
        result.save(output)
    if as_json:
        print_json(result.to_dict())
        return
    print_table(result.title, BUDGET_COLUMNS, result.rows, left=4)
    for note in result.notes:
        console().print(note)
    if output:
        console().print(say_written(output, model, result.base))


def _read_importance(text: str) -> tuple[str, float]:
    pattern, _, number = text.rpartition("=")
    try:
        return pattern, float(number)
    except ValueError:
        raise OptionError(f"--importance {text}: write PATTERN=NUMBER, as 'layer1.*=3'") from None
