"""The combinations that ``engine_sweep`` tries, and what becomes of each."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.fx.experimental.symbolic_shapes  # heavy: loaded once here, not in every process
import torch.nn.functional as F
from isolation import Report, before_a_guard_page, isolated
from torch import Tensor

from cruciform.nn.channels_last import MEMORY_FORMATS
from cruciform.nn.composite import FUNCTIONAL_CONVOLUTIONS, CompositeConv
from cruciform.plan import FilterGroup, LayerPlan, Stage
from cruciform.spec import ConvSpec, Ints

KERNELS: dict[int, tuple[Ints, ...]] = {
    1: ((1,), (3,), (5,)),
    2: ((1, 1), (3, 1), (1, 3), (1, 5), (3, 3)),
    3: ((1, 1, 1), (3, 1, 1), (1, 3, 1), (1, 1, 3), (1, 3, 3), (3, 1, 3), (3, 3, 1), (3, 3, 3)),
}
STEPS: dict[int, tuple[tuple[Ints, Ints], ...]] = {  # (stride, dilation)
    1: (((1,), (1,)), ((2,), (1,)), ((1,), (2,))),
    2: (((1, 1), (1, 1)), ((2, 2), (1, 1)), ((1, 2), (1, 1)), ((2, 1), (1, 1)), ((1, 1), (2, 2))),
    3: (
        ((1, 1, 1), (1, 1, 1)),
        ((2, 2, 2), (1, 1, 1)),
        ((1, 2, 2), (1, 1, 1)),
        ((2, 1, 1), (1, 1, 1)),
        ((1, 1, 1), (2, 2, 2)),
    ),
}
# (size of the input, filters). oneDNN chooses its kernels by these too: small, ordinary, and wide.
SHAPES: dict[int, tuple[tuple[Ints, int], ...]] = {
    1: (((9,), 16), ((28,), 5), ((101,), 5)),
    2: (((9, 10), 16), ((28, 28), 5), ((9, 57), 5), ((57, 9), 16)),
    3: (((9, 8, 7), 16), ((28, 28, 28), 5), ((6, 7, 57), 5), ((57, 6, 7), 16)),
}
CHANNELS = (1, 2, 3, 4, 16)
BATCH = 2
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05}
"""Largest error as a fraction of the largest expected value; sums are accumulated in float32."""
LAYOUTS = ("contiguous", "channels_last", "cropped")
VARIANTS = tuple(itertools.product(LAYOUTS, ("no_grad", "grad"), (1, 2)))
"""Memory format (cropped: a part of a larger tensor, channels last), gradients, threads."""
SECONDS = 120.0

Variant = tuple[str, str, int]


@dataclass(frozen=True)
class Group:
    """Combinations that share one reference.

    Attributes:
        geometry: Stride, padding and dilation, as torch takes them.
    """

    kernel: Ints
    geometry: tuple[Ints, Ints, Ints]
    channels: int
    dtype: str

    @property
    def variants(self) -> tuple[Variant, ...]:
        """What is tried of it; torch knows no channels-last format for sequences."""
        return VARIANTS if len(self.kernel) > 1 else tuple(v for v in VARIANTS if v[0] == "contiguous")


@dataclass(frozen=True)
class Finding:
    """What became of one combination.

    Attributes:
        engine: What computed.
        what: The combination.
        raw: "ok", or what the engine itself does wrong.
        guarded: The same for what this library lets it compute.
    """

    engine: str
    what: str
    raw: str
    guarded: str

    @property
    def is_crash(self) -> bool:
        """Whether the process did not survive the engine."""
        return self.is_defect and not self.raw.startswith("wrong")

    @property
    def is_defect(self) -> bool:
        """Whether the engine computes something else, or ends the process."""
        return not self.raw.startswith(("ok", "refused"))

    @property
    def is_unguarded(self) -> bool:
        """Whether users of this library would see it."""
        if self.guarded.startswith("refused"):  # right where the engine goes wrong, a defect of ours where it does not
            return self.raw == "ok"
        return self.guarded != "ok"


def torch_groups() -> Iterator[Group]:
    """Returns all groups of combinations."""
    for rank in (1, 2, 3):
        for kernel, (stride, dilation), padded in itertools.product(KERNELS[rank], STEPS[rank], (False, True)):
            padding = tuple((k - 1) // 2 * step if padded else 0 for k, step in zip(kernel, dilation, strict=True))
            if padded and not any(padding):
                continue
            for channels, dtype in itertools.product(CHANNELS, TOLERANCE):
                yield Group(kernel, (stride, padding, dilation), channels, dtype)


def sweep_torch(group: Group) -> list[Finding]:
    """Tries all combinations of a group; one that ends its process does not keep the others from being tried."""
    verdicts = [_verdicts(group, way) for way in ("raw", "guarded")]
    return [
        Finding("torch", f"{_words(group)}, {', '.join(map(str, variant))}", *both)
        for variant, *both in zip(group.variants, *verdicts, strict=True)
    ]


def _words(group: Group) -> str:
    (stride, padding, dilation), kernel = group.geometry, "×".join(map(str, group.kernel))
    return (
        f"{kernel}, stride {stride}, padding {padding}, dilation {dilation}, {group.channels} channels, {group.dtype}"
    )


def _verdicts(group: Group, way: str) -> list[str]:
    verdicts: list[str] = []
    while len(verdicts) < len(group.variants):
        lines, ended = isolated(partial(_examine, group, way, group.variants[len(verdicts) :]), seconds=SECONDS)
        verdicts += lines if ended == "ok" or len(lines) < len(group.variants) - len(verdicts) else lines[:-1]
        if ended != "ok":
            verdicts.append(ended)
    return verdicts


# In the process of its own


def _examine(group: Group, way: str, variants: Sequence[Variant], report: Report) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dtype = getattr(torch, group.dtype)
    samples = []
    for size, filters in SHAPES[len(group.kernel)]:
        x, weight = torch.randn(BATCH, group.channels, *size), torch.randn(filters, group.channels, *group.kernel)
        tensors = tuple(tensor.to(dtype) for tensor in (x, weight, torch.randn(filters)))
        exact = tuple(tensor.double() for tensor in tensors)
        samples.append((tensors, _results(partial(_raw, group), exact, "grad")))
    compute = partial({"raw": _raw, "guarded": _guarded}[way], group)
    for variant in variants:
        report(next(filter(None, (_problem(compute, *sample, variant) for sample in samples)), "ok"))


def _raw(group: Group, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return FUNCTIONAL_CONVOLUTIONS[len(group.kernel)](x, weight, bias, *group.geometry)


def _guarded(group: Group, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    (stride, padding, dilation), d = group.geometry, len(bias)
    spec = ConvSpec(group.channels, d, kernel=group.kernel, stride=stride, padding=padding, dilation=dilation)
    layer = CompositeConv(LayerPlan(spec, (Stage((FilterGroup(group.kernel, d),)),)), device="meta")
    del layer.weight_0_0, layer.bias_0_0
    layer.weight_0_0, layer.bias_0_0 = weight, bias
    return layer(x)


def _problem(
    compute: Callable[..., Tensor], tensors: tuple[Tensor, ...], expected: list[Tensor], variant: Variant
) -> str:
    layout, mode, threads = variant
    torch.set_num_threads(threads)
    x, weight, bias = tensors
    try:
        found = _results(compute, (_laid_out(x, layout), _laid_out(weight, layout, whole=True), bias), mode)
    except (RuntimeError, NotImplementedError) as error:
        return f"refused: {str(error).splitlines()[0][:100]}"
    for what, one, exact in zip(
        ("output", "gradient of the input", "gradient of the weights"), found, expected, strict=False
    ):
        error = float((one.double() - exact).abs().max() / exact.abs().max())
        if not error <= TOLERANCE[str(x.dtype).removeprefix("torch.")]:
            return f"wrong: the {what} by {error:.2g} for an input of {tuple(x.shape[2:])}"
    return ""


def _results(compute: Callable[..., Tensor], tensors: tuple[Tensor, ...], mode: str) -> list[Tensor]:
    if mode == "no_grad":
        with torch.no_grad():
            return [compute(*tensors) for _ in range(2)][-1:]
    x, weight = (tensor.detach().requires_grad_() for tensor in tensors[:2])
    y = compute(x, weight, tensors[2])
    downstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, (x, weight), downstream)]


def _laid_out(tensor: Tensor, layout: str, *, whole: bool = False) -> Tensor:
    if layout == "contiguous":
        return before_a_guard_page(tensor)
    last = MEMORY_FORMATS[tensor.ndim]
    if whole or layout == "channels_last":
        return before_a_guard_page(tensor.clone(memory_format=last))
    around = F.pad(tensor, (1, 1) * (tensor.ndim - 2), value=float("nan"))  # not to be read
    inside = (slice(None), slice(None), *(slice(1, -1) for _ in tensor.shape[2:]))
    return before_a_guard_page(around.clone(memory_format=last))[inside]
