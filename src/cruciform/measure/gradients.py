"""The doctor: whether a network can be trained from its initial weights.

One forward pass on noise and one backward pass, measured at every *block*: a convolution with the normalization
and non-linearity after it. A block's **gradient ratio** is the energy of the gradient that leaves it at its input
over the energy of the one that enters at its output, energy being the sum of squares over positions, averaged over
channels. For a layer that keeps the size this is the ratio of variances that the paper's appendix sets to 1; a
stride or a max pooling, which only thin a gradient out, count as 1.

As the paper does, and mean-field theory after it, the gradient is taken to be independent of the activations: at
every block's output it is replaced by noise of the same energy before it is propagated further. (The true gradient
after a max pooling favors active units, so it grows by up to 2 more there, whatever the initial weights.)

**The verdict** rests on the *gradient over depth*: the energy at the output of the first block over that at the
output of the last, along the deepest path, with all that stands between them: skip connections, branches, pooling.
In a chain of blocks it is the product of their ratios but for the first, whose input is the image. Over L blocks it
must be within 10^±max(1, √(L/7)): a factor 10 for the seven blocks of the paper's VGG networks, growing as a
random walk of per-block deviations does, for deep ones. A normalization lets the gradient grow whatever the initial
weights, by π/(π−1) = 1.47 in front of a ReLU (Yang et al., "A mean field theory of batch normalization", ICLR 2019),
and networks of up to about 50 such layers train all the same: so much more is allowed for each normalization on the
path, for 50 at the most.

**Only initial weights get a verdict.** Training moves weights away from every rule of initialization, and a network
that has learnt may well have a gradient over depth outside the band. On trained weights the ratios are shown and there
is no verdict and no advice.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cruciform.errors import DiagnosisError
from cruciform.measure.state_guard import in_mode
from cruciform.measure.tape import GradientTape, normalizations_between
from cruciform.measure.trace import checked_size, on_input, tensors_in
from cruciform.nn.inspect import refuse_unready
from cruciform.text.text_tables import html_table, text_table
from cruciform.text.wording import plural

PAPER_BLOCKS = 7  # conv2 to conv8 of the paper's VGG networks
PAPER_BAND = 10.0
NORMALIZATION_GROWTH = math.pi / (math.pi - 1)
NORMALIZATIONS_AT_MOST = 50
DIAGNOSIS_COLUMNS = ("block", "on the deepest path", "gradient in / out", "activation out / in")
TRAINED = "no verdict: the weights are trained, and the doctor checks initial weights"


@dataclass(frozen=True)
class MeasuredBlock:
    """A convolution with the normalization and non-linearity after it.

    Attributes:
        name: The convolution's layer.
        gradient_ratio: Energy of the gradient at its input over that at its output.
        activation_ratio: Variance of its output over that of its input.
        gradient_level: Energy of the gradient at its output over that after the last block.
        on_path: Whether it is on the deepest path.
    """

    name: str
    gradient_ratio: float
    activation_ratio: float
    gradient_level: float
    on_path: bool

    @property
    def ratios(self) -> tuple[str, str]:
        """Both ratios in short; a dash where no gradient arrives."""
        gradient = "–" if math.isnan(self.gradient_ratio) else f"{self.gradient_ratio:.3g}"
        return gradient, f"{self.activation_ratio:.3g}"


@dataclass(frozen=True)
class Diagnosis:
    """The doctor's findings; ``print`` shows them as a table.

    Attributes:
        blocks: All blocks in the order in which they ran.
        gradient_over_depth: What the verdict rests on.
        low: The least that it may be.
        high: The most that it may be.
        depth: Blocks that the gradient passes on the deepest path, L.
        advice: What to change; empty where nothing need be.
        trained: Whether the weights are trained, so that there is no verdict on them.
    """

    blocks: tuple[MeasuredBlock, ...]
    gradient_over_depth: float
    low: float
    high: float
    depth: int
    advice: str
    trained: bool = False

    @property
    def trainable(self) -> bool | None:
        """The verdict; None where there is none, because the weights are trained."""
        return None if self.trained else self.low <= self.gradient_over_depth <= self.high

    @property
    def verdict(self) -> str:
        """The verdict in a word or two."""
        if self.trained:
            return TRAINED
        if self.trainable:
            return "trainable"
        if not math.isfinite(self.gradient_over_depth) or self.gradient_over_depth == 0:
            return "untrainable: the gradient is zero, NaN or Inf"
        return "untrainable: the gradient " + ("vanishes" if self.gradient_over_depth < self.low else "explodes")

    @property
    def note(self) -> str:
        """A note about blocks that no gradient reaches; empty where there are none."""
        silent = sum(math.isnan(block.gradient_ratio) for block in self.blocks)
        if not silent:
            return ""
        return (
            f"–: no gradient reaches {plural(silent, 'block')} in the first step, as in branches that start at zero "
            "(a norm whose scale is 0 at their end)"
        )

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells of a table with a row for each block; ``DIAGNOSIS_COLUMNS`` names them."""
        return [(block.name, "yes" if block.on_path else "", *block.ratios) for block in self.blocks]

    @property
    def finding(self) -> str:
        """The measurement that the verdict is based on, in a sentence."""
        allowed = "" if self.trained else f" (trainable within {self.low:.3g} to {self.high:.3g})"
        return f"gradient over the depth of {plural(self.depth, 'block')}: {self.gradient_over_depth:.3g}{allowed}"

    def __str__(self) -> str:
        lines = (self.finding, self.note, self.advice, self.verdict)
        return "\n".join([text_table(DIAGNOSIS_COLUMNS, self.rows, left=2), *filter(None, lines)])

    def _repr_html_(self) -> str:
        notes = [*filter(None, (self.finding, self.note, self.advice, self.verdict))]
        return html_table(DIAGNOSIS_COLUMNS, self.rows, left=2, caption="Variance ratios of each block", notes=notes)


def diagnose(
    model: nn.Module,
    inputs: Tensor | Sequence[int],
    *,
    batch: int = 4,
    seed: int = 0,
    trained: bool | None = None,
) -> Diagnosis:
    """Measure whether gradients vanish or explode in a network; ``print`` shows it as a table.

    The network is run as in training; its parameters, buffers, gradients and mode are left as they were.

    Args:
        model: Any network with convolutions.
        inputs: A batch of images, or the channels and spatial size of one for standard normal noise.
        batch: How many noise images.
        seed: Of the noise.
        trained: Whether its weights are trained: then there is no verdict. None: they are where a batch norm has seen
            batches, which is the only sign that a network itself bears.

    Raises:
        DiagnosisError: The network has fewer than two convolutions in a row, or its output has no gradient.
    """
    refuse_unready(model)
    size = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) else checked_size(inputs)
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
    generator = torch.Generator().manual_seed(seed)
    x = inputs if isinstance(inputs, Tensor) else torch.randn(batch, *size, generator=generator)
    x = x.detach().to(like.device, like.dtype).requires_grad_()
    trained = has_tracked_batches(model) if trained is None else trained
    tape = GradientTape(model, generator)
    try:
        with _undisturbed(model, seed):
            with tape, on_input(model, size):
                output = model(x.clone())  # some networks normalize their input in place
            # Of several outputs the deepest: auxiliary heads would add gradient in the middle of the network.
            end = max(tensors_in(output), key=tape.depth_of, default=None)
            if end is None or not end.requires_grad:
                raise DiagnosisError(
                    f"the output of {type(model).__name__} does not depend on its input in a differentiable way"
                )
            end.backward(tape.noise_like(end))
        return _judge(tape, trained=trained)
    finally:
        tape.release()


def has_tracked_batches(model: nn.Module) -> bool:
    """Return whether a batch norm of the network has seen batches in training."""
    counts = (getattr(module, "num_batches_tracked", None) for module in model.modules())
    return any(isinstance(count, Tensor) and not count.is_meta and int(count) > 0 for count in counts)


def _judge(tape: GradientTape, *, trained: bool) -> Diagnosis:
    path = tape.deepest_path()
    if len(path) < 2:
        raise DiagnosisError(f"the doctor needs two convolutions in a row; it found {len(path)}")
    last = tape.energy_behind(path[-1])
    blocks = tuple(
        MeasuredBlock(
            block.name,
            gradient_ratio=_ratio(block.energy_in, block.end.energy),
            activation_ratio=_ratio(block.end.variance, block.variance_in),
            gradient_level=_ratio(block.end.energy, last),
            on_path=block in path,
        )
        for block in tape.blocks
    )
    over_depth, depth = _ratio(path[0].end.energy, last), len(path) - 1
    band = PAPER_BAND ** max(1.0, math.sqrt(depth / PAPER_BLOCKS))
    passed = min(normalizations_between(path[0], path[-1]), NORMALIZATIONS_AT_MOST)
    low, high = 1 / band, band * NORMALIZATION_GROWTH**passed
    healthy = trained or low <= over_depth <= high
    advice = "" if healthy else _advice([b for b in blocks if b.on_path][1:], over_depth)
    return Diagnosis(blocks, over_depth, low, high, depth, advice, trained)


def _advice(blocks: Sequence[MeasuredBlock], over_depth: float) -> str:
    if not (math.isfinite(over_depth) and over_depth > 0):
        return "the gradient is zero, NaN or Inf: look for a layer whose outputs are"
    worst = max(blocks, key=lambda b: abs(math.log(b.gradient_ratio)) if b.gradient_ratio > 0 else math.inf)
    listed = math.prod(block.gradient_ratio for block in blocks)
    listed = listed if math.isfinite(listed) and listed > 0 else over_depth
    mean, rest = listed ** (1 / len(blocks)), over_depth / listed
    between = "" if 0.9 < rest < 1.1 else f"layers between them that are not listed scale it by {rest:.2g}. "
    return between + (
        f"each block scales the gradient's variance by {mean:.2f} on average, {worst.name} the most "
        f"({worst.gradient_ratio:.2f}). Scale the initial weights of each block, of one stage where it has several, by "
        f"{1 / math.sqrt(mean):.2f}, or initialize with cruciform.initialize_(model, 'paper-completed'), "
        "or put a normalization after each convolution"
    )


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else math.nan


@contextmanager
def _undisturbed(model: nn.Module, seed: int) -> Iterator[None]:
    """Run the model in training mode with its own seed, and restore its state."""
    # By the tensors themselves: some networks make buffers, or exchange them, while they run.
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None  # or the backward pass would add to it
    with torch.random.fork_rng(), torch.enable_grad(), in_mode(model, training=True):
        torch.manual_seed(seed)
        try:
            yield
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
