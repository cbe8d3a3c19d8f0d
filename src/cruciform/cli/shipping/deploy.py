"""``cruciform deploy``: the fastest equal form of a network in an engine."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cruciform.cli.shared.arguments import (
    JsonOption,
    ModelArgument,
    RoundsOption,
    SizeOption,
    TargetOption,
    ThreadsOption,
    WeightsOption,
)
from cruciform.cli.shared.network_lookup import find_target
from cruciform.cli.shared.parsing import optional_size
from cruciform.cli.shared.progress import measuring
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.text.wording import plural

TIMED = ("concat", "tail", "dense")  # forms that single layers are timed in


def deploy(
    model: ModelArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Write the artifact here.")],
    target: TargetOption = "onnxruntime",
    batch: Annotated[int, typer.Option(min=1, help="Batch size to optimize for.")] = 1,
    threads: ThreadsOption = 1,
    rounds: RoundsOption = 7,
    search_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="Time limit of the search: single layers, whole networks, layer by layer. The comparison with the "
            "dense network, writing, and the check against PyTorch come after it.",
        ),
    ] = 120,
    weights: WeightsOption = None,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time every equal form of every layer in an engine; write the fastest network.

    Example: cruciform deploy vgg11_gmp_lr --target onnxruntime --batch 1 -o vgg11-lr-onnx
    """
    from cruciform.api.deploy import DeployOptions
    from cruciform.api.deploy import deploy as deploy_network

    find_target(target)
    with measuring(search_seconds) as on_progress:
        options = DeployOptions(threads, rounds, search_seconds, on_progress=on_progress)
        artifact = deploy_network(
            model,
            output,
            target=target,
            batch=batch,
            weights=weights,
            input_size=optional_size(size),
            options=options,
        )
    report = artifact.report
    if as_json:
        print_json(report)
        return
    print_table(
        f"{model} in {target}, batch size {batch}, {plural(threads, 'thread')}: single layers, ms",
        ("layer", "plan", "chosen", *TIMED),
        [
            (layer["name"], layer["plan"], report["forms"][layer["name"]], *_times(layer["seconds"]))
            for layer in report["layers"]
        ],
        left=3,
    )
    console().print(artifact.timing)
    if report["way"] != "plain":
        console().print(f"exported {report['way']}, which was fastest")
    if report["untried"]:
        first, *_ = report["untried"]
        console().print(f"not tried: {plural(len(report['untried']), 'build')}, such as {first}; see deploy.json")
    console().print(artifact.parity)
    console().print(f"written to {output}")
    preprocessing = report["preprocessing"]
    if preprocessing and preprocessing["data"].get("whiten"):
        console().print(
            "its images must be whitened with the matrix of its data set, which the artifact does not contain: "
            "'cruciform predict' does not take it"
        )


def _times(seconds: dict[str, Any]) -> list[str]:
    absent = "none" if seconds else "not timed"
    return [f"{1e3 * seconds[form]:.3f}" if form in seconds else absent for form in TIMED]
