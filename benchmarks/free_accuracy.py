"""Accuracy at no deployed cost, on trial: what changes the training alone, of low-rank networks and of a narrow one.

    export CRUCIFORM_DATA=DIR
    python benchmarks/free_accuracy.py train --workers 2      all trials and seeds
    python benchmarks/free_accuracy.py train --only muon
    python benchmarks/free_accuracy.py speed                  what each adds to a training step; idle machine
    python benchmarks/free_accuracy.py record                 the summary again; prints what is missing

All write results/free-accuracy.json. The trials, on CIFAR-10 with 5,000 training images held out, by which everything
is measured; the test set is not read:

- ``muon``: orthogonal steps of kernels (``trial_optimizers``). Its learning rate is chosen on seed 0, which does not
  count after;
- ``reparam``: kernels that are sums and products in training (``trial_layers``);
- ``product_decay``: weight decay of what the stages of a join make together;
- ``longer``: an epoch more, for what training time is worth. Gains are given at equal training time: what a trial's
  steps take longer is counted against it by this.

A trial becomes a part of the library where it gains 0.2 points or more; what does not is recorded here alone.
"""

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import trial_optimizers  # noqa: F401  (registers optimizers)
from finished_rows import FinishedRows, kept_folder
from front_networks import FULL_NETWORK, SIDE, recipe_of
from front_runs import CROSS, NARROW
from held_runs import RUNS, HeldRuns, in_parallel, run_until_interrupted
from mean_differences import standard_error
from step_times import time_steps
from trial_layers import NAME as SUMMED

from cruciform.files import alone_in
from cruciform.measure.record import hardware, record_result, today
from cruciform.training.experiments.race import Contestant, Finish, by_contestant, summarize
from cruciform.training.recipe.recipe import Recipe

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "results" / "free-accuracy.json"
FOLDER = kept_folder("free-accuracy")
SCRIPT = "python benchmarks/free_accuracy.py"
STEPS = "steps"

EPOCHS, HELD_OUT = 5, 5000
SEEDS = (1, 2, 3)
CHOICE_SEED = 0
KERNEL_LRS = (0.08, 0.16, 0.32)
PLAIN, LONGER, MUON = "plain", "longer", "muon"
JOINED = ("model.options.schemes=[['lr-join', 'lr-join'], ['lr-join', 'lr-join'], ['lr-join', 'lr-join']]",)
NETWORKS = {"cross": (CROSS, ()), "dense": (NARROW, ()), "join": (FULL_NETWORK, JOINED)}
"""What is trained: with half of the MACs a cross and the narrow dense network, and layers that are products."""
TRIALS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    PLAIN: ((), ("cross", "dense", "join")),
    LONGER: ((f"epochs={EPOCHS + 1}", f"evaluation.epochs={EPOCHS + 1}"), ("cross", "dense", "join")),
    MUON: (("optimizer.kind=muon",), ("cross", "dense")),
    "reparam": ((f"model.name={SUMMED}",), ("cross", "dense")),
    "product_decay": (("optimizer.kind=sgd-product-decay",), ("join",)),
}
"""What each changes of the recipe, and the networks that it is tried on."""


@dataclass(frozen=True)
class TrialRun:
    """One run.

    Attributes:
        network: What is trained.
        trial: What is tried.
        seed: Of the run.
        kernel_lr: Where the trial has one.
    """

    network: str
    trial: str
    seed: int
    kernel_lr: float | None = None

    @property
    def name(self) -> str:
        """The name that it shares with the same run of other seeds."""
        return f"{self.network}_{self.trial}" + (f"_lr={self.kernel_lr:g}" if self.kernel_lr else "")

    def recipe(self) -> Recipe:
        """Return its recipe, evaluated once, at the end, on held-out training images."""
        network, own = NETWORKS[self.network]
        changes = [f"epochs={EPOCHS}", f"evaluation.epochs={EPOCHS}", "checkpoint.keep=1", f"data.holdout={HELD_OUT}"]
        changes += [*own, *TRIALS[self.trial][0]]
        changes += [f"optimizer.kernel_lr={self.kernel_lr}"] if self.kernel_lr else []
        return recipe_of(network, "cifar10", changes)


def runs_in_order(finished: Sequence[Finish], only: Sequence[str] = ()) -> Iterator[TrialRun]:
    """Yield the runs in the order in which they are useful; those with a chosen learning rate once it is known.

    Args:
        finished: What is known already.
        only: Trials; all where empty. What they are compared with is always trained.
    """
    wanted = [trial for trial in TRIALS if not only or trial in only or trial in (PLAIN, LONGER)]
    if MUON in wanted:
        for network in TRIALS[MUON][1]:
            yield from (TrialRun(network, MUON, CHOICE_SEED, lr) for lr in KERNEL_LRS)
    for seed in SEEDS:
        for trial in wanted:
            for network in TRIALS[trial][1]:
                lr = chosen_lr(network, finished) if trial == MUON else None
                if trial != MUON or lr is not None:
                    yield TrialRun(network, trial, seed, lr)


def chosen_lr(network: str, finished: Sequence[Finish]) -> float | None:
    """Return the learning rate with which Muon has the highest accuracy on the seed of the choice; None if unknown."""
    accuracies = {(run.name, run.seed): accuracy_of(run) for run in finished}
    keys = {lr: (TrialRun(network, MUON, CHOICE_SEED, lr).name, CHOICE_SEED) for lr in KERNEL_LRS}
    if not all(key in accuracies for key in keys.values()):
        return None
    return max(keys, key=lambda lr: accuracies[keys[lr]])


def accuracy_of(run: Finish) -> float:
    """Return the accuracy by which trials are compared: with flip TTA."""
    return run.top1 if run.top1_flip_tta is None else run.top1_flip_tta


def summarize_trials(finished: Sequence[Finish], steps: Mapping[str, Any]) -> dict[str, float]:
    """Return accuracies, what the steps cost, and gains at equal training time.

    Args:
        finished: The runs that are finished.
        steps: The time of a training step of each trial.
    """
    groups = by_contestant([run for run in finished if run.seed != CHOICE_SEED])
    found = {name: summarize(group) for name, group in groups.items()}
    summary: dict[str, float] = {}
    for trial, (_, networks) in TRIALS.items():
        for network in networks:
            lr = chosen_lr(network, finished) if trial == MUON else None
            own, plain, longer = (
                found.get(TrialRun(network, one, 1, lr if one == trial else None).name)
                for one in (trial, PLAIN, LONGER)
            )
            key = f"{network}_{trial}"
            if not own:
                continue
            summary |= {f"{key}_{what}": own[what] for what in ("accuracy", "accuracy_std", "seeds") if what in own}
            summary |= {f"{key}_kernel_lr": lr} if lr else {}
            cost = step_cost(key, network, steps)
            if cost is not None:
                summary[f"{key}_step_cost"] = round(cost, 3)
            if trial in (PLAIN, LONGER) or not plain or not longer or cost is None:
                continue
            worth = (longer["accuracy"] - plain["accuracy"]) * EPOCHS * (cost - 1)
            summary[f"{key}_gain"] = round(own["accuracy"] - plain["accuracy"] - worth, 3)
            error = standard_error(own, plain)
            if error is not None:
                summary[f"{key}_gain_standard_error"] = round(error, 3)
    return summary


def step_cost(key: str, network: str, steps: Mapping[str, Any]) -> float | None:
    """Return the time of a step of a trial, as a multiple of that of the plain recipe; None where it is not measured.

    The median of the ratios of each round: what disturbs the machine disturbs both.
    """
    own, plain = steps.get(key), steps.get(f"{network}_{PLAIN}")
    if own is None or plain is None:
        return None
    return statistics.median(a / b for a, b in zip(own["seconds"], plain["seconds"], strict=True))


def speed(rounds: int, kept: FinishedRows) -> None:
    """Time the steps of each network's trials, interleaved, on one thread."""
    torch.set_num_threads(1)
    for network in NETWORKS:
        trials = [trial for trial, (_, networks) in TRIALS.items() if network in networks and trial != LONGER]
        recipes = {f"{network}_{trial}": TrialRun(network, trial, 1).recipe() for trial in trials}
        found = time_steps(recipes, dict.fromkeys(recipes, SIDE), rounds)
        for name, timed in found.items():
            kept.write(name, {"seconds": timed.seconds, "date": today(), "hardware": hardware()})
            print(f"{name}: {min(timed.seconds):.3f} s a step", flush=True)


def record(held: HeldRuns, kept: FinishedRows) -> list[str]:
    """Write what is finished into the file of results, and return what is missing."""
    with alone_in(RESULT.parent):
        finished, steps = held.finished(), kept.read()
        known = {(run.name, run.seed) for run in finished}
        wanted = [run for run in runs_in_order(finished) if (run.name, run.seed) not in known]
        lacking = [f"{run.name} seed {run.seed}" for run in wanted]
        if finished or steps:
            summary = summarize_trials(finished, steps)
            details = {RUNS: [run.to_dict() for run in finished], STEPS: steps, "missing": lacking}
            n = min((int(value) for key, value in summary.items() if key.endswith("_seeds")), default=0)
            record_result(RESULT, summary=summary, details=details, command=f"{SCRIPT} train", n=n)
    return lacking


def train(given: argparse.Namespace, held: HeldRuns, kept: FinishedRows) -> None:
    """Train all runs that are not finished and that no other process trains; those of a choice before the others."""
    if given.workers > 1:
        in_parallel(given.workers)
        return
    for _ in range(2):  # the second time with what the first has chosen
        runs = runs_in_order(held.finished(), given.only or ())
        held.train(((Contestant(run.name, run.recipe()), run.seed) for run in runs), partial(record, held, kept))


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Trials of what costs nothing once a network is deployed.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where runs and their rows are stored")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train", help="train all trials")
    one.add_argument("--only", action="append", choices=TRIALS, help="may be repeated; plain ones are always trained")
    one.add_argument("--workers", type=int, default=1, help="runs at once, with one thread each")
    other = commands.add_parser("speed", help="time training steps, on an idle machine")
    other.add_argument("--rounds", type=int, default=9)
    commands.add_parser("record", help="write the summary of what is finished")
    return parser.parse_args()


def run(given: argparse.Namespace) -> None:
    """Run one command."""
    held = HeldRuns(given.folder, RESULT, f"{SCRIPT} {given.command}")
    kept = FinishedRows(given.folder / STEPS, RESULT, STEPS)
    if given.command == "train":
        train(given, held, kept)
    elif given.command == "speed":
        speed(given.rounds, kept)
    lacking = record(held, kept)
    print(f"{len(lacking)} missing, first: {'; '.join(lacking[:5])}" if lacking else "complete", flush=True)


def main() -> None:
    """Run one command; where a signal stops it, report how to resume."""
    run_until_interrupted(lambda: run(read_arguments()))


if __name__ == "__main__":
    main()
