"""Which form each layer shall have: found by measuring, in the engine itself.

First every kind of layer alone, as it stands in the network (its size of input, an activation behind it); then whole
networks: all layers alike, the fastest form of each, in every way that the engine knows; and from the best of these,
one kind of layer after the other, as long as it pays. The dense network is always among them, where there is an equal
one, so that what is shipped is never slower.
"""

import tempfile
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from cruciform.deploy.build import Build, Setting, build_engine, build_graph, noise, write_engine
from cruciform.deploy.clock import Timing, time_engines
from cruciform.deploy.forms import FORMS, Form, composite_layers, why_not_dense
from cruciform.deploy.target import Engine
from cruciform.errors import DeployError
from cruciform.measure.trace import on_input
from cruciform.measure.undisturbed import in_mode
from cruciform.nn.composite import CompositeConv

GAIN = 0.01  # a change of form must save such a share of the time, or it is noise
KEPT = 4  # engines that may be asked for again
HOPELESS = 1.3  # times as slow alone as the fastest form: not tried in the whole network

Tell = Callable[[str], None]


@dataclass(frozen=True)
class LayerTimes:
    """A layer alone.

    Attributes:
        name: Of the layer.
        plan: What it computes.
        input_size: Of one sample, as the network gives it.
        seconds: The time of each form that can be measured alone; a convolution's readers are not there.
        why_not_dense: Why there is no equal dense kernel; None where there is one.
        kind: A number, the same for layers that are alike: they were timed together.
    """

    name: str
    plan: str
    input_size: tuple[int, ...]
    seconds: Mapping[str, float]
    why_not_dense: str | None
    kind: int = 0

    @property
    def fastest(self) -> Form:
        """The form with the shortest time."""
        return min((form for form in FORMS if form in self.seconds), key=lambda form: self.seconds[form])


@dataclass(frozen=True)
class Choice:
    """What was chosen, and what it was chosen from.

    Attributes:
        build: The form of every layer, and how the network is written.
        timing: Of the network so.
        dense: Of the equal dense network in its fastest way; None where there is none.
        tried: Times of all networks that were tried, by a word for each.
        untried: What there was no patience for, or could not be built, and why.
        layers: The layers alone.
    """

    build: Build
    timing: Timing
    dense: Timing | None
    tried: Mapping[str, float]
    untried: tuple[str, ...]
    layers: tuple[LayerTimes, ...]

    @property
    def pays(self) -> bool:
        """Whether basis filters are faster than the equal dense network here."""
        return self.dense is None or self.timing.best < self.dense.best


def choose_build(model: nn.Module, setting: Setting, *, tell: Tell = lambda what: None) -> Choice:
    """Chooses the fastest build of a network.

    Args:
        model: The network.
        setting: Where it shall run.
        tell: Told what is being measured.
    """
    with in_mode(model, training=False), tempfile.TemporaryDirectory() as folder:
        bench = _Bench(model, setting, Path(folder))
        layers = _time_layers(model, bench, tell)
        dense = Build(dict.fromkeys((times.name for times in layers), "dense"))
        can_be_dense = all(times.why_not_dense is None for times in layers)
        tell("whole networks")
        best = bench.fastest(
            {f"{name}, {way}": Build(forms, way) for name, forms in _mixtures(layers).items() for way in setting.ways()}
        )
        first, best = best, _improve(best, layers, bench, tell)
        if best != first:  # another way may suit what the forms have become
            best = bench.fastest({f"as changed, {way}": replace(best, way=way) for way in setting.ways()})
        if not layers:
            dense = best
        elif can_be_dense:
            dense = bench.fastest({f"dense, {way}": Build(dense.forms, way) for way in setting.ways()})
        tell("the chosen network against the dense one")
        # A network without basis filters is its own dense one: timing it twice would find noise only.
        same = best == dense
        last = bench.time({"chosen": best, **({"dense": dense} if can_be_dense and not same else {})}, setting.rounds)
    reference = last.get("dense", last["chosen"] if same else None)
    if reference is not None and (1 - GAIN) * reference.best <= last["chosen"].best:
        best, last["chosen"] = dense, reference
    return Choice(best, last["chosen"], reference, bench.tried, tuple(bench.untried), layers)


def _mixtures(layers: tuple[LayerTimes, ...]) -> dict[str, dict[str, Form]]:
    """Returns the networks to begin with."""
    if not layers:
        return {"as it is": {}}
    apart = {times.name: times.fastest for times in layers}
    split: dict[str, Form] = {name: "dense" if form == "dense" else "split" for name, form in apart.items()}
    mixtures: dict[str, dict[str, Form]] = {
        "all tail": dict.fromkeys(apart, "tail"),
        "all split": dict.fromkeys(apart, "split"),
        "each as it is fastest alone": apart,
        "the same without concatenations": split,
    }
    return {
        name: forms for number, (name, forms) in enumerate(mixtures.items())
        if forms not in list(mixtures.values())[:number]
    }  # fmt: skip


def _improve(best: Build, layers: tuple[LayerTimes, ...], bench: "_Bench", tell: Tell) -> Build:
    """Changes the form of one kind of layer after the other, the slowest first, as long as there is patience."""
    kinds: dict[int, list[LayerTimes]] = {}
    for times in layers:
        kinds.setdefault(times.kind, []).append(times)
    end = time.monotonic() + bench.setting.patience
    for alike in sorted(kinds.values(), key=lambda alike: -len(alike) * min(alike[0].seconds.values())):
        for form in _worth_trying(alike[0], best.forms[alike[0].name]):
            name = f"{', '.join(times.name for times in alike)} as {form}"
            if time.monotonic() > end:
                bench.untried.append(f"{name}: no patience left")
                continue
            tell(name)
            change = replace(best, forms={**best.forms, **{times.name: form for times in alike}})
            best = bench.fastest({"so far": best, name: change}, gain=GAIN)
    return best


def _worth_trying(times: LayerTimes, now: Form) -> list[Form]:
    """Returns the forms of a layer that are not hopeless alone; as it is written is never better than with a tail."""
    limit = HOPELESS * min(times.seconds.values())
    return [form for form in ("tail", "split", "dense") if form != now and times.seconds.get(form, 0.0) <= limit
            and (form != "dense" or times.why_not_dense is None)]  # fmt: skip


def _time_layers(model: nn.Module, bench: "_Bench", tell: Tell) -> tuple[LayerTimes, ...]:
    """Times every layer alone; layers of one kind together."""
    layers = composite_layers(model)
    known: dict[Hashable, LayerTimes] = {}
    found = []
    for name, size in _input_sizes(model, bench.setting.input_size).items():
        # Biases decide too whether there is an equal dense kernel, and each layer has its own.
        reason = why_not_dense(layers[name])
        kind = (layers[name].plan, size, reason is None)
        if kind not in known:
            tell(f"layer {name}")
            known[kind] = replace(bench.time_layer(name, layers[name], size), kind=len(known))
        found.append(replace(known[kind], name=name, why_not_dense=reason))
    return tuple(found)


class _Bench:
    """Builds candidates in an engine, and times them side by side.

    Attributes:
        setting: Where they run.
        tried: The best time of every candidate so far.
        untried: What could not be tried, and why.
    """

    def __init__(self, model: nn.Module, setting: Setting, folder: Path) -> None:
        self.setting = setting
        self.tried: dict[str, float] = {}
        self.untried: list[str] = []
        self._model, self._folder = model, folder
        self._built = 0
        self._kept: list[tuple[Build, Engine]] = []
        self._graph: tuple[Mapping[str, Form], GraphModule] | None = None

    def fastest(self, candidates: Mapping[str, Build], *, gain: float = 0.0) -> Build:
        """Returns the fastest of some builds; the first stays unless another gains so much over it."""
        times = self.time(candidates, max(2, self.setting.rounds // 2))
        if not times:
            raise DeployError(f"no form of this network can be built for this target: {self.untried[-1]}")
        self.tried.update({name: timing.best for name, timing in times.items()})
        first, *others = times
        best = min(others, key=lambda name: times[name].best, default=first)
        chosen = best if times[best].best < (1 - gain) * times[first].best else first
        return candidates[chosen]

    def time(self, candidates: Mapping[str, Build], rounds: int) -> dict[str, Timing]:
        """Times builds in turns; those that can't be built are noted, and left out."""
        engines = {}
        for name, build in candidates.items():
            try:
                engines[name] = self._engine(build)
            except DeployError as error:
                self.untried.append(f"{name}: {error}")
        return self._time(engines, self.setting.input_size, rounds)

    def time_layer(self, name: str, layer: CompositeConv, size: tuple[int, ...]) -> LayerTimes:
        """Times a layer and a ReLU in all forms that make sense alone."""
        block = nn.Sequential(layer, nn.ReLU())
        reason = why_not_dense(layer)
        forms = [form for form in FORMS if form in ("concat", "tail") or (form == "dense" and reason is None)]
        there = self.setting.for_times(input_size=size)
        with ExitStack() as stack:
            engines: dict[str, Engine] = {}
            for form in forms:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder)))
                engines[form] = build_engine(block, Build({"0": form}), there, folder)
            times = self._time(engines, size, max(2, self.setting.rounds // 2))
        return LayerTimes(name, str(layer.plan), size, {form: timing.best for form, timing in times.items()}, reason)

    def _engine(self, build: Build) -> Engine:
        for known, engine in self._kept:
            if known == build:
                return engine
        folder = self._folder / str(self._built)
        folder.mkdir()
        self._built += 1
        if self._graph is None or self._graph[0] != build.forms:  # ways of the same forms follow each other
            self._graph = (build.forms, build_graph(self._model, build.forms, self.setting))
        engine = write_engine(self._graph[1], build.way, self.setting, folder)
        # The others are let go: an engine may hold a gigabyte.
        self._kept = [*self._kept[-KEPT:], (build, engine)]
        return engine

    def _time(self, engines: Mapping[str, Engine], size: tuple[int, ...], rounds: int) -> dict[str, Timing]:
        return time_engines(engines, noise(self.setting.batch, size), rounds=rounds, threads=self.setting.threads)


def _input_sizes(model: nn.Module, input_size: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Returns the size of what each layer of basis filters reads, in the order in which they run."""
    sizes: dict[str, tuple[int, ...]] = {}

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], dict[str, Tensor]], None]:
        return lambda module, args, kwargs: sizes.update({name: tuple((*args, *kwargs.values())[0].shape[1:])})

    layers = composite_layers(model).items()
    handles = [layer.register_forward_pre_hook(note(name), with_kwargs=True) for name, layer in layers]
    try:
        with torch.no_grad(), on_input(model, input_size):
            output = model(torch.zeros(1, *input_size))
    finally:
        for handle in handles:
            handle.remove()
    if not isinstance(output, Tensor):
        raise DeployError(
            f"{type(model).__name__} returns a {type(output).__name__}; what is deployed returns one tensor: wrap it "
            "in a module that returns the one you need"
        )
    if output.dtype != torch.float32:
        raise DeployError(
            f"{type(model).__name__} returns {output.dtype}; what is deployed returns torch.float32: leave what "
            "rounds or chooses to its caller, or type model.float()"
        )
    return sizes
