"""Search for the fastest form of every layer, by timing in the engine itself.

First every kind of layer alone, at its input size and with an activation after it; then whole networks: all layers in
one form, or each in its fastest, exported in every way that the target has; then, from the best of these, one kind of
layer after the other. One time limit covers all of this. At the end the best is timed against the equal dense network,
if there is one, in every way to export it, so that the result is never slower.
"""

import math
import tempfile
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from cruciform.deployment.search.build import Build, EngineSettings, build_engine, build_graph, noise, write_engine
from cruciform.deployment.search.clock import LEAST_SECONDS, WARM_UP, Deadline, Timing, time_engines
from cruciform.deployment.search.layer_forms import FORMS, Form, composite_layers, why_not_dense
from cruciform.deployment.targets.target import Engine
from cruciform.errors import DeployError
from cruciform.measure.state_guard import in_mode
from cruciform.measure.trace import on_input
from cruciform.nn.composite import CompositeConv

GAIN = 0.01  # a change of form must save this fraction of the time; less is noise
KEPT = 4  # engines kept in memory because they may be needed again
ALONE = 0.5  # the largest fraction of the time limit for single layers
HOPELESS = 1.3  # forms slower than the fastest by this factor alone are not tried in the network

ProgressCallback = Callable[[str], None]


@dataclass(frozen=True)
class LayerTimes:
    """The times of a single layer.

    Attributes:
        name: The name of the layer.
        plan: Its plan, as text.
        input_size: Its input size in the network.
        seconds: The time of each form that can be timed alone; empty where the time limit was reached before.
        why_not_dense: Why there is no equal dense kernel; None where there is one.
        kind: A number that identical layers share; they were timed once.
    """

    name: str
    plan: str
    input_size: tuple[int, ...]
    seconds: Mapping[str, float]
    why_not_dense: str | None
    kind: int = 0

    @property
    def fastest(self) -> Form:
        """The fastest form; where none was timed, the one that usually is."""
        timed = [form for form in FORMS if form in self.seconds]
        return min(timed, key=lambda form: self.seconds[form], default="tail")


@dataclass(frozen=True)
class Choice:
    """The fastest build, and what it was compared with.

    Attributes:
        build: The form of every layer, and how the network is exported.
        timing: Its times.
        dense: The times of the equal dense network in its fastest export; None where there is none.
        tried: The best time of every network that was tried.
        untried: What was skipped or could not be built, with the reason.
        layers: The times of single layers.
    """

    build: Build
    timing: Timing
    dense: Timing | None
    tried: Mapping[str, float]
    untried: tuple[str, ...]
    layers: tuple[LayerTimes, ...]


def choose_build(
    model: nn.Module, setting: EngineSettings, *, on_progress: ProgressCallback = lambda what: None
) -> Choice:
    """Find the fastest build of a network.

    Args:
        model: The network.
        setting: The engine, batch size and time limit.
        on_progress: Called with what is being measured.
    """
    with in_mode(model, training=False), tempfile.TemporaryDirectory() as folder:
        bench = _Bench(model, setting, Path(folder))
        layers = _time_layers(model, bench, on_progress)
        best = _search(layers, bench, on_progress) if layers else Build({})
        on_progress("the chosen network beside the dense one")
        return _against_dense(best, layers, bench)


def _search(layers: tuple[LayerTimes, ...], bench: "_Bench", on_progress: ProgressCallback) -> Build:
    """Return the fastest build found within the time limit."""
    ways = bench.setting.ways()
    on_progress("whole networks")
    first = bench.fastest(
        {f"{name}, {way}": Build(forms, way) for name, forms in _mixtures(layers).items() for way in ways}
    )
    best = _improve(first, layers, bench, on_progress)
    if best == first:
        return best
    # Another way to export may suit the new forms.
    ordered = sorted(ways, key=lambda way: way != best.way)
    return bench.fastest({f"as changed, {way}": replace(best, way=way) for way in ordered})


def _against_dense(best: Build, layers: tuple[LayerTimes, ...], bench: "_Bench") -> Choice:
    """Return the best build if it beats every export of the equal dense network, else the fastest of those.

    The time limit does not apply, so that the result is never slower than dense.
    """
    forms: dict[str, Form] = dict.fromkeys((times.name for times in layers), "dense")
    can_be_dense = all(times.why_not_dense is None for times in layers)
    dense = {f"dense, {way}": Build(forms, way) for way in bench.setting.ways()} if can_be_dense else {}
    # A network without low-rank layers is its own dense one: timing it twice would only show noise.
    candidates = dense if best in dense.values() else {"chosen": best, **dense}
    times = bench.time(bench.engines(candidates), bench.setting.rounds)
    bench.tried.update({name: times[name].best for name in dense if name in times})
    timed = [name for name in dense if name in times]
    if not times or (dense and not timed):
        raise bench.unable()
    if not dense:
        return Choice(best, times["chosen"], None, bench.tried, tuple(bench.untried), layers)
    fastest = min(timed, key=lambda name: times[name].best)
    reference = times[fastest]
    chosen = times.get("chosen", reference)
    if (1 - GAIN) * reference.best <= chosen.best:
        best, chosen = dense[fastest], reference
    return Choice(best, chosen, reference, bench.tried, tuple(bench.untried), layers)


def _mixtures(layers: tuple[LayerTimes, ...]) -> dict[str, dict[str, Form]]:
    """Return the networks to begin with, the most promising first."""
    apart = {times.name: times.fastest for times in layers}
    split: dict[str, Form] = {name: "dense" if form == "dense" else "split" for name, form in apart.items()}
    mixtures: dict[str, dict[str, Form]] = {
        "each in its fastest form alone": apart,
        "all split": dict.fromkeys(apart, "split"),
        "all tail": dict.fromkeys(apart, "tail"),
        "the same without concatenations": split,
    }
    return {
        name: forms for number, (name, forms) in enumerate(mixtures.items())
        if forms not in list(mixtures.values())[:number]
    }  # fmt: skip


def _improve(best: Build, layers: tuple[LayerTimes, ...], bench: "_Bench", on_progress: ProgressCallback) -> Build:
    """Change the form of one kind of layer after the other, the slowest first, until the time limit."""
    kinds: dict[int, list[LayerTimes]] = {}
    for times in layers:
        kinds.setdefault(times.kind, []).append(times)
    for alike in sorted(kinds.values(), key=lambda alike: -len(alike) * min(alike[0].seconds.values(), default=0.0)):
        for form in _worth_trying(alike[0], best.forms[alike[0].name]):
            name = f"{', '.join(times.name for times in alike)} as {form}"
            if bench.limit.left <= 0:
                bench.skip(name)
                continue
            on_progress(name)
            change = replace(best, forms={**best.forms, **{times.name: form for times in alike}})
            best = bench.fastest({"so far": best, name: change}, gain=GAIN)
    return best


def _worth_trying(times: LayerTimes, now: Form) -> list[Form]:
    """Return the forms of a layer that are worth trying in the network; concat is never faster than tail."""
    limit = HOPELESS * min(times.seconds.values(), default=math.inf)
    return [form for form in ("tail", "split", "dense") if form != now and times.seconds.get(form, 0.0) <= limit
            and (form != "dense" or times.why_not_dense is None)]  # fmt: skip


def _time_layers(model: nn.Module, bench: "_Bench", on_progress: ProgressCallback) -> tuple[LayerTimes, ...]:
    """Time every kind of layer alone."""
    layers = composite_layers(model)
    limit = bench.limit.part(ALONE)
    known: dict[Hashable, LayerTimes] = {}
    found = []
    for name, size in _input_sizes(model, bench.setting.input_size).items():
        # Whether there is an equal dense kernel depends on biases too, and each layer has its own.
        reason = why_not_dense(layers[name])
        kind = (layers[name].plan, size, reason is None)
        if kind not in known and limit.left > 0:
            on_progress(f"layer {name}")
            known[kind] = replace(bench.time_layer(name, layers[name], size), kind=len(known))
        elif kind not in known:
            bench.skip(f"layer {name} alone")
            known[kind] = LayerTimes(name, str(layers[name].plan), size, {}, reason, kind=len(known))
        found.append(replace(known[kind], name=name, why_not_dense=reason))
    return tuple(found)


class _Bench:
    """Builds candidates in an engine and times them, interleaved.

    Attributes:
        setting: The engine and batch size.
        limit: The deadline of the search.
        tried: The best time of every candidate so far.
        untried: What could not be tried, with the reason.
    """

    def __init__(self, model: nn.Module, setting: EngineSettings, folder: Path) -> None:
        self.setting = setting
        self.limit = Deadline(setting.search_seconds)
        self.tried: dict[str, float] = {}
        self.untried: list[str] = []
        self._model, self._folder = model, folder
        self._built = 0
        self._seconds = 0.0  # that the last build took
        self._kept: list[tuple[Build, Engine]] = []
        self._graph: tuple[Mapping[str, Form], GraphModule] | None = None

    def fastest(self, candidates: Mapping[str, Build], *, gain: float = 0.0) -> Build:
        """Return the fastest of some builds; another replaces the first only if it is faster by ``gain``."""
        rounds = max(2, self.setting.rounds // 2)
        engines = self.engines(candidates, rounds=rounds)
        if not engines:
            raise self.unable()
        if len(engines) == 1:
            return candidates[next(iter(engines))]
        times = self.time(engines, rounds)
        self.tried.update({name: timing.best for name, timing in times.items()})
        first, *others = times
        best = min(others, key=lambda name: times[name].best, default=first)
        chosen = best if times[best].best < (1 - gain) * times[first].best else first
        return candidates[chosen]

    def engines(self, candidates: Mapping[str, Build], *, rounds: int | None = None) -> dict[str, Engine]:
        """Return engines of builds; builds that fail are noted and skipped.

        Args:
            candidates: The builds.
            rounds: The rounds that they will be timed for within the time limit; after the first, builds that exceed it
                are skipped. None: the limit does not apply.
        """
        engines: dict[str, Engine] = {}
        images, needed = noise(self.setting.batch, self.setting.input_size), 0.0
        for name, build in candidates.items():
            if rounds is not None and engines and self.limit.left < needed + self._seconds:
                self.skip(name)
                continue
            try:
                engines[name] = self._engine(build)
            except DeployError as error:
                self.untried.append(f"{name}: {error}")
                continue
            if rounds is not None:
                start = time.monotonic()
                engines[name](images)
                needed += (WARM_UP + rounds) * max(LEAST_SECONDS, time.monotonic() - start)
        return engines

    def time(self, engines: Mapping[str, Engine], rounds: int) -> dict[str, Timing]:
        """Time engines of the whole network, interleaved."""
        return self._time(engines, self.setting.input_size, rounds)

    def skip(self, name: str) -> None:
        """Note a candidate that was skipped because of the time limit."""
        self.untried.append(f"{name}: skipped, because the time limit of {self.setting.search_seconds:g} s was reached")

    def unable(self) -> DeployError:
        """Return the error for a network that can't be built in any form."""
        return DeployError(f"no form of this network can be built for this target: {self.untried[-1]}")

    def time_layer(self, name: str, layer: CompositeConv, size: tuple[int, ...]) -> LayerTimes:
        """Time a layer and a ReLU in all forms that apply to a single layer."""
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
        for index, (known, engine) in enumerate(self._kept):
            if known == build:
                self._kept.append(self._kept.pop(index))
                return engine
        start = time.monotonic()
        folder = self._folder / str(self._built)
        folder.mkdir()
        self._built += 1
        if self._graph is None or self._graph[0] != build.forms:  # exports of the same forms follow each other
            self._graph = (build.forms, build_graph(self._model, build.forms, self.setting))
        engine = write_engine(self._graph[1], build.way, self.setting, folder)
        # Others are freed: an engine may use a gigabyte.
        self._kept = [*self._kept[-KEPT:], (build, engine)]
        self._seconds = time.monotonic() - start
        return engine

    def _time(self, engines: Mapping[str, Engine], size: tuple[int, ...], rounds: int) -> dict[str, Timing]:
        return time_engines(engines, noise(self.setting.batch, size), rounds=rounds, threads=self.setting.threads)


def _input_sizes(model: nn.Module, input_size: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the input size of each low-rank layer, in the order in which they run."""
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
            f"{type(model).__name__} returns a {type(output).__name__}; a deployed network returns one tensor: wrap it "
            "in a module that returns the one you need"
        )
    if output.dtype != torch.float32:
        raise DeployError(
            f"{type(model).__name__} returns {output.dtype}; a deployed network returns torch.float32: leave "
            "rounding and argmax to the caller, or call model.float()"
        )
    return sizes
