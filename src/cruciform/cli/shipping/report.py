"""``cruciform report``: one HTML file about a network or a run."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption, ModelArgument, SizeOption
from cruciform.cli.shared.network_lookup import find_trained
from cruciform.cli.shared.parsing import ending
from cruciform.cli.shared.progress import measuring
from cruciform.cli.shared.tables import print_json
from cruciform.cli.shared.terminal import console


def report(
    model: ModelArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", dir_okay=False, metavar="HTML", callback=ending(".html"), help="Write this file."
        ),
    ],
    rounds: Annotated[int, typer.Option(min=0, help="How often layers are timed; 0 leaves times out.")] = 5,
    deployments: Annotated[
        list[Path] | None,
        typer.Option(
            "--deployment", metavar="DIR", help="Show what 'cruciform deploy' wrote here too; may be repeated."
        ),
    ] = None,
    size: SizeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one self-contained HTML file: costs, conversion, gradients, training, filters, deployments.

    Example: cruciform report runs/cifar_fast_lr3_cifar10 -o report.html
    """
    from cruciform.files import write_text
    from cruciform.reports.facts import gather_facts
    from cruciform.reports.page import render_page
    from cruciform.store.run_marker import is_run

    found = find_trained(model, size)
    with measuring() as on_progress:
        on_progress(model)
        run = None
        if is_run(Path(model)):
            from cruciform.reports.run_facts import read_run

            run = read_run(Path(model))
        facts = gather_facts(
            model, found.model, found.input_size, run=run, rounds=rounds, deployments=tuple(deployments or ())
        )
    page = render_page(facts)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_text(output, page)
    summary = {
        "file": str(output),
        "bytes": len(page.encode()),
        "kind": facts.kind,
        "layers": len(facts.layers),
        "deployments": len(facts.deployments),
    }
    if as_json:
        print_json(summary)
        return
    console().print(f"{output}: {len(page.encode()) / 1e6:.2f} MB, nothing in it comes from elsewhere")
