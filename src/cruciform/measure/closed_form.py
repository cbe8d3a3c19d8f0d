"""Multiply-accumulates of one call, computed from its arguments alone.

Counted are convolutions and matrix products, as everybody counts them: one multiply-accumulate (MAC) is one
multiplication and one addition, so FLOPs are twice as many. Element-wise work, pooling, normalization and biases
are not counted; the paper counts each bias once, which ``cruciform.spec.count_macs`` adds.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cruciform.measure.trace import Call, first_argument
from cruciform.plan import LayerPlan
from cruciform.schemes import full
from cruciform.spec import ConvSpec


class Work(NamedTuple):
    """Multiply-accumulates, and the biases that the paper counts once."""

    macs: int
    biases: int = 0


def work_of(call: Call) -> Work | None:
    """Return the work of a call, or None if it is not counted."""
    if call.module is not None:
        return planned_work(call.module.plan, first_argument(call))
    formula = FORMULAS.get(call.operation)
    if formula is None:
        return None
    named = dict(call.kwargs)
    tensors = [named.pop(name) for name in LEADING if name in named]
    return formula(*call.args, *tensors, **named)


def planned_work(plan: LayerPlan, x: Tensor) -> Work:
    """Return the work of a layer that runs a plan."""
    rank = plan.spec.rank
    size, batch = x.shape[-rank:], prod(x.shape[: -rank - 1])
    macs = plan.macs_from_input(size)
    return Work(batch * macs, plan.macs_from_input(size, count="paper") - macs)


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Work:
    rank = weight.ndim - 2
    spec = ConvSpec(
        weight.shape[1] * groups,
        weight.shape[0],
        kernel=tuple(weight.shape[2:]),
        stride=_numbers(stride, rank),
        padding=padding if isinstance(padding, str) else _numbers(padding, rank),
        dilation=_numbers(dilation, rank),
        groups=groups,
        bias=bias is not None,
    )
    return planned_work(full(spec), x)


def _transposed_convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None, *_: Any, **__: Any) -> Work:
    # Every weight is used once for each position of the input.
    rank = weight.ndim - 2
    positions = prod(x.shape[-rank:]) * prod(x.shape[: -rank - 1])
    return Work(positions * weight.numel(), _biases(bias))


def _time_first_convolution(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Work:
    steps = x.shape[0] + 2 * pad - weight.shape[0] + 1
    return Work(steps * x.shape[1] * weight.numel(), _biases(bias))


def _bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Work:
    # torch computes xᵀWy as (xᵀW)y: every weight once, then for each output a dot product with y.
    return Work(prod(input1.shape[:-1]) * (weight.numel() + weight[:, 0].numel()), _biases(bias))


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Work:
    return Work(prod(x.shape[:-1]) * weight.numel(), _biases(bias))


def _matrix_product(a: Tensor, b: Tensor, **_: Any) -> Work:
    if a.ndim == 0 or b.ndim == 0:
        return Work(0)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2] if a.ndim > 1 else 1
    columns = b.shape[-1] if b.ndim > 1 else 1
    return Work(prod(batch) * rows * a.shape[-1] * columns)


def _matrix_product_plus(_: Tensor, a: Tensor, b: Tensor, **__: Any) -> Work:
    return _matrix_product(a, b)


def _inner_product(a: Tensor, b: Tensor, **_: Any) -> Work:
    return _tensor_product(a, b, ([-1], [-1])) if a.ndim and b.ndim else Work(0)


def _tensor_product(a: Tensor, b: Tensor, dims: Any = 2, **_: Any) -> Work:
    contracted = a.shape[a.ndim - dims :] if isinstance(dims, int) else [a.shape[axis] for axis in dims[0]]
    return Work(a.numel() * b.numel() // max(1, prod(contracted)))


def _attention(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> Work:
    pairs = prod(q.shape[:-1]) * k.shape[-2]
    return Work(pairs * (q.shape[-1] + v.shape[-1]))


def _recurrent(x: Tensor, state: Any, weights: Any, *_: Any) -> Work | None:
    if not isinstance(weights, list | tuple):
        return None  # packed sequences of unequal length
    # Every matrix is used once at each step of each sequence; the paper counts each bias once.
    steps = prod(x.shape[:-1])
    biases = sum(weight.numel() for weight in weights if weight.ndim == 1)
    return Work(steps * sum(weight.numel() for weight in weights if weight.ndim == 2), biases)


def _recurrent_cell(x: Tensor, state: Any, *weights: Tensor | None) -> Work | None:
    return _recurrent(x, state, [weight for weight in weights if weight is not None])


def _multi_head_attention(
    q: Tensor, k: Tensor, v: Tensor, embed: int, heads: int, in_weight: Tensor | None, in_bias: Tensor | None,
    *others: Any, **named: Any,
) -> Work | None:  # fmt: skip
    if in_weight is None or named.get("use_separate_proj_weight"):
        return None
    length, source = q.shape[0], k.shape[0]
    batch = q.shape[1] if q.ndim == 3 else 1
    projections = batch * embed * embed * (2 * length + 2 * source)
    out_bias = others[5] if len(others) > 5 else named.get("out_proj_bias")
    return Work(projections + 2 * batch * length * source * embed, _biases(in_bias) + _biases(out_bias))


def _einsum(equation: Any, *operands: Any) -> Work | None:
    tensors = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], list | tuple) else list(operands)
    if not isinstance(equation, str) or len(tensors) > 2:
        return None  # in which order more than two are multiplied is not settled by the arguments
    if len(tensors) == 1:
        return Work(0)
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    first, second = map(_spell_out, inputs.split(","), (tensor.ndim for tensor in tensors))
    sizes: dict[str, int] = {}
    for label, extent in zip(first + second, (*tensors[0].shape, *tensors[1].shape), strict=True):
        sizes[label] = max(extent, sizes.get(label, 1))  # what has only one is repeated
    dotted = sizes.keys() & DOTS
    if arrow:
        kept = set(output) - {"."} | (dotted if "..." in output else set())
    else:
        kept = {label for label in sizes if inputs.count(label) == 1} | dotted
    contracted = (set(first) & set(second)) - kept
    # What only one of them has and the output has not is summed up first; without contraction there is no product
    # of matrices.
    return Work(prod(sizes[label] for label in kept | contracted) if contracted else 0)


DOTS = "₀₁₂₃₄₅₆₇₈₉"
"""What the axes of an ellipsis are called here, from the last one on."""


def _spell_out(term: str, axes: int) -> str:
    before, dots, after = term.partition("...")
    return before + (DOTS[: axes - len(before + after)][::-1] if dots else "") + after


LEADING = (
    "input", "mat1", "mat2", "batch1", "batch2", "mat", "vec", "a", "b", "other", "tensor", "query", "key", "value",
)  # fmt: skip
"""What torch calls the tensors that come first, in their order."""

FORMULAS: dict[str, Callable[..., Work | None]] = {
    **{f"conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": _transposed_convolution for rank in (1, 2, 3)},
    "conv_tbc": _time_first_convolution,
    "linear": _linear,
    "bilinear": _bilinear,
    **dict.fromkeys("matmul mm bmm mv dot vdot __matmul__ linalg_matmul _int_mm".split(), _matrix_product),
    **dict.fromkeys("addmm addmm_ baddbmm baddbmm_ addbmm addbmm_ addmv addmv_".split(), _matrix_product_plus),
    "inner": _inner_product,
    "tensordot": _tensor_product,
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _multi_head_attention,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), _recurrent_cell),
    "einsum": _einsum,
}


def _numbers(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value) * (rank if len(value) == 1 else 1)


def _biases(bias: Tensor | None) -> int:
    return 0 if bias is None else bias.numel()
