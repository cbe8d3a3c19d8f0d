"""``cruciform runs``: what became of all runs."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.common import JsonOption, print_json, print_table


def runs(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Look below this folder.")] = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """List runs with their state: running, done, interrupted, failed, or stopped without a word.

    Example: cruciform runs
    """
    from cruciform.train.run import find_runs

    found = [run.status() for run in find_runs(folder)]
    if as_json:
        print_json(found)
        return
    print_table(
        f"runs below {folder}",
        ("run", "network", "state", "why", "epochs", "steps", "top 1", "starts"),
        [
            (
                row["run"],
                row["model"],
                row["state"],
                row["reason"] or "",
                f"{row['epochs']} of {row['of']}",
                f"{row['step']:,}",
                "" if row["top1"] is None else f"{row['top1']:.2%}",
                str(row["starts"]),
            )
            for row in found
        ],
        left=4,
    )
