"""Accuracy against measured time: low-rank networks, and what else would save as many MACs, at three sizes each.

    export CRUCIFORM_DATA=DIR
    python benchmarks/front.py train --workers 2      all networks and seeds, the headline's first
    python benchmarks/front.py train --data-set tinyimagenet100 --only cross --only dense --seeds 1
    python benchmarks/front.py speed                  training steps and deployed networks, timed
    python benchmarks/front.py record                 the summary again; prints what is missing

All write results/front.json; ``python benchmarks/front_picture.py`` draws docs/front.png from it. The networks are
those of ``front_networks.py``: each family at 0.75, 0.5 and 0.33 of the MACs of the dense network, that network itself,
and those of basis filters once more, warm-started: dense for 0.3 of the steps, then low-rank. One recipe trains all,
for 6 epochs on 100 classes of photographs (tinyimagenet100) and 5 on CIFAR-10; nothing is tuned for a network. The
validation set is read once in a run, after its last epoch. Accuracies are with flip TTA; plain ones are recorded too.

Every run is a file of its own when it ends and is not run again; interrupted ones are resumed, and runs of the
committed result count as finished. The same command may run several times at once: each process takes the next run that
no other holds. ``--workers`` starts so many, with one thread each. Accuracies do not depend on other work on the
machine. Times do: ``speed`` needs an idle machine, and keeps each part that is measured. Training seconds are epochs ×
steps × the shortest of some interleaved steps, on one thread, with the fit of a warm start; deployed milliseconds are
those of ONNX Runtime and OpenVINO at batch sizes 1 and 16, one thread, each network in its fastest form.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from finished_rows import FinishedRows, kept_folder
from front_networks import FrontNetwork
from front_points import read_lines
from front_runs import EPOCHS, all_networks, lines, run_name, runs_in_order
from front_summary import compare_with_cross, find_best, find_means, summarize_front
from front_times import EQUAL_TIME, PARTS, TRAINING, Effort, is_measured, milliseconds, time_deployed, time_training
from held_runs import RUNS, HeldRuns, in_parallel, run_until_interrupted

from cruciform.files import alone_in
from cruciform.measure.record import hardware, record_result, today, versions
from cruciform.training.experiments.race import Finish

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "results" / "front.json"
FOLDER = kept_folder("front")
SCRIPT = "python benchmarks/front.py"
TIMES = "times"
PACKAGES = ("onnxruntime", "openvino")


def read_times(folder: Path) -> dict[str, Any]:
    """Return the parts that are measured: those that are recorded, and newer ones of files."""
    return FinishedRows(folder / TIMES, RESULT, TIMES).read()


def read_runs(folder: Path) -> list[Finish]:
    """Return the runs that are finished, in the order of the networks."""
    names = [run_name(data_set, network) for data_set in EPOCHS for network in all_networks()]
    return sorted(HeldRuns(folder, RESULT).finished(), key=lambda run: (names.index(run.name), run.seed))


def missing(runs: Sequence[Finish], times: dict[str, Any]) -> list[str]:
    """Return what is not finished: runs, in the order in which they will be trained, and measured times."""
    known = {(run.name, run.seed) for run in runs}
    lacking = [f"{one.name} seed {one.seed}" for one in runs_in_order() if (one.name, one.seed) not in known]
    return [*lacking, *(f"times: {part}" for part in PARTS if not is_measured(part, times, all_networks()))]


def record(folder: Path) -> list[str]:
    """Write what is finished into the file of results, and return what is missing."""
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(RESULT.parent):
        runs, times = read_runs(folder), read_times(folder)
        lacking = missing(runs, times)
        if runs or times:
            summary = summarize_front(runs, times)
            details = {
                RUNS: [run.to_dict() for run in runs],
                TIMES: times,
                "conclusions": conclude(runs, times),
                "missing": lacking,
            }
            n = min((int(value) for key, value in summary.items() if key.endswith("_seeds")), default=0)
            record_result(
                RESULT, summary=summary, details=details, command=f"{SCRIPT} train", n=n, packages=PACKAGES
            )  # fmt: skip
    return lacking


def conclude(runs: Sequence[Finish], times: dict[str, Any]) -> dict[str, Any]:
    """Return for each data set every comparison at equal time, and which network of ours and which rival are best."""
    found = {}
    for data_set in EPOCHS:
        points = read_lines(data_set, find_means(runs), milliseconds(times.get(EQUAL_TIME)))
        best = find_best(points)
        found[data_set] = {
            "at_equal_time": compare_with_cross(points),
            "best": {"ours": best[0].network.name, "rival": best[1]} if best else {},
        }
    return found


def train(given: argparse.Namespace) -> None:
    """Train all runs that are not finished and that no other process trains; record each when it ends."""
    if given.workers > 1:
        in_parallel(given.workers)
        return
    runs = runs_in_order(given.data_set or tuple(EPOCHS), given.only or (), given.seeds)
    contestants = ((run.contestant(epochs=given.epochs, changes=changes_of(given)), run.seed) for run in runs)
    HeldRuns(given.folder, RESULT, f"{SCRIPT} {given.command}").train(contestants, partial(record, given.folder))


def changes_of(given: argparse.Namespace) -> list[str]:
    """Return the changes of all recipes that the command line asks for."""
    return [f"precision={given.precision}"] if given.precision else []


def speed(given: argparse.Namespace, networks: Sequence[FrontNetwork]) -> None:
    """Time training steps and deployed networks; a part that has the times of all networks is kept.

    Args:
        given: The command line.
        networks: What is timed, the dense network first.
    """
    torch.set_num_threads(1)  # as each run has
    effort, kept = Effort(given.rounds, given.search_seconds), FinishedRows(given.folder / TIMES, RESULT, TIMES)
    for part in given.part or PARTS:
        if is_measured(part, kept.read(), networks) and not given.again:
            continue
        if part == TRAINING:
            found = time_training(networks, effort, changes_of(given))
        else:
            found = time_deployed(part, networks, effort, given.folder / "builds", partial(print, flush=True))
        about = {"date": today(), "hardware": hardware(), "versions": versions(PACKAGES), "rounds": given.rounds}
        kept.write(part, {**found, **about})
        for name, one in found["networks"].items():
            shortest = one["milliseconds"] if "milliseconds" in one else 1e3 * min(one["seconds"])
            print(f"{part}: {name}: {shortest:.3f} ms", flush=True)


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Accuracy against measured time, of low-rank networks and rivals.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where runs and their rows are stored")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train", help="train all networks by the recipe")
    one.add_argument("--data-set", action="append", choices=EPOCHS, help="may be repeated")
    one.add_argument("--only", action="append", choices=lines(), metavar="FAMILY", help=", ".join(lines()))
    one.add_argument("--seeds", type=int, help="how many, counted from 0; left out: 3, of the headline's networks 5")
    one.add_argument("--workers", type=int, default=1, help="runs at once, with one thread each")
    one.add_argument("--epochs", type=int, help=f"left out: {EPOCHS}")
    other = commands.add_parser("speed", help="time training steps and deployed networks, on an idle machine")
    other.add_argument("--part", action="append", choices=PARTS, help="may be repeated")
    other.add_argument("--rounds", type=int, default=9)
    other.add_argument("--search-seconds", type=float, default=60.0, help="for the fastest form of each network")
    other.add_argument("--again", action="store_true", help="measure what is measured already")
    for command in (one, other):
        command.add_argument("--precision", choices=("bf16", "fp32"), help="left out: bf16 where the processor has it")
    commands.add_parser("record", help="write the summary of what is finished")
    return parser.parse_args()


def run(given: argparse.Namespace) -> None:
    """Run one command."""
    if given.command == "train":
        train(given)
    elif given.command == "speed":
        speed(given, all_networks())
    lacking = record(given.folder)
    print(f"{len(lacking)} missing, first: {'; '.join(lacking[:5])}" if lacking else "complete", flush=True)


def main() -> None:
    """Run one command; where a signal stops it, report how to resume."""
    run_until_interrupted(lambda: run(read_arguments()))


if __name__ == "__main__":
    main()
