"""``cruciform paper``: the paper's tables from our own counts."""

from typing import Annotated

import typer

from cruciform.cli.common import JsonOption, console, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="The paper's tables, held against our own counts.")


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
