"""The runs of ``front.py``: which networks, on which data sets, with how many seeds, and what comes first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from front_networks import FULL_NETWORK, FrontNetwork, front_networks, recipe_of, warm_networks

from cruciform.training.experiments.race import Contestant

EPOCHS = {"tinyimagenet100": 6, "cifar10": 5}
"""Of every run on a data set; the first data set is trained first."""
CLASSES = {"tinyimagenet100": 100, "cifar10": 10}
HALF = 0.5
NARROW, CROSS, CROSS_WARM = (
    FrontNetwork("dense", HALF),
    FrontNetwork("cross", HALF),
    FrontNetwork("cross", HALF, warm=True),
)
HEADLINE = (NARROW, CROSS, CROSS_WARM)
"""The networks that conclusions rest on first, with half of the dense MACs."""
SEEDS, HEADLINE_SEEDS = 3, 5


@dataclass(frozen=True)
class FrontRun:
    """One run.

    Attributes:
        data_set: What it is trained on.
        network: What is trained.
        seed: Of the run.
    """

    data_set: str
    network: FrontNetwork
    seed: int

    @property
    def name(self) -> str:
        """The name that it shares with the same run of other seeds."""
        return run_name(self.data_set, self.network)

    def contestant(self, *, epochs: int | None = None, changes: Sequence[str] = ()) -> Contestant:
        """Return its recipe, evaluated once, at the end.

        Args:
            epochs: Of the training; those of its data set where left out.
            changes: Further changes of the recipe.
        """
        count = epochs or EPOCHS[self.data_set]
        own = [f"epochs={count}", f"evaluation.epochs={count}", "checkpoint.keep=1"]
        return Contestant(self.name, recipe_of(self.network, self.data_set, [*own, *changes]))


def run_name(data_set: str, network: FrontNetwork) -> str:
    """Return the name of a network's runs on a data set."""
    return f"{data_set}_{network.name}"


def all_networks() -> list[FrontNetwork]:
    """Return all networks, family by family: the dense ones first, then the others, then the warm-started ones."""
    return [FULL_NETWORK, *front_networks(), *warm_networks()]


def lines() -> dict[str, list[FrontNetwork]]:
    """Return the networks of each line, the largest first."""
    found: dict[str, list[FrontNetwork]] = {}
    for network in all_networks():
        found.setdefault(network.line, []).append(network)
    return found


def networks_in_order() -> list[FrontNetwork]:
    """Return the networks in the order in which they are useful.

    After the headline come the larger dense networks, between which a low-rank one is compared at equal time, then what
    has half of the MACs, then the rest.
    """
    larger = [network for network in reversed(lines()["dense"]) if network.fraction > HALF]
    half = [network for network in all_networks() if network.fraction == HALF]
    return list(dict.fromkeys((*HEADLINE, *larger, *half, *all_networks())))


def runs_in_order(
    data_sets: Sequence[str] = tuple(EPOCHS), only: Sequence[str] = (), seeds: int | None = None
) -> Iterator[FrontRun]:
    """Yield the runs in the order in which they are useful: data set by data set, seed by seed.

    Args:
        data_sets: What to train on.
        only: Lines of networks; all where empty.
        seeds: How many of each network; ``SEEDS``, and ``HEADLINE_SEEDS`` of the headline, where left out.
    """
    for data_set in data_sets:
        for seed in range(seeds or HEADLINE_SEEDS):
            for network in networks_in_order():
                most = seeds or (HEADLINE_SEEDS if network in HEADLINE else SEEDS)
                if seed < most and (not only or network.line in only):
                    yield FrontRun(data_set, network, seed)
