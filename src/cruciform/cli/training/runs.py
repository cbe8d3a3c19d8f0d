"""``cruciform runs``: what became of all runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cruciform.cli.shared.arguments import JsonOption
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.errors import CruciformError

if TYPE_CHECKING:
    from cruciform.training.run.run import Run


def runs(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Look below this folder.")] = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """List runs with their state: running, done, interrupted, failed, stopped without a word, or unreadable.

    Example: cruciform runs
    """
    from cruciform.training.run.run import find_runs

    found = [_status(run) for run in find_runs(folder)]
    if as_json:
        print_json(found)
        return
    if not found:
        console().print(f"there are no runs below {folder}")
        return
    print_table(
        f"runs below {folder}",
        ("run", "network", "state", "why", "epochs", "steps", "top 1", "starts"),
        [
            (
                row["run"],
                row["model"] or "?",
                row["state"],
                row["reason"] or "",
                f"{row['epochs']} of {row['of'] or '?'}",
                f"{row['step']:,}",
                "" if row["top1"] is None else f"{row['top1']:.2%}",
                str(row["starts"]),
            )
            for row in found
        ],
        left=4,
    )


def _status(run: "Run") -> dict[str, Any]:
    """Returns where a run stands; of one that can't be read, why: the others are listed all the same."""
    try:
        return run.status()
    except CruciformError as error:
        unknown = {"model": None, "epochs": 0, "of": None, "step": 0, "top1": None, "starts": 0}
        return {"run": str(run.directory), "state": "unreadable", "reason": str(error), **unknown}
