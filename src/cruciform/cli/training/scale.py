"""``cruciform scale``: estimate training on many machines."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cruciform.amounts import read_amount
from cruciform.cli.shared.arguments import JsonOption, SizeOption
from cruciform.cli.shared.network_lookup import open_typed
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.errors import OptionError
from cruciform.text.wording import plural

if TYPE_CHECKING:
    from cruciform.scale.model import Estimate, TrainingCost

LINKS = {"Mb": 10**6, "Gb": 10**9, "Tb": 10**12}


def scale(
    network: Annotated[list[str], typer.Option(help="A network, as for profile; repeatable.")],
    images: Annotated[float, typer.Option(help="Training images over all epochs.")] = 1e9,
    gpus: Annotated[int, typer.Option(min=1, help="Number of GPUs.")] = 64,
    link: Annotated[str, typer.Option(help="Bandwidth between two machines in bits/s, as 100Gb.")] = "100Gb",
    changes: Annotated[
        list[str] | None, typer.Option("--assume", metavar="NAME=VALUE", help="Override an assumption; repeatable.")
    ] = None,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate speed, scaling efficiency, ingest, goodput and cost of training on many GPUs, with every assumption.

    This is arithmetic; no GPU was measured. docs/scale.md describes how it was validated.

    Example: cruciform scale --network vgg11_gmp_lr --images 1e9 --gpus 64 --link 100Gb
    """
    from cruciform.scale.assumptions import assume, describe_assumptions
    from cruciform.scale.model import TrainingJob, estimate

    assumed, job = assume(changes or []), TrainingJob(images, gpus, read_link(link))
    costs = [_cost(name, size) for name in network]
    found = {cost.name: estimate(cost, job, assumed) for cost in costs}
    assumptions = describe_assumptions(assumed)
    if as_json:
        print_json(
            {
                "networks": {name: asdict(one) for name, one in found.items()},
                "assumptions": {name: {"value": value, "unit": unit, "source": source}
                                for name, value, unit, source in assumptions},
            }
        )  # fmt: skip
        return
    print_table(
        f"{images:,.0f} images on {plural(gpus, 'GPU')}, {link} between machines",
        ("", *found),
        zip(*[[label for label, _ in _lines(costs[0], next(iter(found.values())))],
              *([text for _, text in _lines(cost, found[cost.name])] for cost in costs)], strict=True),
    )  # fmt: skip
    print_table(
        "Assumptions",
        ("assumption", "unit", "source", "value"),
        [(name, unit, source, f"{value:,.6g}") for name, value, unit, source in assumptions],
        left=3,
    )
    console().print("override any with --assume NAME=VALUE")


def _cost(name: str, size: str | None) -> "TrainingCost":
    from cruciform.measure.macs import profile
    from cruciform.nn.composite import CompositeConv
    from cruciform.scale.model import TrainingCost

    opened = open_typed(name, size)
    counted = profile(opened.model, opened.needed_input_size)
    thin = any(isinstance(module, CompositeConv) for module in opened.model.modules())
    if not counted.macs:
        raise OptionError(f"{name} has no multiply-accumulates, which its time is estimated from")
    return TrainingCost(name, counted.params, counted.macs, thin)


def _lines(cost: "TrainingCost", found: "Estimate") -> list[tuple[str, str]]:
    return [
        ("parameters", f"{cost.params:,}"),
        ("MACs per image", f"{cost.macs:,}"),
        ("images/s per GPU", f"{found.images_per_second_per_gpu:,.0f}"),
        ("compute time per step", f"{1e3 * found.step_seconds:.1f} ms"),
        ("gradient", f"{found.gradient_bytes / 1e6:,.1f} MB"),
        ("all-reduce time", f"{1e3 * found.reduce_seconds:.1f} ms"),
        ("scaling efficiency", f"{found.efficiency:.0%}"),
        ("ingest per GPU", f"{found.ingest_bytes_per_second / 1e6:,.0f} MB/s"),
        ("decoding cores per GPU", f"{found.cores_per_gpu:.0f}"),
        ("checkpoint", f"{found.checkpoint_bytes / 1e6:,.0f} MB every {found.interval_seconds / 60:.0f} minutes"),
        ("goodput", f"{found.goodput:.2%}"),
        ("images/s in total", f"{found.images_per_second:,.0f}"),
        ("time", f"{found.hours:,.2f} hours"),
        ("cost", f"${found.dollars:,.0f}"),
    ]


def read_link(text: str) -> float:
    """Read ``100Gb``, bits per second."""
    return read_amount(text, LINKS, "link; write bits a second, as 25Gb or 400Gb")[0]
