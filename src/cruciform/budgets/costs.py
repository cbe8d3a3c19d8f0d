"""Measure what every plan costs a layer in the engine, and cache it.

A layer is timed between two pointwise convolutions, with its activation and the pooling after it: so it gets its input
in the memory format that the engine prefers, and its concatenation has a reader. All candidates are timed interleaved
with the dense layer; only the **difference** counts, so that the common parts cancel:

    time of a network ≈ time of the dense network + Σ over layers (time of its plan − time of the dense layer)

A yardstick is timed beside them, for sums of times of different runs (``yardstick``).

Times are cached in a folder, one file per kind of layer, by hardware, versions, engine, batch size and threads.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torch import nn

from cruciform.budgets.surroundings import Pooling
from cruciform.budgets.yardstick import YARDSTICK, build_yardstick
from cruciform.deployment.search.build import Build, EngineSettings, build_engine, noise
from cruciform.deployment.search.clock import time_engines
from cruciform.deployment.search.layer_forms import Form
from cruciform.errors import DeployError, PlanError
from cruciform.files import read_text, write_text
from cruciform.measure.record import hardware, versions
from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import PLAIN_CONVOLUTIONS
from cruciform.plan import LayerPlan
from cruciform.schemes import DENSE, make_plan
from cruciform.spec import ConvSpec

TIMED_FORMS: tuple[Form, ...] = ("tail", "split")
MAX_POOLING_LAYERS: tuple[Callable[..., nn.Module], ...] = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
READER = 16  # filters of the pointwise convolution after it
FEWEST = 8  # channels; a layer with fewer reads the image itself and has no convolution before it


@dataclass(frozen=True)
class Kind:
    """Layers of equal cost.

    Attributes:
        spec: Their convolution.
        input_size: Channels and spatial size of their input.
        pooling: The pooling after them, if any.
        maps: Inputs per image, more than 1 where frames are folded into the batch.
    """

    spec: ConvSpec
    input_size: tuple[int, ...]
    pooling: Pooling | None = None
    maps: int = 1


@dataclass(frozen=True)
class LayerCost:
    """The cost of a candidate.

    Attributes:
        seconds: The shortest time of the layer and its neighbors.
        form: The equal form that was fastest; empty for the dense layer.
    """

    seconds: float
    form: str


@dataclass(frozen=True)
class CostTable:
    """The costs of a kind of layer.

    Attributes:
        costs: The cost of each scheme that applies, including the dense one.
        problems: Why each of the other schemes does not apply.
        yardstick: What the yardstick took in the same run; None: unknown.
    """

    costs: Mapping[str, LayerCost]
    problems: Mapping[str, str]
    yardstick: float | None = None

    def at(self, yardstick: float | None) -> "CostTable":
        """Return the costs of a run in which the yardstick takes another time; unknown ones change nothing."""
        if yardstick is None or self.yardstick is None:
            return self
        scale = yardstick / self.yardstick
        costs = {name: replace(cost, seconds=cost.seconds * scale) for name, cost in self.costs.items()}
        return CostTable(costs, self.problems, yardstick)


def measure_kind(
    kind: Kind,
    schemes: Sequence[str],
    setting: EngineSettings,
    folder: Path,
    *,
    on_progress: Callable[[str], None] = lambda what: None,
) -> CostTable:
    """Return the cost of each scheme for a kind of layer, measured or from the cache.

    Args:
        kind: The kind of layer.
        schemes: The candidates.
        setting: The engine and batch size.
        folder: The cache.
        on_progress: Called with what is being measured.

    Raises:
        DeployError: Not even the dense layer runs in this engine.
    """
    path = folder / f"{_key(kind, setting)}.json"
    known, problems, yardstick = _read(path, setting.rounds)
    wanted = tuple(dict.fromkeys((DENSE, *schemes)))
    missing = [scheme for scheme in wanted if scheme not in known and scheme not in problems]
    if missing:
        # The dense layer is timed again each time: times of different runs can't be compared.
        found = _measure(kind, [DENSE, *(scheme for scheme in missing if scheme != DENSE)], setting, on_progress)
        drift = known[DENSE].seconds / found.costs[DENSE].seconds if DENSE in known else 1.0
        known |= {name: replace(cost, seconds=cost.seconds * drift) for name, cost in found.costs.items()}
        problems |= found.problems
        yardstick = yardstick or found.yardstick
        folder.mkdir(parents=True, exist_ok=True)
        costs = {name: asdict(cost) for name, cost in known.items()}
        kept = {
            "kind": describe(kind),
            "rounds": setting.rounds,
            "yardstick": yardstick,
            "costs": costs,
            "problems": problems,
        }
        write_text(path, json.dumps(kept, indent=1), shared=True)
    return CostTable(
        {scheme: known[scheme] for scheme in wanted if scheme in known},
        {scheme: problems[scheme] for scheme in wanted if scheme in problems},
        yardstick,
    )


def _read(path: Path, rounds: int) -> tuple[dict[str, LayerCost], dict[str, str], float | None]:
    """Read times of at least this many rounds, problems and the yardstick from the cache, if any."""
    try:
        data = json.loads(read_text(path))
        if data["rounds"] >= rounds:
            costs = {name: LayerCost(**cost) for name, cost in data["costs"].items()}
            return costs, dict(data["problems"]), float(data["yardstick"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # then they are measured again
    return {}, {}, None


def _measure(
    kind: Kind, schemes: Sequence[str], setting: EngineSettings, on_progress: Callable[[str], None]
) -> CostTable:
    there = setting.for_times(input_size=kind.input_size, batch=setting.batch * kind.maps)
    problems: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        engines, forms = {}, {}
        for scheme in schemes:
            try:
                plan = make_plan(kind.spec, scheme)
            except PlanError as error:
                problems[scheme] = str(error)
                continue
            network = surrounded(plan, kind.pooling)
            for form in _forms_of(plan):
                name = f"{scheme} {form}"
                on_progress(f"{describe(kind)['convolution']} as {name}")
                build = Build({str(_place(kind.spec)): form} if form else {})  # type: ignore[dict-item]
                try:
                    engines[name] = build_engine(network, build, there, Path(tempfile.mkdtemp(dir=folder)))
                except DeployError as error:
                    if isinstance(error.__cause__, OSError | MemoryError):
                        raise  # a full disk is no property of the layer, and must not be cached
                    problems[scheme] = str(error)  # unless another form of the same plan works
                    continue
                forms[name] = (scheme, form)
        if DENSE in problems:
            raise DeployError(f"{describe(kind)['convolution']} does not run in this engine: {problems[DENSE]}")
        engines[YARDSTICK] = build_yardstick(there, Path(tempfile.mkdtemp(dir=folder)))
        images = noise(there.batch, there.input_size)
        times = time_engines(engines, images, rounds=setting.rounds, threads=setting.threads)
    yardstick = times.pop(YARDSTICK).best
    costs: dict[str, LayerCost] = {}
    for name, timing in times.items():
        scheme, form = forms[name]
        if scheme not in costs or timing.best < costs[scheme].seconds:
            costs[scheme] = LayerCost(timing.best, form)
    return CostTable(costs, {scheme: why for scheme, why in problems.items() if scheme not in costs}, yardstick)


def _forms_of(plan: LayerPlan) -> tuple[str, ...]:
    """Return the forms that differ for a plan: without a concatenation there is one."""
    if plan.is_dense:
        return ("",)
    return TIMED_FORMS if any(len(stage.groups) > 1 for stage in plan.stages) else TIMED_FORMS[:1]


def surrounded(plan: LayerPlan, pooling: Pooling | None = None) -> nn.Sequential:
    """Return a layer with a convolution before it, and ReLU, pooling and one after it."""
    spec = plan.spec
    convolution: Callable[..., nn.Module] = PLAIN_CONVOLUTIONS[spec.rank - 1]
    before = [convolution(spec.in_channels, spec.in_channels, 1), nn.ReLU()] if _place(spec) else []
    behind = [nn.ReLU(), *([MAX_POOLING_LAYERS[spec.rank - 1](*pooling)] if pooling else [])]
    return nn.Sequential(*before, CompositeConv(plan), *behind, convolution(spec.out_channels, READER, 1)).eval()


def _place(spec: ConvSpec) -> int:
    """Return the index of the layer among its neighbors."""
    return 2 if spec.in_channels >= FEWEST and spec.groups == 1 else 0


def describe(kind: Kind) -> dict[str, object]:
    """Describe a kind of layer in words and as data."""
    sizes = "×".join(map(str, kind.spec.kernel))
    words = f"{sizes}, {kind.spec.in_channels} → {kind.spec.out_channels} of {'×'.join(map(str, kind.input_size[1:]))}"
    described: dict[str, object] = {"spec": kind.spec.to_dict(), "input_size": list(kind.input_size)}
    if kind.pooling is not None:
        words += f", pooled {'×'.join(map(str, kind.pooling.kernel))}"
        described["pooling"] = [list(numbers) for numbers in kind.pooling]
    if kind.maps > 1:
        words += f", {kind.maps} per image"
        described["maps"] = kind.maps
    return {"convolution": words, **described}


def _key(kind: Kind, setting: EngineSettings) -> str:
    parts = {
        "kind": describe(kind),
        "target": type(setting.target).__name__,
        "options": {name: str(value) for name, value in vars(setting.target).items() if name not in ("images", "name")},
        "precision": setting.target.precision,
        "batch": setting.batch,
        "threads": setting.threads,
        "hardware": hardware(),
        "versions": versions(setting.target.packages),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
