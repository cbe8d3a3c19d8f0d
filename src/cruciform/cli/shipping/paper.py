"""``cruciform paper``: the paper's tables and figures from our own counts."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import BatchOption, JsonOption, SizeOption
from cruciform.cli.shared.network_lookup import open_typed
from cruciform.cli.shared.parsing import ending
from cruciform.cli.shared.progress import measuring
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console, echo
from cruciform.text.wording import plural

app = typer.Typer(no_args_is_help=True, help="The paper's tables and figures, from our own counts.")

ResultsOption = Annotated[Path, typer.Option("--results", metavar="DIR", help="The folder of recorded results.")]


class Markup(StrEnum):
    """What tables are printed as."""

    text = "text"
    markdown = "markdown"
    latex = "latex"


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
    markup: Annotated[
        Markup,
        typer.Option("--format", help="For the terminal, or one document table for each of the paper's."),
    ] = Markup.text,
    as_json: JsonOption = False,
) -> None:
    """Print every published row beside our counts, with the reading that makes them equal.

    Example: cruciform paper tables --check
    """
    from cruciform.paper.render import render_latex, render_markdown
    from cruciform.paper.tables import check_tables, reading_in_short

    rows = list(check_tables())
    equal = sum(row.equal for row in rows)
    if as_json:
        print_json({"rows": [row.to_dict() for row in rows], "equal": equal, "total": len(rows)})
    elif markup is not Markup.text:
        echo((render_latex if markup is Markup.latex else render_markdown)(rows), lines=True)
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
        list[str] | None, typer.Option("--only", metavar="NAME", help="Draw only this figure; may be repeated.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="A run or model directory whose learned filters are drawn."),
    ] = None,
    size: SizeOption = None,
    ending: Annotated[Ending, typer.Option("--format", help="The format of the pictures.")] = Ending.png,
    results: ResultsOption = Path("results"),
    as_json: JsonOption = False,
) -> None:
    """Draw the paper's figures, with our own counts and measurements marked as such.

    Example: cruciform paper figures -o figures --model runs/cifar_fast_lr3_cifar10
    """
    from cruciform.paper.figures import Material, draw_figures

    network = open_typed(model, size).model if model else None
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
    console().print(f"{sum(one.path is not None for one in found)} of {plural(len(found), 'figure')} drawn")


@app.command("timings")
def timings(
    target: Annotated[str, typer.Option(help="The engine, as for 'cruciform deploy'.")] = "onnxruntime",
    batch: BatchOption = 1,
    rounds: Annotated[int, typer.Option(min=2, help="Timing rounds, interleaved; the shortest time counts.")] = 15,
    result: Annotated[Path, typer.Option(callback=ending(".json"), help="Record into this file.")] = Path(
        "results/paper-timings.json"
    ),
    size: Annotated[int, typer.Option(min=32, help="Height and width of the image.")] = 224,
    as_json: JsonOption = False,
) -> None:
    """Time every filter group of gmp-lr beside Caffe's published times.

    The machine should be idle otherwise.

    Example: cruciform paper timings --target onnxruntime --rounds 15
    """
    from cruciform.paper.published import published_timings
    from cruciform.paper.timings import describe_timings, record_timings, time_parts, timed_parts

    chosen = timed_parts(size)
    with measuring() as on_progress:
        times = time_parts(chosen, target, batch=batch, rounds=rounds, on_progress=on_progress)
    details = describe_timings(times, chosen, target=target, batch=batch)
    command = f"cruciform paper timings --target {target} --batch {batch} --rounds {rounds} --size {size}"
    summary = record_timings(details, result, command=command)
    if as_json:
        print_json({"summary": summary, **details})
        return
    print_table(
        f"Filter groups of {details['network']} in {target}, batch size {batch}, 1 thread; Caffe's times are published",
        ("filter group", "MMACs", "ms here", "GMACs/s", "drift", "Caffe CPU ms", "Caffe GPU ms"),
        [
            (
                row["layer"],
                f"{row['macs'] / 1e6:.1f}",
                f"{row['milliseconds']:.3f}",
                f"{batch * row['macs'] / row['milliseconds'] / 1e6:.1f}",
                f"{row['drift']:.1%}",
                f"{published.cpu_ms:.1f}",
                f"{published.gpu_ms:.2f}",
            )
            for row, published in zip(details["layers"], published_timings(), strict=True)
        ],
    )
    console().print(f"correlation of MACs with time: {summary['correlation']:.3f}; recorded in {result}")
