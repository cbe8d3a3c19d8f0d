"""``cruciform shard``: write images as shards, and verify them."""

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

app = typer.Typer(no_args_is_help=True, help="Write images as shards, and verify shards.")


@app.command()
def write(
    images: Annotated[
        Path,
        typer.Argument(help="A folder with one subfolder for each class, or a .csv file with columns path and label."),
    ],
    out: Annotated[Path, typer.Argument(help="The folder to write into.")],
    size: Annotated[str, typer.Option(help="Largest size of a shard, as 256MB.")] = "256MB",
    short_side: Annotated[
        int | None, typer.Option(min=1, help="Resize the shorter side of every image to this length first.")
    ] = None,
    shuffle: Annotated[
        int, typer.Option(help="Seed of the shuffled order of samples; -1: the order of their names.")
    ] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Number of shards written at once.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Write images as WebDataset tar shards with an index and a manifest; the same command resumes it.

    The same images give the same bytes, whatever the number of threads. Write the training and the test set separately:

    Example: cruciform shard write imagenette/train shards/train --size 64MB
    """
    from cruciform.api.shards import write_shards
    from cruciform.data.sets.folder import NAMES
    from cruciform.data.sharding.shard_options import ShardOptions

    options = ShardOptions(read_bytes(size), short_side, None if shuffle < 0 else shuffle, threads)
    with progress_bar("writing samples") as on_progress:
        manifest = write_shards(images, out, options, on_progress=on_progress)
    total = sum(shard.bytes for shard in manifest.shards)
    if as_json:
        print_json({"out": str(out), "samples": manifest.samples, "shards": len(manifest.shards), "bytes": total})
        return
    splits = ("train", *NAMES["test"])
    advice = (
        f"Train on them with --set data.kind=shards --set data.path={out.resolve().parent}"
        if out.name in splits
        else f"To train on them, rename the folder to {' or '.join(splits)}"
    )
    console().print(
        f"{plural(manifest.samples, 'sample')} of {plural(len(manifest.classes), 'class', 'classes')} in "
        f"{plural(len(manifest.shards), 'shard')}, {total:,} bytes. {advice}"
    )


@app.command()
def verify(
    out: Annotated[Path, typer.Argument(help="The folder with the shards.")],
    threads: Annotated[int, typer.Option(min=1, help="Number of files read at once.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Verify the checksum of every shard, and list all that are damaged, missing, swapped or unexpected.

    Exit codes: 0 all files are valid, 1 some are not.

    Example: cruciform shard verify shards/train
    """
    from cruciform.api.shards import verify_shards

    with progress_bar("reading files") as on_progress:
        problems = verify_shards(out, threads=threads, on_progress=on_progress)
    if as_json:
        print_json([problem._asdict() for problem in problems])
    elif problems:
        print_table(f"{out}", ("file", "problem", "details"), problems, left=3)
    else:
        console().print(f"{out}: all files are valid")
    if problems:
        raise typer.Exit(1)


def read_bytes(text: str) -> int:
    """Read ``256MB``."""
    return int(read_amount(text, UNITS, "size; write a number and B, KB, MB or GB, as 256MB")[0])
