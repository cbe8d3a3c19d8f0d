"""Run a network before and after its conversion, in evaluation and in training mode, at a known or guessed size."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from cruciform.errors import ConversionError, first_line
from cruciform.measure.dry_run import (
    META,
    Shapes,
    call_with,
    let_norms_run_on_one_input,
    same_random_numbers,
    shapes_of,
    state_on,
    zero_input,
)
from cruciform.measure.state_guard import in_mode
from cruciform.measure.trace import tensors_in
from cruciform.nn.inspect import plan_of

MODES = {"evaluation": False, "training": True}
# Extents that networks are built for, by the number of axes; the usual one first. Most take any.
EXTENTS = {
    1: (1024, 128, 16000, 64, 256, 512),
    2: (224, 32, 28, 64, 256, 299, 128, 384, 512, 96, 16, 112, 160, 192, 48, 227, 8),
    3: (32, 64, 96, 128, 16, 48, 8),
}

# They return what they are given in shape and type. torch computes their meta device in Python, with milliseconds for
# each: more than for all else in most networks together.
KEEP_SHAPE = frozenset(
    "batch_norm group_norm layer_norm instance_norm relu gelu hardswish hardsigmoid leaky_relu prelu dropout".split()
)


@dataclass(frozen=True)
class Trial:
    """How a network ran.

    Attributes:
        input_size: On an input of these channels and spatial sizes.
        guessed: Whether that size is a guess.
        outputs: The shapes that it returned, by mode.
        failures: Why it does not run, in the other modes.
        used: The parameters that it used, by name, in any mode.
    """

    input_size: tuple[int, ...]
    guessed: bool
    outputs: Mapping[str, Shapes] = field(default_factory=dict)
    failures: Mapping[str, Exception] = field(default_factory=dict)
    used: frozenset[str] = frozenset()


def try_out(
    model: nn.Module,
    input_size: Sequence[int],
    *,
    guessed: bool = False,
    known: Mapping[str, Shapes] | None = None,
    old: Mapping[int, str] | None = None,
) -> Trial:
    """Run a network in each mode, and restore its state and all random generators.

    Args:
        model: The network.
        input_size: Channels and spatial size of one input.
        guessed: Whether that is a guess: then it is run on the meta device only, and given up at the first failure.
        known: What it returns in modes that it was run in already.
        old: Parameters that must not be used any more, by identity, with the layers that owned them.

    Raises:
        ConversionError: It uses one of the old parameters.
    """
    outputs = dict(known or {})
    failures: dict[str, Exception] = {}
    used: set[str] = set()
    own = next((parameter.device for parameter in model.parameters()), META)
    devices = [META] if guessed else dict.fromkeys((META, own))  # some networks look at values, which meta has not
    for mode, training in MODES.items():
        for device in devices if mode not in outputs else ():
            try:
                outputs[mode] = _run(model, input_size, device, training=training, watch=_Uses(old or {}, used))
            except ConversionError:
                raise
            except Exception as error:
                failures[mode] = error
            else:
                failures.pop(mode, None)
                break
        if guessed and failures:
            break
    return Trial(tuple(input_size), guessed, outputs, failures, frozenset(used))


def guess_trial(model: nn.Module) -> Trial | str:
    """Try common input sizes until the network runs; return the trial, or why there is none."""
    try:
        signature(model.forward).bind(object())
    except (TypeError, ValueError):
        return "its forward does not take a single tensor"
    why = "it has no convolution"
    for index, size in enumerate(dict.fromkeys(_sizes(model))):
        trial = try_out(model, size, guessed=True)
        if trial.outputs:
            return trial
        if index == 0:
            why = f"at {size} and other common sizes it fails: {first_line(trial.failures['evaluation'])}"
    return why


def _sizes(model: nn.Module) -> Iterator[tuple[int, ...]]:
    """Yield sizes worth trying: those that libraries write on their networks, then usual ones."""
    specs = (plan.spec for module in model.modules() if not isinstance(module, nn.Linear) and (plan := plan_of(module)))
    spec = next(specs, None)
    if spec is None:
        return
    for module in model.modules():
        for hint in _hints(module):
            yield from (hint, (spec.in_channels, *hint[1:]))
    for channels, extents in ((spec.in_channels, EXTENTS[spec.rank]), (3, EXTENTS[spec.rank][:2])):
        yield from ((channels, *(extent,) * spec.rank) for extent in extents)


def _hints(module: nn.Module) -> Iterator[tuple[int, ...]]:
    own = vars(module)
    for key in ("pretrained_cfg", "default_cfg"):  # timm's
        given = own.get(key)
        size = given.get("input_size") if isinstance(given, Mapping) else getattr(given, "input_size", None)
        if isinstance(size, tuple):
            yield size
    size = getattr(own.get("config"), "input_shape", None)  # our own networks'
    if isinstance(size, tuple):
        yield size


def _run(
    model: nn.Module, input_size: Sequence[int], device: torch.device, *, training: bool, watch: "_Uses"
) -> Shapes:
    with same_random_numbers(), in_mode(model, training=training), torch.no_grad():
        let_norms_run_on_one_input(model)
        state, x = state_on(model, device), zero_input(model, input_size, device, batch=2 if training else 1)
        watch.names = {id(tensor): name for name, tensor in state.items()}
        with watch:
            return shapes_of(call_with(model, state, x))


class _Uses(TorchFunctionMode):
    """Record which parameters are used, and refuse old ones."""

    def __init__(self, old: Mapping[int, str], used: set[str]) -> None:
        super().__init__()
        self.names: Mapping[int, str] = {}
        self._old, self._used = old, used

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in tensors_in((args, kwargs or {})):
            if id(tensor) in self._old:
                name = self._old[id(tensor)]
                raise ConversionError(
                    f"after converting {name}, the network still uses its old weights, which are also stored "
                    f"elsewhere; protect it with protect=[{name!r}]"
                )
            if id(tensor) in self.names:
                self._used.add(self.names[id(tensor)])
        if getattr(func, "__name__", "") in KEEP_SHAPE and args and args[0].is_meta:
            return torch.empty_like(args[0])
        return func(*args, **(kwargs or {}))
