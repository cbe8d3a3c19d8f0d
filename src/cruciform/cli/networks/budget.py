"""``cruciform budget``: which basis for which layer, so that the network takes no more than it may."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption, SizeOption
from cruciform.cli.shared.network_lookup import check_network, find_model, find_target, refuse_saved, write_converted
from cruciform.cli.shared.progress import measuring
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.errors import OptionError


def budget(
    network: Annotated[
        str, typer.Argument(metavar="NETWORK", callback=check_network, help="timm:resnet50, vgg11_gmp, …")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write the model directory and report here.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--budget", help="Of time: 60% of the dense network's, or milliseconds as 12ms.")
    ] = None,
    macs: Annotated[str | None, typer.Option(help="Of MACs: 50%, or a number.")] = None,
    params: Annotated[str | None, typer.Option(help="Of parameters: 50%, or a number.")] = None,
    size_bytes: Annotated[str | None, typer.Option("--bytes", help="Of weights in 32 bits: 50%, or 8MB.")] = None,
    target: Annotated[str, typer.Option(help="onnxruntime, openvino, openvino-bf16, torch, …")] = "onnxruntime",
    batch: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the engine.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of every candidate; the shortest time counts.")] = 7,
    candidate: Annotated[list[str] | None, typer.Option(help="A scheme to choose from; may be repeated.")] = None,
    importance: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN=NUMBER", help="How much layers count, as 'layer1.*=3'.")
    ] = None,
    protect: Annotated[list[str] | None, typer.Option(help="Keep layers with such names, as 'layer1.*'.")] = None,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose a basis for every layer from measured times, exactly, before any training.

    Example: cruciform budget timm:resnet50 --target onnxruntime --budget 60% -o resnet50-60

    Train what it wrote: cruciform train modern_cifar10 --set model.name=resnet50-60

    Ends with 9 where the budget can't be met.
    """
    from cruciform.budgets.budget_plan import plan_budget
    from cruciform.budgets.budget_report import in_units, plan_to_dict, write_plan
    from cruciform.budgets.network_time import time_network
    from cruciform.budgets.survey import Valuation, list_candidates
    from cruciform.budgets.units.cost_unit import read_limits
    from cruciform.budgets.units.unit_seconds import SECONDS
    from cruciform.conversion.convert import convert
    from cruciform.data.transforms.whitening import cache_folder
    from cruciform.deployment.search.build import EngineSettings
    from cruciform.plot.style import check_picture
    from cruciform.store.directory import refuse_other_directory

    given = {"time": time, "macs": macs, "params": params, "bytes": size_bytes}
    limits = read_limits({name: text for name, text in given.items() if text})
    valuation = Valuation(
        tuple(candidate or list_candidates()), dict(map(_read_importance, importance or [])), tuple(protect or ())
    )
    refuse_saved(network)
    if output:
        refuse_other_directory(output)
        check_picture(output / "front.png")  # hours before it is drawn
    model, usual = find_model(network, size)
    setting = EngineSettings(find_target(target), usual, batch=batch, threads=threads, rounds=rounds)
    with measuring() as on_progress:
        plan = plan_budget(
            model, setting, limits, cache_folder() / "costs", valuation=valuation, on_progress=on_progress
        )
        conversion = convert(model, plan.mapping, input_size=usual) if plan.mapping else convert(model, "full")
        on_progress("the network that was chosen beside the dense one")
        times = time_network({"dense": (model, {}), "chosen": (conversion.model, plan.forms)}, setting)
        measured = times["chosen"].best
    about = {"network": network, "target": target, "batch": batch, "threads": threads, "input_size": list(usual)}
    if output:
        written = write_converted(conversion, output, network)
        write_plan(plan, about, measured, output)
    if as_json:
        print_json(plan_to_dict(plan, about, measured))
        return
    print_table(
        f"{network} in {target}, batch {batch}",
        ("layer", "convolution", "becomes", "why", "value", "of the dense time"),
        [
            (one.name, one.convolution, one.scheme, one.reason, f"{one.value:.2f}",
             f"{one.seconds / one.dense_seconds:.2f}")
            for one in plan.layers
        ],
        left=4,
    )  # fmt: skip
    for name, limit in plan.budgets.items():
        console().print(
            f"{name}: {in_units(name, plan.dense[name])} dense, {in_units(name, limit)} allowed, "
            f"{in_units(name, plan.predicted[name])} predicted"
        )
    for problem in plan.problems:
        console().print(problem)
    console().print(
        f"measured: {in_units(SECONDS, measured)}, in turns with the dense network's "
        f"{in_units(SECONDS, times['dense'].best)}; value {plan.value:.3f} of 1 (a proxy)"
    )
    if output:
        console().print(written)


def _read_importance(text: str) -> tuple[str, float]:
    pattern, _, number = text.rpartition("=")
    try:
        return pattern, float(number)
    except ValueError:
        raise OptionError(f"--importance {text}: write PATTERN=NUMBER, as 'layer1.*=3'") from None
