"""AdrenalMNIST3D: a 3-D ResNet-18 dense and of crosses, at 28³ and 64³, by one recipe.

    CRUCIFORM_DATA=DIR python benchmarks/volumes_training.py --study     rate and start, on the validation set
    CRUCIFORM_DATA=DIR python benchmarks/volumes_training.py             all runs; writes results/volumes-training.json
    CRUCIFORM_DATA=DIR python benchmarks/volumes_training.py --side 64 --only cross3 --only planes

MONAI's ResNet-18 with half its widths (32 to 256) and a stem of 3×3×3 with stride 2, at 64³ with its pooling behind:
both sizes reach the first block at about 15³. Whole widths without a stride cost ten times as much, and two cores have
to do: in bfloat16 with channels last, about two hours of one core for all 28 runs.

The splits are MedMNIST's own. Rate and start were chosen by ``--study``, on the validation set, before any run; the
test set is judged once, after the last epoch. Every run has a process of its own, which tells its peak of memory and
its processor time. Each is recorded when it ends and not run again; interrupted ones go on. Two of these may run at
once for different networks or sides, with one thread each: OMP_NUM_THREADS=1.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cruciform.cli.shared.run_progress import make_observer
from cruciform.files import write_text
from cruciform.measure.record import peak_memory, record_result
from cruciform.training.experiments.race import Contestant, run_race
from cruciform.training.experiments.race_result import add_finish, read_finishes, record_race
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.run import Run

RESULTS = Path(__file__).parents[1] / "results"
RESULT, STUDY = RESULTS / "volumes-training.json", RESULTS / "volumes-study.json"
DATA = Path(os.environ.get("CRUCIFORM_DATA", "."))
COMMAND = "CRUCIFORM_DATA=DIR python benchmarks/volumes_training.py"
SCHEMES = {
    "dense": None,
    "cross3": "cross3",
    "cross3_blocks": "cross:block=16",
    "cross3_full_quarter": "cross:full=0.25",
    "planes": "planes",
}
RATE, START = 3e-3, "pytorch"
RATES, STARTS, STUDY_EPOCHS = (1e-3, 3e-4, 3e-3), ("pytorch", "identity"), 6
VALIDATION = "adrenalmnist3d-validation.npz"
FINISH = "finish.json"
# Of MedMNIST v2 (Yang et al., 2023), at 28³, with whole widths and a longer training.
PUBLISHED = {"auc_3d": 0.827, "acc_3d": 0.721, "auc_acs": 0.839, "acc_acs": 0.754}


class Size(NamedTuple):
    """What differs between the sizes.

    Attributes:
        file: Of MedMNIST.
        epochs: How often every volume is seen.
        seeds: How many runs of each network.
        padding: By how much volumes are moved at random.
    """

    file: str
    epochs: int
    seeds: int
    padding: int


SIZES = {28: Size("adrenalmnist3d.npz", 12, 5, 2), 64: Size("adrenalmnist3d_64.npz", 5, 2, 4)}


def make_recipe(network: str, side: int, *more: str, start: str | None = START) -> Recipe:
    """Returns the recipe of a network at a size: the same for all but for the scheme, and the start of its layers."""
    size, scheme = SIZES[side], SCHEMES[network]
    crop = f"{{kind = 'random-crop', size = {side}, padding = {size.padding}, padding_mode = 'constant'}}"
    changes = [
        "model.options.widen_factor=0.5",
        "model.options.conv1_t_size=3",
        "model.options.conv1_t_stride=2",
        f"model.options.no_max_pool={str(side < 64).lower()}",
        f"data.path={size.file}",
        f"train_transforms=[{crop}, {{kind = 'hflip', axes = [1, 2, 3]}}]",
        f"optimizer.lr={RATE}",
        f"epochs={size.epochs}",
        f"evaluation={{auc = true, batch_size = 32, epochs = {size.epochs}}}",
        "checkpoint.keep=1",
        "log.tensorboard=false",
        "precision=bf16",
    ]
    converted = [f"model.scheme='{scheme}'", *([f"model.init={start}"] if start else [])] if scheme else []
    return load_recipe("modern_volumes", [*changes, *converted, *more])


def run_one(network: str, side: int, seed: int, runs: Path) -> None:
    """Runs in the process of its own, and leaves what it came to beside the run."""
    name = f"{side}_{network}"
    folder = runs / f"{name}-{seed}"
    fresh = not Run(folder).exists
    contestants = [Contestant(name, make_recipe(network, side))]
    (finish,) = run_race(contestants, [seed], runs, observe=make_observer, command=COMMAND)
    found = finish.to_dict() | {"side": side, "network": network, "megabytes": round(peak_memory() / 2**20, 1)}
    # Of a run that was interrupted, the processor time of the first part is not known.
    found["cpu_seconds"] = round(time.process_time(), 1) if fresh else None
    write_text(folder / FINISH, json.dumps(found) + "\n")


def read_finished(runs: Path) -> list[dict[str, Any]]:
    """Returns the runs that are recorded, and those that another process has finished."""
    rows = json.loads(RESULT.read_text("utf-8"))["details"] if RESULT.is_file() else []
    rows += [json.loads(path.read_text("utf-8")) for path in sorted(runs.glob(f"*/{FINISH}"))]
    by_run = {(row["side"], row["network"], row["seed"]): row for row in rows}
    order = list(SCHEMES)
    return [by_run[key] for key in sorted(by_run, key=lambda key: (key[0], order.index(key[1]), key[2]))]


def summarize(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Returns means over seeds and standard deviations, as ``acc_28_dense`` and ``acc_28_dense_sd``."""
    summary: dict[str, float] = {}
    for side in SIZES:
        for network in SCHEMES:
            group = [row for row in rows if (row["side"], row["network"]) == (side, network)]
            if not group:
                continue
            ends = [row["curve"][-1] for row in group]
            key = f"{side}_{network}"
            for short, values in (("acc", [end["top1"] for end in ends]), ("auc", [end["auc"] for end in ends])):
                summary[f"{short}_{key}"] = round(statistics.fmean(values), 4)
                summary[f"{short}_{key}_sd"] = round(statistics.stdev(values), 4) if len(values) > 1 else 0.0
            processor = [row["cpu_seconds"] for row in group if row["cpu_seconds"] is not None]
            summary |= {
                f"seeds_{key}": len(group),
                f"mmacs_{key}": round(group[0]["macs"] / 1e6, 2),
                f"params_{key}": group[0]["params"],
                f"seconds_{key}": round(statistics.fmean(end["seconds"] for end in ends), 1),
                f"megabytes_{key}": round(max(row["megabytes"] for row in group), 1),
            }
            if processor:
                summary[f"cpu_seconds_{key}"] = round(statistics.fmean(processor), 1)
    return summary


def record(rows: Sequence[dict[str, Any]]) -> None:
    """Writes what is known so far."""
    summary = summarize(rows)
    summary |= {f"published_{key}": value for key, value in PUBLISHED.items()}
    seeds = min(int(value) for key, value in summary.items() if key.startswith("seeds_"))
    record_result(RESULT, summary=summary, details=list(rows), command=COMMAND, n=seeds, packages=("monai",))


def missing(given: argparse.Namespace) -> Iterator[tuple[str, int, int]]:
    """Yields what is to be run: (network, side, seed), all networks with the first seed, then with the next."""
    known = {(row["network"], row["side"], row["seed"]) for row in read_finished(given.runs)}
    for side in given.side or SIZES:
        for seed in range(SIZES[side].seeds):
            for network in given.only or SCHEMES:
                if (network, side, seed) not in known:
                    yield network, side, seed


def study(runs: Path) -> None:
    """Tries rates and starts at 28³, judged on the validation set: these runs see a file without the test set."""
    path = DATA / VALIDATION
    if not path.is_file():
        with np.load(DATA / SIZES[28].file) as archive:
            new = {f"{split}_{what}": archive[f"{old}_{what}"] for split, old in (("train", "train"), ("test", "val"))
                   for what in ("images", "labels")}  # fmt: skip
        np.savez_compressed(path, **new)
    changes = [f"data.path={VALIDATION}", f"epochs={STUDY_EPOCHS}", "evaluation.epochs=1"]
    contestants = [
        Contestant(f"{network}_{rate:g}", make_recipe(network, 28, *changes, f"optimizer.lr={rate}", start=None))
        for rate in RATES
        for network in ("dense", "cross3")
    ]
    contestants += [Contestant(f"cross3_{start}", make_recipe("cross3", 28, *changes, start=start)) for start in STARTS]
    known = read_finishes(STUDY)
    command = f"{COMMAND} --study"
    for finish in run_race(
        contestants, range(1), runs / "study", finished=known, observe=make_observer, command=command
    ):
        add_finish(finish, STUDY, lambda runs: record_race(runs, STUDY, command=command))
        print(f"{finish.name}: AUC {finish.curve[-1]['auc']:.3f}, {finish.top1:.1%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--study", action="store_true", help="choose rate and start, on the validation set")
    parser.add_argument("--only", action="append", choices=SCHEMES, help="a network; may be repeated")
    parser.add_argument("--side", action="append", type=int, choices=SIZES, help="a size; may be repeated")
    parser.add_argument("--runs", type=Path, default=Path("runs/volumes"))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.study:
        study(given.runs)
    elif given.one:
        network, side, seed = given.one
        run_one(network, int(side), int(seed), given.runs)
    else:
        for run in missing(given):
            subprocess.run(  # noqa: S603
                [sys.executable, __file__, "--runs", str(given.runs), "--one", *map(str, run)], check=True
            )
            record(read_finished(given.runs))
        for key, value in summarize(read_finished(given.runs)).items():
            print(f"{key}: {value}")


if __name__ == "__main__":
    main()
