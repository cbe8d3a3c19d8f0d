"""Which form each layer shall have: found by measuring, in the engine itself.

First every layer alone, as it stands in the network (its size of input, an activation behind it); then whole networks:
all layers alike, the fastest form of each, and from the best of these one layer after the other, as long as it pays.
The dense network is always among them, where there is an equal one, so that what is shipped is never slower.
"""

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cruciform.deploy.clock import Timing, time_engines
from cruciform.deploy.forms import FORMS, Form, build_form, composite_layers, why_not_dense
from cruciform.deploy.target import Engine, Target
from cruciform.nn.composite import CompositeConv

GAIN = 0.01  # a change of form must save such a share of the time, or it is noise


@dataclass(frozen=True)
class LayerTimes:
    """A layer alone.

    Attributes:
        name: Of the layer.
        plan: What it computes.
        input_size: Of one sample, as the network gives it.
        seconds: The time of each form that can be measured alone; a convolution's readers are not there.
        why_not_dense: Why there is no equal dense kernel; None where there is one.
    """

    name: str
    plan: str
    input_size: tuple[int, ...]
    seconds: Mapping[str, float]
    why_not_dense: str | None


@dataclass(frozen=True)
class Choice:
    """What was chosen, and what it was chosen from.

    Attributes:
        forms: The form of every layer.
        timing: Of the network so.
        dense: Of the equal dense network; None where there is none.
        tried: Times of all networks that were tried, by a word for each.
        layers: The layers alone.
    """

    forms: Mapping[str, Form]
    timing: Timing
    dense: Timing | None
    tried: Mapping[str, float]
    layers: tuple[LayerTimes, ...]

    @property
    def pays(self) -> bool:
        """Whether basis filters are faster than the equal dense network here."""
        return self.dense is None or self.timing.best < self.dense.best

    @property
    def is_dense(self) -> bool:
        """Whether the dense network was chosen."""
        return bool(self.forms) and all(form == "dense" for form in self.forms.values())


@dataclass(frozen=True)
class Setting:
    """Where a network shall run.

    Attributes:
        target: The engine.
        input_size: Of one image.
        batch: Images at a time.
        threads: Of the engine.
        rounds: Turns of each candidate.
    """

    target: Target
    input_size: tuple[int, ...]
    batch: int = 1
    threads: int = 1
    rounds: int = 7


def choose_forms(model: nn.Module, setting: Setting, *, tell: Callable[[str], None] = lambda what: None) -> Choice:
    """Chooses the fastest form of every layer of a network.

    Args:
        model: The network.
        setting: Where it shall run.
        tell: Told what is being measured.
    """
    model = model.eval()
    layers = composite_layers(model)
    with tempfile.TemporaryDirectory() as folder:
        bench = _Bench(model, setting, Path(folder))
        alone = []
        for name, size in _input_sizes(model, setting.input_size).items():
            tell(f"layer {name}")
            alone.append(bench.time_layer(name, layers[name], size))
        can_be_dense = all(times.why_not_dense is None for times in alone)
        candidates: dict[str, dict[str, Form]] = {
            f"all {form}": dict.fromkeys(layers, form) for form in FORMS if form != "dense" or can_be_dense
        }
        candidates["the best of each layer"] = {times.name: _fastest(times) for times in alone}
        tell("whole networks")
        times = bench.time_networks(candidates)
        best = min(times, key=lambda name: times[name].best)
        forms = candidates[best]
        tried = {name: timing.best for name, timing in times.items()}
        for layer in alone:
            for form in _others(layer, forms[layer.name]):
                tell(f"{layer.name} as {form}")
                change = {**forms, layer.name: form}
                pair = bench.time_networks({"as it is": forms, "changed": change})
                tried[f"{layer.name} as {form}"] = pair["changed"].best
                if pair["changed"].best < (1 - GAIN) * pair["as it is"].best:
                    forms = change
        final = {"chosen": forms, **({"dense": candidates["all dense"]} if can_be_dense else {})}
        tell("the chosen network against the dense one")
        last = bench.time_networks(final)
    dense = last.get("dense")
    if dense is not None and (forms == candidates["all dense"] or dense.best < last["chosen"].best):
        return Choice(candidates["all dense"], dense, dense, tried, tuple(alone))
    return Choice(forms, last["chosen"], dense, tried, tuple(alone))


def build_engine(model: nn.Module, forms: Mapping[str, Form], setting: Setting, folder: Path) -> Engine:
    """Writes a network, its layers in some forms, into a folder as its target has them; returns what runs it."""
    # A graph for one image alone would be made for no other number.
    graph = build_form(model, forms, setting.input_size, batch=max(2, setting.batch))
    setting.target.write(graph, setting.input_size, folder, batch=setting.batch)
    return setting.target.load(folder, threads=setting.threads)


class _Bench:
    """Builds candidates in an engine, and times them side by side."""

    def __init__(self, model: nn.Module, setting: Setting, folder: Path) -> None:
        self._model, self._setting, self._folder = model, setting, folder
        self._engines: dict[tuple[tuple[str, Form], ...], Engine] = {}

    def time_networks(self, candidates: Mapping[str, Mapping[str, Form]]) -> dict[str, Timing]:
        engines = {name: self._engine(forms) for name, forms in candidates.items()}
        return self._time(engines, self._setting.input_size)

    def time_layer(self, name: str, layer: CompositeConv, size: tuple[int, ...]) -> LayerTimes:
        block = nn.Sequential(layer, nn.ReLU())
        reason = why_not_dense(layer)
        forms: list[Form] = ["concat", "tail", *(["dense"] if reason is None else [])]  # type: ignore[list-item]
        with ExitStack() as stack:
            engines = {}
            for form in forms:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder)))
                engines[str(form)] = build_engine(block, {"0": form}, replace(self._setting, input_size=size), folder)
            seconds = {form: timing.best for form, timing in self._time(engines, size).items()}
        return LayerTimes(name, str(layer.plan), size, seconds, reason)

    def _engine(self, forms: Mapping[str, Form]) -> Engine:
        key = tuple(sorted(forms.items()))
        if key not in self._engines:
            folder = self._folder / str(len(self._engines))
            folder.mkdir()
            self._engines[key] = build_engine(self._model, forms, self._setting, folder)
        return self._engines[key]

    def _time(self, engines: Mapping[str, Engine], size: tuple[int, ...]) -> dict[str, Timing]:
        setting = self._setting
        return time_engines(engines, _noise(setting.batch, size), rounds=setting.rounds, threads=setting.threads)


def _noise(batch: int, size: tuple[int, ...]) -> "NDArray[Any]":
    generator = torch.Generator().manual_seed(0)
    noise: NDArray[Any] = torch.randn(batch, *size, generator=generator).numpy()
    return noise


def _input_sizes(model: nn.Module, input_size: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Returns the size of what each layer of basis filters reads, in the order in which they run."""
    sizes: dict[str, tuple[int, ...]] = {}

    def note(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda module, inputs: sizes.update({name: tuple(inputs[0].shape[1:])})

    handles = [layer.register_forward_pre_hook(note(name)) for name, layer in composite_layers(model).items()]
    try:
        with torch.no_grad():
            model(torch.zeros(1, *input_size))
    finally:
        for handle in handles:
            handle.remove()
    return sizes


def _fastest(times: LayerTimes) -> Form:
    best = min(times.seconds, key=lambda form: times.seconds[form])
    return next(form for form in FORMS if form == best)


def _others(times: LayerTimes, now: Form) -> list[Form]:
    """Returns the forms of a layer that are worth trying in the whole network: those not hopeless alone."""
    fastest = min(times.seconds.values())
    hopeless = {form for form, seconds in times.seconds.items() if seconds > 1.5 * fastest}
    allowed = [form for form in FORMS if form != "dense" or times.why_not_dense is None]
    return [form for form in allowed if form != now and form not in hopeless]
