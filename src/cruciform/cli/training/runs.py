"""``cruciform runs``: the runs in a folder."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cruciform.cli.shared.arguments import JsonOption
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console


def runs(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="The folder to search.")] = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """List runs with their state: running, done, interrupted, failed, stopped (no log entry) or unreadable.

    Example: cruciform runs
    """
    from cruciform.api.train import list_runs

    found = list_runs(folder)
    if as_json:
        print_json([asdict(status) for status in found])
        return
    if not found:
        console().print(f"no runs in {folder}")
        return
    print_table(
        f"runs in {folder}",
        ("run", "network", "state", "reason", "epochs", "steps", "top-1 accuracy", "starts"),
        [
            (
                status.run,
                status.model or "?",
                status.state,
                status.reason or "",
                f"{status.epochs} of {status.of or '?'}",
                f"{status.step:,}",
                "" if status.top1 is None else f"{status.top1:.2%}",
                str(status.starts),
            )
            for status in found
        ],
        left=4,
    )
