"""``cruciform shard``: images as shards that any cluster can read and nobody has to trust."""

from pathlib import Path
from typing import Annotated

import typer

from cruciform.amounts import read_amount
from cruciform.cli.shared.arguments import JsonOption
from cruciform.cli.shared.progress import progress_bar
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import console
from cruciform.text.wording import plural

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}

app = typer.Typer(no_args_is_help=True, help="Write images as shards, and find out whether shards are whole.")


@app.command()
def write(
    images: Annotated[
        Path,
        typer.Argument(help="A folder with one folder for each class, or a .csv file with columns path and label."),
    ],
    out: Annotated[Path, typer.Argument(help="The folder to write into.")],
    size: Annotated[str, typer.Option(help="Bytes of the files that go into one shard, as 256MB.")] = "256MB",
    short_side: Annotated[
        int | None, typer.Option(min=1, help="Bring the shorter side of every image to this length first.")
    ] = None,
    shuffle: Annotated[int, typer.Option(help="Seed of the order of samples; -1: the order of their names.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Shards that are written at once.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Write images as WebDataset tar shards with an index and a manifest. Interrupt it: the same command goes on.

    The same images give the same bytes, whatever the number of threads. A training set and a test set are two folders:

    Example: cruciform shard write imagenette/train shards/train --size 64MB
    """
    from cruciform.data.sets.folder import NAMES
    from cruciform.data.shard_write import Writing, list_items, write_shards

    listing = list_items(images)
    writing = Writing(read_bytes(size), short_side, None if shuffle < 0 else shuffle, threads)
    with progress_bar("writing samples") as advance:
        manifest = write_shards(listing, out, writing, advance=advance)
    total = sum(shard.bytes for shard in manifest.shards)
    if as_json:
        print_json({"out": str(out), "samples": manifest.samples, "shards": len(manifest.shards), "bytes": total})
        return
    splits = ("train", *NAMES["test"])
    advice = (
        f"Train on them with --set data.kind=shards --set data.path={out.resolve().parent}"
        if out.name in splits
        else f"To train on them, call the folder {' or '.join(splits)}"
    )
    console().print(
        f"{plural(manifest.samples, 'sample')} of {plural(len(manifest.classes), 'class', 'classes')} in "
        f"{plural(len(manifest.shards), 'shard')}, {total:,} bytes. {advice}"
    )


@app.command()
def verify(
    out: Annotated[Path, typer.Argument(help="The folder with the shards.")],
    threads: Annotated[int, typer.Option(min=1, help="Files that are read at once.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Read every shard whole, and name all that are damaged, missing, exchanged or foreign.

    Ends with 0 where all is as it was written, else with 1.

    Example: cruciform shard verify shards/train
    """
    from cruciform.data.shard_verify import verify_shards

    with progress_bar("reading files") as advance:
        problems = verify_shards(out, threads=threads, advance=advance)
    if as_json:
        print_json([problem._asdict() for problem in problems])
    elif problems:
        print_table(f"{out}", ("file", "problem", "what is wrong"), problems, left=3)
    else:
        console().print(f"{out}: all files are what was written")
    if problems:
        raise typer.Exit(1)


def read_bytes(text: str) -> int:
    """Reads ``256MB``."""
    return int(read_amount(text, UNITS, "size; write a number and B, KB, MB or GB, as 256MB")[0])
