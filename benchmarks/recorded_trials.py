"""Trials of a study: short runs that are all recorded in one file, each when it ends, and never run twice."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from cruciform.cli.shared.run_progress import make_observer
from cruciform.training.experiments.race import Contestant, run_race
from cruciform.training.experiments.race_result import add_finish, read_finishes, record_race


def run_trials(contestants: Sequence[Contestant], seeds: Iterable[int], runs: Path, result: Path, command: str) -> None:
    """Run the trials that a file of results does not have yet.

    Args:
        contestants: The trials.
        seeds: Of each.
        runs: Where runs are stored; what is interrupted there is resumed.
        result: The file; ``command`` up to its first option is what it names as its own.
        command: The command line, which every run records.
    """
    script = " ".join(command.split()[:2])
    finishes = run_race(
        contestants, list(seeds), runs, finished=read_finishes(result), observe=make_observer, command=command
    )
    for finish in finishes:
        add_finish(finish, result, lambda runs: record_race(runs, result, command=script))
        flipped = "" if finish.top1_flip_tta is None else f", {finish.top1_flip_tta:.2%} with flip TTA"
        print(
            f"{finish.name} seed {finish.seed}: {finish.macs / 1e6:.1f} MMAC, {finish.top1:.2%}{flipped}, "
            f"{finish.images_per_second:.0f} images/s",
            flush=True,
        )
