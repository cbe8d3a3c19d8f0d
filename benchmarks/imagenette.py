"""ImageNet-size training end to end: Imagenette's JPEGs out of shards, the paper's recipes, dense and low rank.

    CRUCIFORM_DATA=DIR python benchmarks/imagenette.py                     VGG-11; writes results/imagenette.json
    CRUCIFORM_DATA=DIR python benchmarks/imagenette.py googlenet_lr --epochs 2

The recipes are the paper's for ILSVRC (crops, mirroring, rate, decay); a machine of two cores can afford other sizes
only: crops of 112 pixels, batches of 64, bfloat16, and few epochs, over which the rate goes up and down once.
Each run is recorded when it ends; times are those of a quiet machine, where training_speed.py found them. Two of these
may run at once, with one thread each: OMP_NUM_THREADS=1.
"""

import argparse
import os
from pathlib import Path

from quiet_speeds import at_quiet_speed

from cruciform.cli.shared.run_progress import make_observer
from cruciform.data.shard_write import list_items, write_shards
from cruciform.data.sharding.shard_index import MANIFEST
from cruciform.data.sharding.shard_options import ShardOptions
from cruciform.training.experiments.race import Contestant, Finish, run_race
from cruciform.training.experiments.race_result import add_finish, read_finishes, record_race
from cruciform.training.recipe.cookbook import load_recipe

RESULT = Path(__file__).parents[1] / "results" / "imagenette.json"
DATA = Path(os.environ.get("CRUCIFORM_DATA", "."))
SIDE = 112
COMMAND = "CRUCIFORM_DATA=DIR python benchmarks/imagenette.py"
CHANGES = [
    "data.kind=shards",
    "data.path=imagenette128-shards",
    f"data.size={SIDE}",  # and a short side of 128
    "batch_size=64",
    "precision=bf16",
    "grad_clip_norm=1.0",
    "schedule={kind = 'one-cycle', start_factor = 0.1, pct_start = 0.25, end_factor = 0.0}",
]


def record(finishes: list[Finish]) -> None:
    """Writes all runs, with the times of a quiet machine."""
    if finishes:
        record_race([at_quiet_speed(finish) for finish in finishes], RESULT, command=COMMAND)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("networks", nargs="*", default=["vgg11_gmp", "vgg11_gmp_lr"])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--runs", type=Path, default=Path("runs/imagenette"))
    given = parser.parse_args()
    for split in ("train", "val"):
        out = DATA / "imagenette128-shards" / split
        if not (out / MANIFEST).is_file():
            write_shards(list_items(DATA / "imagenette128" / split), out, ShardOptions(size=16_000_000))
    contestants = [
        Contestant(name, load_recipe(f"{name}_ilsvrc", [*CHANGES, f"epochs={given.epochs}"])) for name in given.networks
    ]
    known = read_finishes(RESULT)
    record(known)  # the speed may have been found since
    for finish in run_race(contestants, range(1), given.runs, finished=known, observe=make_observer, command=COMMAND):
        add_finish(finish, RESULT, record)
        print(
            f"{finish.name}: {finish.top1:.2%} right, {finish.seconds:.0f} s, {finish.macs / 1e6:.0f} MMAC", flush=True
        )


if __name__ == "__main__":
    main()
