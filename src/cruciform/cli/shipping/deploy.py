"""``cruciform deploy``: a network in an engine, every layer in its fastest form, never slower than dense."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cruciform.cli.shared.arguments import JsonOption, ModelArgument, SizeOption
from cruciform.cli.shared.network_lookup import find_images, find_target, find_trained
from cruciform.cli.shared.progress import measuring
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.text.wording import plural


def deploy(
    model: ModelArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Write the artifact here.")],
    target: Annotated[str, typer.Option(help="onnxruntime, openvino, openvino-bf16, torch, …")] = "onnxruntime",
    batch: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the engine.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of every candidate; the shortest time counts.")] = 7,
    search_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds for the whole search: layers alone, whole networks, layer by layer. Always done after it: "
            "the comparison with the dense network, writing, and the check against PyTorch.",
        ),
    ] = 120,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure every equal form of every layer in the engine itself, and ship the fastest network.

    Example: cruciform deploy vgg11_gmp_lr --target onnxruntime --batch 1 -o vgg11-lr-onnx
    """
    from cruciform.deployment.artifact import refuse_to_overwrite, ship
    from cruciform.deployment.search.build import PLAIN, EngineSettings
    from cruciform.deployment.search.choose import choose_build

    refuse_to_overwrite(output)  # before minutes of measuring
    engine = find_target(target)
    network, usual, interface = find_trained(model, size)
    if engine.needs_images:
        engine = engine.with_images(find_images(model))
    setting = EngineSettings(engine, usual, batch=batch, threads=threads, rounds=rounds, search_seconds=search_seconds)
    with measuring(search_seconds) as on_progress:
        choice = choose_build(network, setting, on_progress=on_progress)
        on_progress("how far the artifact differs from PyTorch")
        about = {"network": model, **interface._asdict()}
        report = ship(network, choice, setting, output, target=target, about=about)
    if as_json:
        print_json(report)
        return
    print_table(
        f"{model} in {target}, batch {batch}, {plural(threads, 'thread')}: each layer alone, ms",
        ("layer", "plan", "chosen", "concat", "tail", "dense"),
        [
            (
                layer.name,
                layer.plan,
                choice.build.forms[layer.name],
                *(
                    f"{1e3 * layer.seconds[form]:.3f}" if form in layer.seconds else absent
                    for form in ("concat", "tail", "dense")
                ),
            )
            for layer in choice.layers
            for absent in ("none" if layer.seconds else "not timed",)
        ],
        left=3,
    )
    dense = f", the equal dense network {report['dense_milliseconds']:.2f} ms" if choice.dense else ""
    console().print(f"{report['milliseconds']:.2f} ms{dense}: {report['verdict']}")
    if choice.build.way != PLAIN:
        console().print(f"written {choice.build.way}, which was the fastest way")
    if choice.untried:
        untried = plural(len(choice.untried), "build")
        console().print(f"not tried: {untried}, the first being {choice.untried[0]}; all are in deploy.json")
    console().print(_say_parity(report))
    console().print(f"written to {output}")
    if interface.preprocessing and interface.preprocessing["data"].get("whiten"):
        console().print(
            "its images must be whitened by the matrix of its data set, which is not part of it: 'cruciform predict' "
            "does not take it"
        )


def _say_parity(report: dict[str, Any]) -> str:
    """Returns how it was verified, in words."""
    sizes = ", ".join(map(str, report["verified_batches"]))
    refused = ", ".join(report["refused_batches"])
    control = (
        f" Control: random weights in {report['control_weights']}, which count least, change them by "
        f"{report['control_error']:.1e}."
        if report["control_error"] is not None
        else ""
    )
    return (
        f"differs from PyTorch by at most {report['largest_error']:.1e} of the outputs' range over inputs, at batch "
        f"sizes {sizes}{f'; does not take {refused}' if refused else ''}; verified: {report['verified']}.{control}"
    )
