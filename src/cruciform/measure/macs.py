"""Count parameters and multiply-accumulates of any network, per layer and in total, in two independent ways.

One way is arithmetic on plans and arguments (``closed_form``), the other is torch's own counter, which listens at
the dispatcher to what is really run. They share no code. Where they disagree no total is given: ``CountError``
names the layer. Tensors live on the meta device, so a count takes no arithmetic and no memory.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from cruciform.errors import CountError, ShapeError, first_line
from cruciform.measure.closed_form import work_of
from cruciform.measure.dry_run import META, call_with, let_norms_run_on_one_input, shapes_of, state_on, zero_input
from cruciform.measure.network_profile import LayerCount, Profile
from cruciform.measure.state_guard import in_mode
from cruciform.measure.trace import (
    CONVOLUTION_CALLS,
    TRANSPOSED_CALLS,
    Call,
    Tracer,
    checked_size,
    first_argument,
    on_input,
    tensors_in,
)
from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import PLAIN_CONVOLUTIONS, plan_of, refuse_unready, spec_of
from cruciform.spec import Ints

aten = torch.ops.aten

# Calls that move no data or only look at it; all others that are not counted are named in the profile.
UNCOUNTED_CALLS = frozenset(
    "__get__ __set__ size dim numel is_floating_point view view_as reshape flatten unflatten permute transpose "
    "squeeze unsqueeze expand expand_as chunk split narrow detach contiguous __getitem__ dropout to type".split()
)


def _flops_of_three(a: Ints, b: Ints, c: Ints, without_a: Ints, without_b: Ints, without_c: Ints, summed: Ints) -> int:
    """FLOPs of ``aten._trilinear``: a and b are multiplied first, and summed over the axes that c does not have."""
    axes = range(len(a) + len(without_a))
    sizes = dict.fromkeys(axes, 1)
    for shape, missing in ((a, without_a), (b, without_b), (c, without_c)):
        for axis, extent in zip((axis for axis in axes if axis not in missing), shape, strict=True):
            sizes[axis] = max(extent, sizes[axis])
    summed_first = set(summed) & set(without_c)
    first = prod(sizes[axis] for axis in axes if axis not in without_a or axis not in without_b)
    return 2 * (first + prod(sizes[axis] for axis in axes if axis not in summed_first))


# Products with vectors, in place, of integers, of three tensors: what torch's own counter takes for no work at all.
BY_SHAPES: dict[Any, Any] = {
    **dict.fromkeys((aten.mv, aten.dot, aten.vdot), lambda a, b, **_: 2 * prod(a)),
    **dict.fromkeys((aten.addmv, aten.addmv_), lambda _, a, b, **__: 2 * prod(a)),
    **dict.fromkeys((aten.addbmm, aten.addbmm_, aten.baddbmm_), lambda _, a, b, **__: 2 * prod(a) * b[-1]),
    aten.addmm_: lambda _, a, b, **__: 2 * prod(a) * b[-1],
    aten._int_mm: lambda a, b, **_: 2 * prod(a) * b[-1],
    aten.conv_tbc: lambda x, w, *_, out_shape, **__: 2 * prod(out_shape) * prod(w[:-1]),
    aten._trilinear: lambda *shapes, **_: _flops_of_three(*shapes[:7]),
}


def profile(model: nn.Module, input_size: Sequence[int], *, training: bool = False) -> Profile:
    """Count parameters and MACs of a network.

    Args:
        model: Any network; it is not changed.
        input_size: Channels and spatial size of one input: ``(3, 224, 224)``.
        training: Count it as in training, auxiliary heads included, rather than as deployed.

    Raises:
        CountError: The two counts disagree.
        ShapeError: The network does not take such an input.
    """
    refuse_unready(model)
    input_size = checked_size(input_size)
    # Networks that are counted in another form than users run them have a note.
    notes = [note for module in model.modules() if (note := getattr(type(module), "counted_as", ""))]
    meter = _Meter(model)
    with in_mode(model, training=training), torch.no_grad():
        let_norms_run_on_one_input(model)
        try:
            _run(model, meter, input_size, META)
        except (CountError, ShapeError):
            raise
        except Exception as error:
            # Some networks look at values, which the meta device has not.
            notes.append(f"run on real tensors, since it failed on the meta device: {first_line(error)}")
            meter = _Meter(model)
            device = next((p.device for p in model.parameters()), torch.device("cpu"))
            with on_input(model, input_size):
                _run(model, meter, input_size, device)
    params = _count_parameters(model, meter.layers)
    rows = [row for row in meter.layers.values() if row.params or row.macs]
    return Profile(
        tuple(rows),
        input_size,
        params,
        sum(row.macs for row in rows),
        sum(row.macs_paper for row in rows),
        meter.outputs,
        dict(sorted(meter.uncounted.items())),
        tuple(notes),
    )


def _run(model: nn.Module, meter: "_Meter", input_size: Sequence[int], device: torch.device) -> None:
    state, x = state_on(model, device), zero_input(model, input_size, device)
    with meter.dispatcher, meter:
        output = call_with(model, state, x)
    meter.compare_totals()
    meter.outputs = shapes_of(output)


class _Meter(Tracer):
    """Count every call twice and compare."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.dispatcher = FlopCounterMode(display=False, custom_mapping=BY_SHAPES)
        self.uncounted: Counter[str] = Counter()
        self.outputs: tuple[tuple[int, ...], ...] = ()
        self.layers = {name: _row(name, module) for name, module in model.named_modules()}

    def before(self, call: Call) -> None:
        call.note = self.dispatcher.get_total_flops()

    def after(self, call: Call, output: Any) -> None:
        seen, odd = divmod(self.dispatcher.get_total_flops() - call.note, 2)
        work = work_of(call)
        macs, biases = work if work is not None else (0, 0)
        if macs != seen or odd:
            where = f"layer {call.layer!r}" if call.layer else "the network itself"
            reason = "" if work is not None else ", which has no formula here"
            raise CountError(
                f"{where} calls {call.operation}{reason}: {macs:,} multiply-accumulates by arithmetic, {seen:,} by "
                "the dispatcher. One of them is wrong, so no total is given"
            )
        row = self.layers[call.layer]
        if work is not None:
            row.macs += macs
            row.macs_paper += macs + biases
            if call.module is not None or call.operation in CONVOLUTION_CALLS | TRANSPOSED_CALLS:
                row.inputs.append(self._input_of(call))
        elif call.operation not in UNCOUNTED_CALLS and any(True for _ in tensors_in(output)):
            self.uncounted[call.operation] += 1
        if isinstance(output, Tensor) and (work is not None or not row.output):
            row.output = tuple(output.shape[1:])

    def compare_totals(self) -> None:
        """Raise if the dispatcher saw work between the calls that were compared one by one."""
        counted, seen = sum(row.macs for row in self.layers.values()), self.dispatcher.get_total_flops() // 2
        if counted != seen:
            raise CountError(
                f"{counted:,} multiply-accumulates by arithmetic, {seen:,} by the dispatcher: some calls are not "
                "visible from Python, for instance in a torch.jit.script function; count the network without it. No "
                "total is given"
            )

    def _input_of(self, call: Call) -> tuple[int, ...]:
        """Return batch and spatial size of what a convolution was given, before it padded that."""
        shape = first_argument(call).shape
        rank = call.module.plan.spec.rank if call.module else int(call.operation[-2])
        batch, size = prod(shape[: -rank - 1]), list(shape[-rank:])  # an input may come without its batch
        owner = self._model.get_submodule(call.layer)
        if call.module is None and isinstance(owner, PLAIN_CONVOLUTIONS) and owner.padding_mode != "zeros":
            size = [extent - sum(pad) for extent, pad in zip(size, spec_of(owner).padding, strict=True)]
        return (batch, *size)


def _row(name: str, module: nn.Module) -> LayerCount:
    plan = plan_of(module)
    shown = str(plan) if plan is not None and not isinstance(module, nn.Linear) else ""
    return LayerCount(name, type(module).__name__, shown)


def _count_parameters(model: nn.Module, rows: Mapping[str, LayerCount]) -> int:
    """Count parameters by plan and by tensor, each tensor once, and compare."""
    seen: set[int] = set()
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if id(p) not in seen]
        shared = any(id(p) in seen for p in module.parameters(recurse=False))
        seen.update(map(id, own))
        rows[_owner(name)].params += sum(p.numel() for p in own)
        # A subclass, or an older weight norm, may own more than a convolution does; a parametrisation owns it instead.
        plain = type(module) is CompositeConv or module._parameters.keys() <= {"weight", "bias"}
        known = type(module) in (CompositeConv, *PLAIN_CONVOLUTIONS, nn.Linear)
        plan = plan_of(module) if known and plain and not shared else None
        if plan is not None and plan.params != rows[name].params:
            raise CountError(
                f"layer {name!r} has {rows[name].params:,} parameters, but its plan {plan} has {plan.params:,}"
            )
    total = sum(p.numel() for p in model.parameters())
    if total != sum(row.params for row in rows.values()):
        raise CountError(f"the network has {total:,} parameters, but the sum over its layers differs")
    return total


def _owner(name: str) -> str:
    """Return the layer whose weight a module computes, as parametrizations do; else the module itself."""
    owner, found, _ = f".{name}".partition(".parametrizations.")
    return owner[1:] if found else name
