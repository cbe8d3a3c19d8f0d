"""``cruciform.budget``: a scheme for every layer, within a budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from cruciform.budgets.budget_result import BudgetResult
    from cruciform.budgets.units.cost_unit import Limit
    from cruciform.networks.open_network import OpenedNetwork


@dataclass(frozen=True)
class BudgetOptions:
    """What ``budget`` chooses from, and how it measures.

    Attributes:
        candidates: Schemes to choose from, besides the dense layer; empty: all registered schemes and a few more.
        importances: How much layers count, by name pattern: ``{"layer1.*": 3}``; 1 where none matches.
        protect: Name patterns of layers to keep dense.
        trained: Whether to value plans on the network's own weights, and fit the new layers to these. None: where the
            network is known to be trained, as that of a run.
        threads: Threads of the engine.
        rounds: How often candidates are timed, interleaved; the shortest time counts.
        on_progress: Called with what is being measured.
    """

    candidates: Sequence[str] = ()
    importances: Mapping[str, float] = field(default_factory=dict)
    protect: Sequence[str] = ()
    trained: bool | None = None
    threads: int = 1
    rounds: int = 7
    on_progress: Callable[[str], None] | None = None


def budget(
    model: "nn.Module | OpenedNetwork | str | Path",
    budget: "str | Mapping[str, str | Limit]",
    *,
    target: str = "onnxruntime",
    batch: int = 1,
    weights: str | Path | None = None,
    input_size: Sequence[int] | None = None,
    options: BudgetOptions | None = None,
) -> "BudgetResult":
    """Choose a scheme for every layer from measured times, and convert the network.

    The choice is the optimum for the measured costs. Times are kept in the cache folder, so that a second call is fast.

    Args:
        model: A dense network: an ``nn.Module``, a reference (``timm:resnet50``, ``package.module:function``, a run, a
            model directory), or what ``open_network`` returns.
        budget: The time of a batch, as ``"60%"`` of the dense network's or ``"12ms"``; or several limits by cost unit:
            ``{"time": "60%", "macs": "500M", "params": "50%", "bytes": "8MB"}``.
        target: The engine, by its name in ``cruciform.deployment.targets``.
        batch: The batch size.
        weights: A .safetensors file with trained weights, for a network that is built by name or function.
        input_size: Channels and spatial size of one image; left out: the network's usual one.
        options: Candidates, importances, protected layers, threads, rounds, progress.

    Raises:
        BudgetError: The budget can't be met.
    """
    from cruciform.budgets.budget_plan import plan_budget
    from cruciform.budgets.budget_result import BudgetResult
    from cruciform.budgets.network_time import DENSE_NETWORK, time_network
    from cruciform.budgets.survey import Valuation, list_candidates
    from cruciform.budgets.units.cost_unit import read_limits
    from cruciform.conversion.convert import FIT, convert
    from cruciform.data.transforms.whitening import cache_folder
    from cruciform.deployment.search.build import EngineSettings
    from cruciform.deployment.search.layer_forms import refuse_converted
    from cruciform.deployment.targets.target import TARGETS
    from cruciform.networks.open_network import resolve_network

    options = options or BudgetOptions()
    on_progress = options.on_progress or (lambda what: None)
    limits = read_limits({"time": budget} if isinstance(budget, str) else budget)
    engine = TARGETS.get(target)
    opened = resolve_network(model, weights=weights, input_size=None if input_size is None else tuple(input_size))
    refuse_converted(opened.model, opened.reference)
    size, dense = opened.needed_input_size, opened.model
    trained = bool(opened.trained) if options.trained is None else options.trained
    valuation = Valuation(
        tuple(options.candidates) or list_candidates(), dict(options.importances), tuple(options.protect), trained
    )
    setting = EngineSettings(engine, size, batch=batch, threads=options.threads, rounds=options.rounds)
    plan = plan_budget(dense, setting, limits, cache_folder() / "costs", valuation=valuation, on_progress=on_progress)
    conversion = convert(dense, plan.mapping or "full", init=FIT if trained else "auto", input_size=size)
    on_progress("the converted network beside the dense one")
    times = time_network({DENSE_NETWORK: (dense, {}), "chosen": (conversion.model, plan.forms)}, setting)
    about = {"network": opened.reference, **setting.about}
    seconds, dense_seconds = times["chosen"].best, times[DENSE_NETWORK].best
    return BudgetResult(plan, conversion, seconds, dense_seconds, about, opened.base, opened.interface)
