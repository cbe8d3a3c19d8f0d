"""The published CIFAR-10 runs: the paper's three networks, and the modern dense network against its low-rank relative.

Evaluated on the test set. What was chosen, was chosen on held-out training images (``cifar10_study.py``), but not
everything was searched: ``TRIED`` lists the learning rates that were tried for the paper's networks. Each run is
recorded when it ends, and not run again; runs that were interrupted go on. Two of these may run at once, for different
networks or seeds. Other work may go on beside them: accuracies do not depend on it, and times are not taken from here.
They are epochs × images ÷ the speed of a quiet machine (``training_speed.py``, all networks in turns).

    python benchmarks/cifar10.py nin --seeds 2 --precision fp32 --workers 2
                                                                       the paper's question; writes results/cifar10.json
    python benchmarks/cifar10.py nin-sgd --seeds 2 --precision fp32 --workers 2       the same, by the paper's optimizer
    python benchmarks/cifar10.py nin-norm --seeds 2                    the same with batch norm, into nin-norm.json
    python benchmarks/cifar10.py fast --seeds 5 --precision fp32       the race, into the same file
    python benchmarks/cifar10.py fast --seeds 5 --only cifar_fast --precision fp32    one of its networks
    python benchmarks/cifar10.py fast --first 3 --seeds 5 --precision fp32            its seeds 3 and 4

A difference of two networks is that of their means over the seeds. Its ± is the standard deviation of the difference
between a single run of each, √(s₁² + s₂²) of their standard deviations over the seeds (n − 1); it is not the standard
error of the mean difference, √(s₁²/n₁ + s₂²/n₂), which is smaller.

The runs that are recorded are in 32 bits, for a processor that only emulates bfloat16. A file holds runs of one recipe:
delete it to begin anew in bfloat16, the default.

Batch norm takes its statistics from one process, so the suite with it trains in one: start it twice instead, each for
other networks (``--only``), with OMP_NUM_THREADS=1.
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from mean_differences import standard_error
from quiet_speeds import at_quiet_speed

from cruciform.cli.shared.run_progress import make_observer
from cruciform.measure.record import record_result
from cruciform.plot.race import draw_race
from cruciform.training.backends.backend import Processes
from cruciform.training.experiments.race import (
    Contestant,
    Finish,
    by_contestant,
    curves,
    run_race,
    summarize,
)
from cruciform.training.experiments.race_result import add_finish, read_finishes
from cruciform.training.recipe.cookbook import load_recipe

ROOT = Path(__file__).parents[1]
RESULT, PICTURE = ROOT / "results" / "cifar10.json", ROOT / "docs" / "cifar10.png"
NORMED = "nin-norm"
RESULTS = {NORMED: ROOT / "results" / "nin-norm.json"}
"""Where the suites are recorded that have a file of their own."""

DENSE, LOW_RANK = "cifar_fast", "cifar_fast_cross"
# One schedule for all three: the recipe's own falls over 307 epochs. On held-out images AdamW learns in one epoch what
# SGD with its gradient clipped learns in three.
NIN = ["epochs=20", 'schedule={kind = "one-cycle", start_factor = 0.2, pct_start = 0.2, end_factor = 0.0}']
SGD, ADAMW = "optimizer.lr=0.1", 'optimizer={kind = "adamw", lr = 0.002}'
# The learning rates that results/cifar10-study.json has trials of, one seed each, over one to three epochs. AdamW was
# tried at one rate for nin, and nin_c3_lr was better at another than that, which both are run with: neither is tuned.
TRIED: dict[tuple[str, str], tuple[float, ...]] = {
    ("nin", "sgd"): (0.05, 0.1),
    ("nin", "adamw"): (0.002,),
    ("nin_c3_lr", "sgd"): (0.05, 0.1, 0.4),
    ("nin_c3_lr", "adamw"): (0.001, 0.002, 0.004),
}
PAPERS = ("nin", "nin_c3", "nin_c3_lr")
SUITES: dict[str, dict[str, tuple[str, list[str]]]] = {
    "nin": {name: (f"{name}_cifar10", [*NIN, ADAMW]) for name in PAPERS},
    "nin-sgd": {f"{name}_sgd": (f"{name}_cifar10", [*NIN, SGD]) for name in PAPERS},
    NORMED: {f"{name}_norm": (f"{name}_cifar10", [*NIN, ADAMW, "model.options.norm=batch"]) for name in PAPERS},
    "fast": {DENSE: (f"{DENSE}_cifar10", ["epochs=10"]), LOW_RANK: (f"{LOW_RANK}_cifar10", ["epochs=13"])},
}
# A dense network, its low-rank relative, and what the summary calls the ratio of their times and the points between.
COMPARED = (
    (DENSE, LOW_RANK, "train_time_ratio", "lowrank_behind"),
    ("nin", "nin_c3_lr", "nin_time_ratio", "nin_c3_lr_behind"),
    ("nin_sgd", "nin_c3_lr_sgd", "nin_time_ratio_sgd", "nin_c3_lr_behind_sgd"),
    ("nin_norm", "nin_c3_lr_norm", "nin_time_ratio_norm", "nin_c3_lr_behind_norm"),
)


def compare(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Returns the ratio of times and the difference in points of all pairs that were trained, with its spread.

    Args:
        found: What ``summarize`` says of each network.
    """
    summary: dict[str, float] = {}
    for first, second, ratio, behind in COMPARED:
        if first not in found or second not in found:
            continue
        dense, low_rank = found[first], found[second]
        summary[ratio] = round(low_rank["seconds"] / dense["seconds"], 3)
        summary[behind] = round(dense["accuracy"] - low_rank["accuracy"], 3)
        error = standard_error(dense, low_rank)
        if error is not None:
            # Of the difference between a single run of each, and of the mean difference.
            spread = math.hypot(dense["accuracy_std"], low_rank["accuracy_std"])
            summary |= {f"{behind}_std": round(spread, 3), f"{behind}_standard_error": round(error, 3)}
    return summary


def comparisons(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Returns a sentence for each pair that was trained: the difference, what its ± is, and over how many seeds."""
    summary, lines = compare(found), []
    for first, second, ratio, behind in COMPARED:
        if behind not in summary:
            continue
        dense, low_rank = found[first], found[second]
        spread, note = "", ""
        if f"{behind}_std" in summary:
            spread = f" ± {summary[f'{behind}_std']:.2f}"
            note = (
                " (±: standard deviation of the difference between one run of each; standard error of the mean "
                f"difference: {summary[f'{behind}_standard_error']:.2f})"
            )
        lines.append(
            f"{second} is {summary[behind]:.2f}{spread} points behind {first}, in {summary[ratio]:.2f} of the time, "
            f"over {low_rank['seeds']:.0f} and {dense['seeds']:.0f} seeds{note}"
        )
    return lines


def record(finishes: Sequence[Finish], command: str, path: Path = RESULT) -> None:
    """Writes all runs as they were, what the texts quote, and the command that added the last of them."""
    groups = by_contestant([at_quiet_speed(finish) for finish in finishes])
    found = {name: summarize(group) for name, group in groups.items()}
    summary: dict[str, float] = {}
    for name, figures in found.items():
        short = {DENSE: "dense", LOW_RANK: "lowrank"}.get(name, name)
        summary |= {f"{short}_{key}": value for key, value in figures.items()}
    if DENSE in found and LOW_RANK in found:
        draw_race(curves([*groups[DENSE], *groups[LOW_RANK]]), PICTURE)
    summary |= compare(found)
    record_result(
        path,
        summary=summary,
        details=[finish.to_dict() for finish in finishes],
        command=command,
        n=min(len(group) for group in groups.values()),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--seeds", type=int, default=2, help="how many, counted from 0")
    parser.add_argument("--first", type=int, default=0, help="the first seed to run; the ones before it are left out")
    parser.add_argument("--only", action="append", help="a network; may be repeated")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--workers", type=int, default=1, help="processes of each run")
    parser.add_argument("--runs", type=Path, default=Path("runs/cifar10"))
    given = parser.parse_args()
    if given.suite == NORMED and given.workers > 1:
        parser.error(f"{NORMED} has batch norm, which takes its statistics from one process: leave out --workers")
    path = RESULTS.get(given.suite, RESULT)
    contestants = [
        Contestant(name, load_recipe(recipe, [*changes, f"precision={given.precision}"]))
        for name, (recipe, changes) in SUITES[given.suite].items()
        if not given.only or name in given.only
    ]
    options = [
        *([f"--first {given.first}"] if given.first else ()),
        f"--seeds {given.seeds}",
        f"--precision {given.precision}",
        *(f"--only {name}" for name in given.only or ()),
        *([f"--workers {given.workers}"] if given.workers > 1 else ()),
    ]
    command = " ".join(["python benchmarks/cifar10.py", given.suite, *options])
    known = read_finishes(path)
    for finish in run_race(
        contestants,
        range(given.first, given.seeds),
        given.runs,
        finished=known,
        observe=make_observer,
        processes=Processes("local" if given.workers == 1 else "ddp", given.workers),
        command=command,
    ):
        add_finish(finish, path, lambda runs: record(runs, command, path))
        print(f"{finish.name} seed {finish.seed}: {finish.top1:.2%}, {finish.seconds:.0f} s", flush=True)
    groups = by_contestant([at_quiet_speed(finish) for finish in read_finishes(path)])
    print(*comparisons({name: summarize(group) for name, group in groups.items()}), sep="\n")


if __name__ == "__main__":
    main()
