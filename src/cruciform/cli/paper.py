"""``cruciform paper``: the paper's tables and figures from our own counts."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.common import JsonOption, SizeOption, console, find_trained, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="The paper's tables and figures, from our own counts.")

ResultsOption = Annotated[
    Path, typer.Option("--results", metavar="DIR", help="The folder of measured results to take our own numbers from.")
]


class Ending(StrEnum):
    """The format of a picture."""

    png = "png"
    svg = "svg"
    pdf = "pdf"


@app.callback()
def _paper() -> None:
    pass


@app.command("tables")
def tables(
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 unless every number is equal.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print every published row beside our counts, with the reading that makes them equal.

    Example: cruciform paper tables --check
    """
    from cruciform.paper.tables import check_tables, reading_in_short

    rows = list(check_tables())
    equal = sum(row.equal for row in rows)
    if as_json:
        print_json({"rows": [row.to_dict() for row in rows], "equal": equal, "total": len(rows)})
    else:
        print_table(
            "Published counts, ours under the row's reading, and the true ones of the network as deployed",
            (
                "row",
                "reading",
                "MACs published",
                "ours",
                "params published",
                "ours",
                "equal",
                "true MACs",
                "true params",
            ),
            [
                (
                    f"{row.published.table}/{row.published.network}",
                    reading_in_short(row.published),
                    f"{row.published.macs:,}",
                    f"{float(row.macs):,.10g}" if row.macs.denominator > 1 else f"{int(row.macs):,}",
                    f"{row.published.params:,}",
                    f"{row.params:,}",
                    "yes" if row.equal else "NO",
                    f"{row.true_macs:,}",
                    f"{row.true_params:,}",
                )
                for row in rows
            ],
            left=2,
        )
        console().print(f"{equal} of {len(rows)} rows equal the published MACs and parameters to the last digit")
    if check and equal != len(rows):
        raise typer.Exit(1)


@app.command("figures")
def figures(
    folder: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Draw into this folder.")],
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Draw this figure alone; may be repeated.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="A run or a model directory whose learned filters are shown; else left out."),
    ] = None,
    size: SizeOption = None,
    ending: Annotated[Ending, typer.Option("--format", help="The format of the pictures.")] = Ending.png,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Draw the paper's figures: published accuracies, our own counts, and what we measured, marked as such.

    Example: cruciform paper figures -o figures --model runs/cifar_fast_lr3_cifar10
    """
    from cruciform.paper.figures import Material, draw_figures

    network = find_trained(model, size).model if model else None
    material = Material(results, network, Path(model).name if model else "")
    found = list(draw_figures(material, folder, names=tuple(only or ()), ending=ending.value))
    if as_json:
        print_json(
            [{"figure": one.name, "file": str(one.path) if one.path else None, "note": one.note} for one in found]
        )
        return
    print_table(
        f"Figures in {folder}",
        ("figure", "file", "note"),
        [(one.name, one.path.name if one.path else "left out", one.note) for one in found],
        left=3,
    )
    console().print(f"{sum(one.path is not None for one in found)} of {len(found)} figures drawn")
