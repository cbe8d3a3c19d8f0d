"""The paper's table of VGG networks, with seeds, at a size that two cores can train: 100 classes of photographs.

    export CRUCIFORM_DATA=DIR
    python benchmarks/tiny_vgg.py study --epochs 6     lr, epochs and augmentation, of the dense network
    python benchmarks/tiny_vgg.py table --workers 2    all networks, 3 seeds; writes results/tiny-vgg.json
    python benchmarks/tiny_vgg.py speed                training steps and deployed networks, timed
    python benchmarks/tiny_vgg.py same-time            the rows with equal training time; needs speed
    python benchmarks/tiny_vgg.py record               the summary again; prints what is missing

The recipe ``vgg11_tiny`` is chosen on held-out training images for the dense network alone (``study``, all trials in
results/tiny-vgg-study.json) and applied unchanged to all: the paper's networks, and the dense one narrowed to the MACs
of two of them. The validation set is read once in a run, after its last epoch.

Every run is a file of its own when it ends and is not run again; interrupted ones are resumed. The same command may
run several times at once: each process takes the next run that no other holds. ``--workers`` starts so many, with one
thread each; a run uses one process because batch norm takes its statistics from one. Accuracies do not depend on other
work on the machine. Times do: ``speed`` needs an idle machine. Training seconds are epochs × steps × the shortest of
some interleaved steps, on one thread; deployed milliseconds are those of ONNX Runtime at batch size 1, one thread, each
network in its fastest form.

A difference is that of two means over seeds, with the standard error √(s₁²/n₁ + s₂²/n₂); one within two standard errors
is not distinguishable from none.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from deployed_times import deployed_times
from finished_rows import kept_folder, read_rows, write_row
from held_runs import HeldRuns, in_parallel, run_until_interrupted
from recorded_trials import run_trials
from step_times import time_steps
from tiny_vgg_networks import (
    CLASSES,
    DENSE,
    FEWER,
    NETWORKS,
    RECIPE,
    SAME_TIME,
    Row,
    recipe_of,
    same_time_rows,
    table_rows,
)
from tiny_vgg_summary import step_seconds, summarize_runs

from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.targets.target import TARGETS
from cruciform.files import alone_in
from cruciform.measure.record import hardware, record_result, today, versions
from cruciform.models.zoo import create_model
from cruciform.training.experiments.race import Contestant, Finish
from cruciform.training.recipe.cookbook import load_recipe

ROOT = Path(__file__).parents[1]
RESULT, STUDY = ROOT / "results" / "tiny-vgg.json", ROOT / "results" / "tiny-vgg-study.json"
FOLDER = kept_folder("tiny-vgg")
SCRIPT = "python benchmarks/tiny_vgg.py"
TRAINING, DEPLOYED = "training", "deployed"
HELD_OUT = 5000
SEEDS = 3
# Crops and flips are the paper's augmentation; Inception's crops and label smoothing are what is usual today.
RESIZED = "train_transforms=[{kind = 'random-resized-crop', size = 44, min_scale = 0.35}, {kind = 'hflip'}]"
SMOOTH = "loss={label_smoothing = 0.1}"
AUGMENTATIONS = {"crops": [], "resized": [RESIZED], "crops-smooth": [SMOOTH], "resized-smooth": [RESIZED, SMOOTH]}
LRS = (0.025, 0.05, 0.1)


def study(given: argparse.Namespace) -> None:
    """Try learning rates, epochs and augmentations with the dense network, evaluated on held-out training images."""
    contestants = [
        Contestant(
            f"{name}-lr-{lr}-{epochs}",
            load_recipe(
                RECIPE,
                [*AUGMENTATIONS[name], f"optimizer.lr={lr}", f"epochs={epochs}", f"data.holdout={HELD_OUT}"],
            ),
        )
        for epochs in given.epochs or [recipe_of(DENSE).epochs]
        for name in given.augmentation or AUGMENTATIONS
        for lr in given.lr or LRS
    ]
    command = f"{SCRIPT} study " + " ".join(f"--{key} {one}" for key in ("lr", "epochs", "augmentation")
                                            for one in getattr(given, key) or ())  # fmt: skip
    run_trials(contestants, range(given.seeds), given.folder / "study", STUDY, command.strip())


def read_all(folder: Path) -> tuple[list[Finish], dict[str, Any]]:
    """Return the runs that are finished and the measured times: those that are recorded, and newer ones of files."""
    runs = HeldRuns(folder, RESULT)
    recorded = runs.recorded()
    times = {name: recorded[name] for name in (TRAINING, DEPLOYED) if recorded.get(name)} | read_rows(folder / "times")
    order = [*NETWORKS, *(f"{name}{SAME_TIME}" for name in NETWORKS)]
    return sorted(runs.finished(), key=lambda run: (order.index(run.name), run.seed)), times


def missing(runs: Sequence[Finish], times: dict[str, Any], seeds: int = SEEDS) -> list[str]:
    """Return what is not finished: runs of the table, rows with equal training time, measured times."""
    known = {(run.name, run.seed) for run in runs}
    wanted = [(row.name, seed) for seed, row in in_order(table_rows(), seeds)]
    steps = step_seconds(times.get(TRAINING))
    wanted += [(row.name, 0) for row in same_time_rows(steps)] if steps else []
    lacking = [f"{name} seed {seed}" for name, seed in wanted if (name, seed) not in known]
    lacking += [f"times: {name}" for name in (TRAINING, DEPLOYED) if name not in times]
    return [*lacking, *(() if steps else ("rows with equal training time",))]


def in_order(rows: Sequence[Row], seeds: int) -> Iterator[tuple[int, Row]]:
    """Yield the runs in the order in which they are useful: all networks with the first seed, then with the next."""
    for seed in range(seeds):
        for row in rows:
            if seed < FEWER.get(row.name, seeds):
                yield seed, row


def record(folder: Path, seeds: int = SEEDS) -> list[str]:
    """Write what is finished into the file of results, and return what is missing."""
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(RESULT.parent):
        runs, times = read_all(folder)
        lacking = missing(runs, times, seeds)
        if runs:
            summary, differences = summarize_runs(runs, times.get(TRAINING), times.get(DEPLOYED))
            details = {
                "runs": [run.to_dict() for run in runs],
                TRAINING: times.get(TRAINING),
                DEPLOYED: times.get(DEPLOYED),
                "differences": [one._asdict() for one in differences],
                "missing": lacking,
            }
            n = min((int(summary[f"{run.name}_seeds"]) for run in runs if not run.name.endswith(SAME_TIME)), default=1)
            record_result(RESULT, summary=summary, details=details, command=f"{SCRIPT} table", n=n)
    return lacking


def train(rows: Sequence[Row], given: argparse.Namespace) -> None:
    """Train all rows that are not finished and that no other process trains; record each when it ends."""
    if given.workers > 1:
        in_parallel(given.workers)
        return
    runs = HeldRuns(given.folder, RESULT, f"{SCRIPT} {given.command}")
    runs.train(to_train(rows, given, runs), lambda: record(given.folder, given.seeds))


def to_train(rows: Sequence[Row], given: argparse.Namespace, runs: HeldRuns) -> Iterator[tuple[Contestant, int]]:
    """Yield the runs of rows; of those with equal training time the finished ones keep the epochs they had."""
    changes = [f"precision={given.precision}"] if given.precision else []
    for seed, row in in_order(rows, given.seeds):
        same_time = row.name.endswith(SAME_TIME)
        if not (same_time and any((run.name, run.seed) == (row.name, seed) for run in runs.finished())):
            yield row.contestant(changes), seed


def speed(given: argparse.Namespace, names: Sequence[str] = NETWORKS) -> None:
    """Time training steps and deployed networks, interleaved; a part that is measured already is kept."""
    torch.set_num_threads(1)  # as each run has
    _, times = read_all(given.folder)
    circumstances = {"date": today(), "hardware": hardware(), "versions": versions(("onnxruntime",))}
    if given.again or TRAINING not in times:
        changes = [f"precision={given.precision}"] if given.precision else []
        recipes = {name: recipe_of(name, changes) for name in names}
        timed = time_steps(recipes, dict.fromkeys(names, recipe_input()[1]), given.rounds, classes=CLASSES)
        found = {name: one._asdict() for name, one in timed.items()}
        write_row(given.folder / "times", TRAINING, {"networks": found, "threads": 1, **circumstances})
        for name, one in timed.items():
            print(f"{name}: {min(one.seconds):.4f} s a step, {one.macs / 1e6:.1f} MMAC; {one.shares}", flush=True)
    if given.again or DEPLOYED not in times:
        target = TARGETS.get("onnxruntime")
        setting = EngineSettings(target, recipe_input(), rounds=given.rounds, search_seconds=given.search_seconds)
        models = {name: build_network(name) for name in names}
        settings = dict.fromkeys(names, setting)
        found = deployed_times(models, settings, given.folder / "builds", lambda what: print(what, flush=True))
        write_row(given.folder / "times", DEPLOYED, {"networks": found, **setting.about, **circumstances})
        for name, row in found.items():
            print(f"{name}: {row['milliseconds']:.3f} ms", flush=True)


def recipe_input() -> tuple[int, int, int]:
    """Return the channels and the size of the images of the recipe."""
    side = recipe_of(DENSE).model.options["input_size"]
    return (3, side, side)


def build_network(name: str) -> torch.nn.Module:
    """Return a network as the recipe builds it, not trained: times do not depend on weights."""
    torch.manual_seed(0)
    model = recipe_of(name).model
    return create_model(model.name, **{"num_classes": CLASSES, **model.options}).eval()


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="The paper's table of VGG networks on 100 classes of photographs.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where runs and their rows are stored")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("study", help="short runs of the dense network on held-out training images")
    one.add_argument("--lr", type=float, action="append", help="a learning rate; may be repeated")
    one.add_argument("--epochs", type=int, action="append", help="may be repeated")
    one.add_argument("--augmentation", choices=AUGMENTATIONS, action="append", help="may be repeated")
    one.add_argument("--seeds", type=int, default=1)
    for name, seeds, what in (
        ("table", SEEDS, "train all networks by the recipe"),
        ("same-time", 1, "train them for the time of the dense network"),
        ("speed", 0, "time training steps and deployed networks"),
    ):
        one = commands.add_parser(name, help=what)
        one.add_argument("--precision", choices=("bf16", "fp32"), help="left out: bf16 where the processor has it")
        if seeds:
            one.add_argument("--only", action="append", choices=NETWORKS, help="a network; may be repeated")
            one.add_argument("--seeds", type=int, default=seeds, help="how many, counted from 0")
            one.add_argument("--workers", type=int, default=1, help="runs at once, with one thread each")
        else:
            one.add_argument("--rounds", type=int, default=9)
            one.add_argument("--search-seconds", type=float, default=60.0, help="for the fastest form of each network")
            one.add_argument("--again", action="store_true", help="measure what is measured already")
    commands.add_parser("record", help="write the summary of what is finished")
    return parser.parse_args()


def run(given: argparse.Namespace) -> None:
    """Run one command."""
    if given.command == "study":
        study(given)
    elif given.command == "table":
        train(table_rows(given.only or ()), given)
    elif given.command == "same-time":
        steps = step_seconds(read_all(given.folder)[1].get(TRAINING))
        if not steps:
            raise SystemExit(f"no training steps are measured yet; run first: {SCRIPT} speed")
        train(same_time_rows(steps, given.only or ()), given)
    elif given.command == "speed":
        speed(given)
    if given.command != "study":
        lacking = record(given.folder)
        print(f"missing: {'; '.join(lacking)}" if lacking else "complete", flush=True)


def main() -> None:
    """Run one command; where a signal stops it, report how to resume."""
    run_until_interrupted(lambda: run(read_arguments()))


if __name__ == "__main__":
    main()
