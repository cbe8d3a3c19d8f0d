"""A network that learns: model, optimizer, scaler and average, what one step does to them, and their whole state."""

import math
import random as python_random
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from cruciform.data.loader import Batch
from cruciform.errors import CheckpointError, ShapeError, first_line, reraise_as
from cruciform.machine.memory import keep_freed_memory
from cruciform.nn.channels_last import channels_last_
from cruciform.training.engine.freeze import Freeze
from cruciform.training.engine.lookahead import Lookahead
from cruciform.training.engine.objective import draw_mixture, losses, main_logits, mix
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.checkpoint import is_finite
from cruciform.training.runtime.runtime import Runtime
from cruciform.training.setup.precision import DTYPES, pick_precision

LEAST_SCALE = 1.0  # a loss that overflows even unscaled is not a matter of scale


class Taken(Enum):
    """Whether a step was taken, and if not, why."""

    YES = "yes"
    OVERFLOWED = "the gradient is finite at a smaller scale of the loss, which the next step has"
    FAILED = "the gradient is not finite"


class StepResult(NamedTuple):
    """What a step came to.

    Attributes:
        loss: The sum of this rank's losses.
        norm: Of the gradient, over all ranks, before it was clipped.
        taken: Whether the step was taken.
    """

    loss: float
    norm: float
    taken: Taken


class Learner:
    """A network in training.

    Attributes:
        model: The network itself, on its device.
        optimizer: What changes it.
        average: The moving average of its weights, where the recipe has one.
        lookahead: Its slow weights, where the recipe has them.

    Args:
        recipe: What to compute.
        model: The network.
        runtime: Where this process stands among others.
        classes: Of the data: where given, a network that tells others apart is refused at its first batch.
    """

    def __init__(self, recipe: Recipe, model: nn.Module, runtime: Runtime, *, classes: int | None = None) -> None:
        if runtime.device.type == "cpu":
            keep_freed_memory()
        self.recipe, self.runtime, self._classes = recipe, runtime, classes
        self._precision = pick_precision(recipe.precision, runtime.device)
        self.model = model.to(runtime.device).float()  # weights are kept in 32 bits, however they come
        if recipe.channels_last:
            channels_last_(self.model)
        self._freeze = Freeze(self.model, recipe.freeze)
        self.optimizer = recipe.optimizer.build(self.model)
        self.lookahead = Lookahead(self.model, recipe.lookahead) if recipe.lookahead else None
        self.average = _average(self.model, recipe.average)
        self._scaler = torch.amp.GradScaler(runtime.device.type, enabled=self._precision == "fp16")
        compiled: Any = torch.compile(self.model) if recipe.compile else self.model
        self._runner = runtime.wrap(compiled)
        self._is_wrapped = self._runner is not compiled
        self._is_tried = False
        self._mean = _per_channel(recipe.data.mean, runtime.device)
        self._deviation = _per_channel(recipe.data.deviation, runtime.device)
        # A mask of −∞ is as it should be; whatever else is not finite must not be saved.
        self._masks = [name for name, buffer in self.model.named_buffers() if not is_finite(buffer)]
        self.never_finite = frozenset(f"{part}.{name}" for part in ("model", "average") for name in self._masks)
        self._names = {id(parameter): name for name, parameter in self.model.named_parameters()}

    # One step

    def step(self, batch: Batch, number: int, factor: float, *, steps: int | None = None) -> StepResult:
        """Learns from a batch.

        Args:
            batch: This rank's slice of it.
            number: Of the step; all random numbers of the step depend on it, and on nothing that came before.
            factor: γ(t)/γ₀.
            steps: How many there will be, where the recipe does something when a share of them has passed.
        """
        if self._is_wrapped and not self._is_tried:
            # Below, an error may be that of a process that is gone, and all start again. Images that do not fit would
            # fail in every start: they are told here.
            self.logits(batch)
            self._is_tried = True
        before, after = (number / steps, (number + 1) / steps) if steps else (0.0, 0.0)
        random = seed_all(self.recipe.seed, number, self.runtime.rank)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.optimizer.rate * group["share"] * factor
        # Statistics of a batch that turns out bad must not stay behind when its step is not taken.
        goes_on = self._scaler.is_enabled() or self.recipe.nonfinite != "stop"
        kept = [buffer.clone() for buffer in self.model.buffers()] if goes_on else []
        if not self._is_wrapped:  # a wrapper waits for every gradient that there was when it was made
            self._freeze.spare_(before)
        self.model.train()
        loss = self._accumulate_gradients(batch, random)
        self._freeze.forget_(before)
        self._scaler.unscale_(self.optimizer)
        limit = self.recipe.clip or float("inf")
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        finite = norm < float("inf")  # false for NaN, too
        if finite:
            # Not where it overflowed, as torch allows: its fused optimizers would leave state that nobody has filled.
            self._scaler.step(self.optimizer)
        self._scaler.update()
        if not finite and goes_on:
            for buffer, old in zip(self.model.buffers(), kept, strict=True):
                buffer.copy_(old)
        if self.lookahead and (finite or after >= 1):  # slow weights are the result, whatever the last step came to
            self.lookahead.follow_(number + 1, after)
        if finite and self.average:
            self.average.update_parameters(self.model)
            for name in self._masks:  # the mean of −∞ and −∞ is no number to PyTorch
                self.average.module.get_buffer(name).copy_(self.model.get_buffer(name))
        return StepResult(loss, norm, Taken.YES if finite else self._why_not(loss))

    def _why_not(self, loss: float) -> Taken:
        """Tells a gradient that is not finite by the scale of the loss, which the scaler mends, from any other."""
        mendable = self._scaler.is_enabled() and self._scaler.get_scale() >= LEAST_SCALE
        (broken,) = self.runtime.most(int(not math.isfinite(loss)))  # the loss is not scaled yet
        return Taken.OVERFLOWED if mendable and not broken else Taken.FAILED

    def _accumulate_gradients(self, batch: Batch, random: np.random.Generator) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        images, labels = self._to_device(batch)
        pieces = _pieces(len(images), self.recipe.accumulate)
        total = 0.0
        for index, piece in enumerate(pieces):
            mixture = draw_mixture(piece.stop - piece.start, self.recipe.loss.mixup, random)
            with ExitStack() as contexts:
                if index < len(pieces) - 1:
                    contexts.enter_context(self.runtime.without_averaging(self._runner))
                # Where processes wait for each other, one that is gone makes the rest stumble; they are started again.
                telling = nullcontext() if self._is_wrapped else self._telling("train", images[piece])
                with self._autocast(), telling:
                    output = self._runner(mix(images[piece], mixture))
                main_logits(output, self._classes)
                loss = losses(output, labels[piece], self.recipe.loss, mixture)
                counted = loss[: max(0, batch.counted - piece.start)].sum()
                # Ranks average gradients; the sum over all ranks divided by all samples is wanted.
                self._scaler.scale(counted * (self.runtime.world / batch.total)).backward()
            total += float(counted.detach())
        return total

    def _telling(self, verb: str, images: Tensor) -> AbstractContextManager[None]:
        """Turns what the network stumbles over into an error that names its input."""
        what = f"{self.recipe.model.what} does not {verb} on a batch of {tuple(images.shape)}"
        return reraise_as(ShapeError, lambda error: f"{what}: {first_line(error)}")

    # Looking at images

    def logits(self, batch: Batch, *, mirror: bool = False) -> Tensor:
        """Returns what the network, or the average of its weights, makes of a batch, or of its mirror images."""
        images = self.inputs(batch)
        with torch.no_grad(), self._autocast(), self._telling("run", images):
            output = self.evaluated()(images.flip(-1) if mirror else images)
        return main_logits(output, self._classes).float()

    def inputs(self, batch: Batch) -> Tensor:
        """Returns what the network is given of a batch: its images, normalized, on the device."""
        return self._to_device(batch)[0]

    def evaluated(self) -> nn.Module:
        """Returns the network that is judged, ready for it."""
        module = self.average.module if self.average else self.model
        return module.eval()

    def _autocast(self) -> torch.autocast:
        dtype = DTYPES[self._precision]
        return torch.autocast(self.runtime.device.type, dtype=dtype, enabled=dtype is not None)

    def _to_device(self, batch: Batch) -> tuple[Tensor, Tensor]:
        device = self.runtime.device
        images = normalize(batch.images.to(device, non_blocking=True).float(), self._mean, self._deviation)
        if not self.recipe.channels_last:  # as the loader stacks them
            images = images.contiguous()
        return images, batch.labels.to(device, non_blocking=True)

    # Its whole state

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Returns all tensors, on the CPU, and all other values that the next step depends on."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        values: dict[str, Any] = {"scaler": self._scaler.state_dict()}
        for parameter, key, value in self._optimizer_state():
            tensors[f"optimizer.{key}.{self._names[id(parameter)]}"] = value
        if self.average:
            tensors |= {f"average.{name}": tensor for name, tensor in self.average.module.state_dict().items()}
            values["averaged"] = int(self.average.n_averaged)
        if self.lookahead:
            tensors |= {f"slow.{name}": tensor for name, tensor in self.lookahead.slow.items()}
        return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, values

    def load_state_(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Becomes what it was when the state was taken."""
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "average": {}, "slow": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = tensor
        try:
            self.model.load_state_dict(parts["model"])
            if self.average:
                self.average.module.load_state_dict(parts["average"])
                self.average.n_averaged.fill_(values["averaged"])
            if self.lookahead:
                self.lookahead.load_(parts["slow"])
            self._scaler.load_state_dict(values["scaler"])
            self._load_optimizer_(parts["optimizer"])
        except (RuntimeError, LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise CheckpointError(f"the checkpoint is of another network or recipe: {first_line(error)}") from error

    def _load_optimizer_(self, tensors: Mapping[str, Tensor]) -> None:
        by_name = dict(self.model.named_parameters())
        self.optimizer.state.clear()
        for name, tensor in tensors.items():
            key, _, parameter_name = name.partition(".")
            parameter = by_name[parameter_name]
            # Laid out in memory as the parameter is: fused optimizers walk both side by side.
            fits = tensor.shape == parameter.shape
            value = torch.empty_like(parameter).copy_(tensor) if fits else tensor.to(self.runtime.device)
            self.optimizer.state[parameter][key] = value

    def _optimizer_state(self) -> Iterator[tuple[Tensor, str, Tensor]]:
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                for key, value in self.optimizer.state.get(parameter, {}).items():
                    if isinstance(value, Tensor):
                        yield parameter, key, value


def normalize(images: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Returns images less a mean, over a deviation: one of each for all channels, or for every channel its own."""
    shape = (1, -1, *(1,) * (images.ndim - 2))
    return (images - mean.reshape(shape)) / deviation.reshape(shape)


def seed_all(seed: int, step: int, rank: int) -> np.random.Generator:
    """Sets every global generator from (seed, step, rank), so that no state of theirs needs to be saved.

    Returns:
        One more generator, of the same key.
    """
    sequence = np.random.SeedSequence([seed, step, rank])
    number = int(sequence.generate_state(1, np.uint64)[0])
    # torch.manual_seed does the same and more, ten times slower.
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(number)
    python_random.seed(number)
    np.random.seed(number % 2**32)
    return np.random.Generator(np.random.Philox(sequence))


def _pieces(size: int, count: int) -> list[slice]:
    length = -(-size // count)
    return [slice(first, min(first + length, size)) for first in range(0, size, length)]


def _per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)


def _average(model: nn.Module, decay: float | None) -> AveragedModel | None:
    if decay is None:
        return None

    def update(averages: Any, current: Any, count: Tensor | int) -> None:
        # A short memory at first, or the untrained weights would weigh on for a thousand steps.
        now = min(decay, (1 + int(count)) / (10 + int(count)))
        get_ema_multi_avg_fn(now)(averages, current, count)

    return AveragedModel(model, multi_avg_fn=update, use_buffers=True)
