"""A network in training: model, optimizer, gradient scaler and EMA; one step; and their whole state."""

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
from cruciform.training.engine.logits import main_logits
from cruciform.training.engine.lookahead import Lookahead
from cruciform.training.engine.teacher import Teacher
from cruciform.training.objectives.mixup import draw_mixture, mix
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.checkpoint import is_finite
from cruciform.training.runtime.runtime import Runtime
from cruciform.training.setup.precision import DTYPES, pick_precision

LEAST_SCALE = 1.0  # below it, an overflow is not caused by the loss scale


class Outcome(Enum):
    """Whether a step was taken, and if not, why."""

    TAKEN = "the step was taken"
    OVERFLOWED = "the gradient overflowed at this loss scale; the next step has a smaller one"
    FAILED = "the gradient is NaN or Inf"


class StepResult(NamedTuple):
    """The result of a step.

    Attributes:
        loss: The sum of this rank's losses.
        norm: Norm of the gradient, over all ranks, before clipping.
        outcome: Whether the step was taken.
    """

    loss: float
    norm: float
    outcome: Outcome


class Learner:
    """A network in training.

    Attributes:
        model: The network itself, on its device.
        optimizer: Its optimizer.
        ema: The moving average of its weights, where the recipe has one.
        lookahead: Its slow weights, where the recipe has them.

    Args:
        recipe: What to compute.
        model: The network.
        runtime: This process among those of the run.
        classes: Number of classes of the data; a network with another number of outputs is refused at its first
            batch. None: any.
        teacher: What it learns from besides labels; needed for training where the recipe has ``distill``.
    """

    def __init__(
        self,
        recipe: Recipe,
        model: nn.Module,
        runtime: Runtime,
        *,
        classes: int | None = None,
        teacher: nn.Module | None = None,
    ) -> None:
        if runtime.device.type == "cpu":
            keep_freed_memory()
        self.recipe, self.runtime, self._classes = recipe, runtime, classes
        self._precision = pick_precision(recipe.precision, runtime.device)
        self.model = model.to(runtime.device).float()  # weights are kept in float32
        if recipe.channels_last:
            channels_last_(self.model)
        self._teacher = None if teacher is None else Teacher(teacher, recipe, runtime.device)
        self._freeze = Freeze(self.model, recipe.freeze)
        self.optimizer = recipe.optimizer.build(self.model)
        self.lookahead = Lookahead(self.model, recipe.lookahead) if recipe.lookahead else None
        self.ema = _ema(self.model, recipe.ema)
        self._scaler = torch.amp.GradScaler(runtime.device.type, enabled=self._precision == "fp16")
        compiled: Any = torch.compile(self.model) if recipe.compile else self.model
        self._runner = runtime.wrap(compiled)
        self._is_wrapped = self._runner is not compiled
        self._is_checked = False
        self._mean = _per_channel(recipe.data.mean, runtime.device)
        self._std = _per_channel(recipe.data.std, runtime.device)
        # Masks of −∞ are legitimate; any other tensor that is not finite must not be saved.
        self._masks = [name for name, buffer in self.model.named_buffers() if not is_finite(buffer)]
        self.never_finite = frozenset(f"{part}.{name}" for part in ("model", "ema") for name in self._masks)
        self._names = {id(parameter): name for name, parameter in self.model.named_parameters()}

    # One step

    def step(self, batch: Batch, number: int, factor: float, *, steps: int | None = None) -> StepResult:
        """Take one training step.

        Args:
            batch: This rank's part of the batch.
            number: Of the step; all random numbers of the step depend on it, and on nothing before it.
            factor: γ(t)/γ₀.
            steps: Number of steps in all, for settings that depend on the fraction of training passed.
        """
        if self._is_wrapped and not self._is_checked:
            # In the wrapped network an error may come from a process that died, and all are restarted. Images of a
            # wrong size would fail after every restart, so they are reported here.
            self.logits(batch)
            self._is_checked = True
        before, after = (number / steps, (number + 1) / steps) if steps else (0.0, 0.0)
        random = seed_all(self.recipe.seed, number, self.runtime.rank)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.optimizer.lr * group["lr_mult"] * factor
        # The statistics of a batch whose step is not taken must be undone.
        may_skip = self._scaler.is_enabled() or self.recipe.nan_policy != "stop"
        kept = [buffer.clone() for buffer in self.model.buffers()] if may_skip else []
        if not self._is_wrapped:  # the wrapper waits for the gradients of all parameters
            self._freeze.skip_gradients_(before)
        self.model.train()
        loss = self._accumulate_gradients(batch, random)
        self._freeze.drop_gradients_(before)
        self._scaler.unscale_(self.optimizer)
        limit = self.recipe.grad_clip_norm or float("inf")
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        finite = norm < float("inf")  # false for NaN, too
        if finite:
            # Not after an overflow, though torch allows it: fused optimizers would leave uninitialized state.
            self._scaler.step(self.optimizer)
        self._scaler.update()
        if not finite and may_skip:
            for buffer, old in zip(self.model.buffers(), kept, strict=True):
                buffer.copy_(old)
        if self.lookahead and (finite or after >= 1):  # slow weights are the result, even if the last step failed
            self.lookahead.follow_(number + 1, after)
        if finite and self.ema:
            self.ema.update_parameters(self.model)
            for name in self._masks:  # the mean of −∞ and −∞ is NaN
                self.ema.module.get_buffer(name).copy_(self.model.get_buffer(name))
        return StepResult(loss, norm, Outcome.TAKEN if finite else self._failure(loss))

    def _failure(self, loss: float) -> Outcome:
        """Tell an overflow caused by the loss scale, which the scaler reduces, from any other."""
        scaled = self._scaler.is_enabled() and self._scaler.get_scale() >= LEAST_SCALE
        (broken,) = self.runtime.most(int(not math.isfinite(loss)))  # the unscaled loss
        return Outcome.OVERFLOWED if scaled and not broken else Outcome.FAILED

    def _accumulate_gradients(self, batch: Batch, random: np.random.Generator) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        images, labels = self._to_device(batch)
        pieces = _pieces(len(images), self.recipe.grad_accum_steps)
        total = 0.0
        for index, piece in enumerate(pieces):
            mixture = draw_mixture(piece.stop - piece.start, self.recipe.loss.mixup, random)
            with ExitStack() as contexts:
                if index < len(pieces) - 1:
                    contexts.enter_context(self.runtime.without_averaging(self._runner))
                # A process that died makes the others fail too; they are restarted, so their errors stay as they are.
                explaining = nullcontext() if self._is_wrapped else self._explaining("train", images[piece])
                inputs = mix(images[piece], mixture)
                with self._autocast(), explaining:
                    output = self._runner(inputs)
                logits = main_logits(output, self._classes)
                loss = self.recipe.loss.total_losses(output, labels[piece], mixture)
                if self._teacher:
                    with self._autocast():
                        loss = self._teacher.add(loss, logits, inputs)
                counted = loss[: max(0, batch.counted - piece.start)].sum()
                # Ranks average gradients, but the sum over all ranks divided by all samples is needed.
                self._scaler.scale(counted * (self.runtime.world / batch.total)).backward()
            total += float(counted.detach())
        return total

    def _explaining(self, verb: str, images: Tensor) -> AbstractContextManager[None]:
        """Turn errors of the network into one that gives the shape of its input."""
        what = f"{self.recipe.model.label} does not {verb} on a batch of shape {tuple(images.shape)}"
        return reraise_as(ShapeError, lambda error: f"{what}: {first_line(error)}")

    # Inference

    def logits(self, batch: Batch, *, flip: bool = False) -> Tensor:
        """Return the logits of the evaluated network for a batch, or for its horizontally flipped images."""
        images = self.inputs(batch)
        with torch.no_grad(), self._autocast(), self._explaining("run", images):
            output = self.evaluated()(images.flip(-1) if flip else images)
        return main_logits(output, self._classes).float()

    def inputs(self, batch: Batch) -> Tensor:
        """Return the network's input for a batch: its images, normalized, on the device."""
        return self._to_device(batch)[0]

    def evaluated(self) -> nn.Module:
        """Return the network that is evaluated, the EMA where there is one, in evaluation mode."""
        module = self.ema.module if self.ema else self.model
        return module.eval()

    def _autocast(self) -> torch.autocast:
        dtype = DTYPES[self._precision]
        return torch.autocast(self.runtime.device.type, dtype=dtype, enabled=dtype is not None)

    def _to_device(self, batch: Batch) -> tuple[Tensor, Tensor]:
        device = self.runtime.device
        images = normalize(batch.images.to(device, non_blocking=True).float(), self._mean, self._std)
        if not self.recipe.channels_last:  # the loader stacks them with channels last
            images = images.contiguous()
        return images, batch.labels.to(device, non_blocking=True)

    # State

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all tensors, on the CPU, and all other values that the next step depends on."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        values: dict[str, Any] = {"scaler": self._scaler.state_dict()}
        for parameter, key, value in self._optimizer_state():
            tensors[f"optimizer.{key}.{self._names[id(parameter)]}"] = value
        if self.ema:
            tensors |= {f"ema.{name}": tensor for name, tensor in self.ema.module.state_dict().items()}
            values["ema_updates"] = int(self.ema.n_averaged)
        if self.lookahead:
            tensors |= {f"slow.{name}": tensor for name, tensor in self.lookahead.slow.items()}
        return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, values

    def load_state_(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Restore a state."""
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "ema": {}, "slow": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = tensor
        try:
            self.model.load_state_dict(parts["model"])
            if self.ema:
                self.ema.module.load_state_dict(parts["ema"])
                self.ema.n_averaged.fill_(values["ema_updates"])
            if self.lookahead:
                self.lookahead.load_(parts["slow"])
            self._scaler.load_state_dict(values["scaler"])
            self._load_optimizer_(parts["optimizer"])
        except (RuntimeError, LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise CheckpointError(
                f"the checkpoint does not fit the network or the recipe: {first_line(error)}"
            ) from error

    def _load_optimizer_(self, tensors: Mapping[str, Tensor]) -> None:
        by_name = dict(self.model.named_parameters())
        self.optimizer.state.clear()
        for name, tensor in tensors.items():
            key, _, parameter_name = name.partition(".")
            parameter = by_name[parameter_name]
            # In the memory format of the parameter, as fused optimizers need it.
            fits = tensor.shape == parameter.shape
            value = torch.empty_like(parameter).copy_(tensor) if fits else tensor.to(self.runtime.device)
            self.optimizer.state[parameter][key] = value

    def _optimizer_state(self) -> Iterator[tuple[Tensor, str, Tensor]]:
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                for key, value in self.optimizer.state.get(parameter, {}).items():
                    if isinstance(value, Tensor):
                        yield parameter, key, value


def normalize(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return (images − mean) / std; mean and std have one value, or one for each channel."""
    shape = (1, -1, *(1,) * (images.ndim - 2))
    return (images - mean.reshape(shape)) / std.reshape(shape)


def seed_all(seed: int, step: int, rank: int) -> np.random.Generator:
    """Seed every global generator from (seed, step, rank), so that their state need not be saved.

    Returns:
        A numpy generator with the same seed.
    """
    sequence = np.random.SeedSequence([seed, step, rank])
    number = int(sequence.generate_state(1, np.uint64)[0])
    # torch.manual_seed is ten times slower.
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


def _ema(model: nn.Module, decay: float | None) -> AveragedModel | None:
    if decay is None:
        return None

    def update(averages: Any, current: Any, count: Tensor | int) -> None:
        # A smaller decay at first, or the initial weights would dominate for a thousand steps.
        now = min(decay, (1 + int(count)) / (10 + int(count)))
        get_ema_multi_avg_fn(now)(averages, current, count)

    return AveragedModel(model, multi_avg_fn=update, use_buffers=True)
