"""Any convolution either converts correctly or is refused by an error of ours: never a crash, never a wrong shape."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import MODES, inputs, per_axis, specs
from torch import nn

from cruciform.conversion.convert import convert
from cruciform.conversion.dense import collapse
from cruciform.conversion.fit import fit_parameters, relative_residual
from cruciform.errors import CruciformError, NotLinearError
from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import spec_of
from cruciform.schemes import SCHEMES, full, make_plan

# torch's own convolution warns of even windows with "same" padding.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
# torch's own Conv3d in 16 bits reads outside its memory for some of these: other values each time, once a crash.
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
FILLS = ("normal", "zeros", "infinite", "not a number", "tiny", "huge", "transposed in memory")


@st.composite
def convolutions(draw: st.DrawFn) -> nn.Module:
    rank, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    padding = draw(per_axis(rank, 0, 3) | st.sampled_from(["same", "valid"]))
    kernel = draw(per_axis(rank, 1, 5))
    dtype = draw(st.sampled_from(DTYPES if rank < 3 else DTYPES[:2]))
    if dtype is torch.float16 and 1 in kernel:
        # Conv1d(1, 4, 1, stride=3, padding=2, dilation=2) of one pixel ends torch 2.13 with a segmentation fault.
        dtype = torch.float32
    conv = CONVS[rank](
        groups * draw(st.integers(1, 4)),
        groups * draw(st.integers(1, 5)),
        kernel,
        stride=1 if padding == "same" else draw(per_axis(rank, 1, 3)),
        padding=padding,
        dilation=draw(per_axis(rank, 1, 3)),
        groups=groups,
        bias=draw(st.booleans()),
        padding_mode=draw(st.sampled_from(MODES)),
        dtype=dtype,
    )
    fill = draw(st.sampled_from(FILLS))
    with torch.no_grad():
        if fill == "transposed in memory":
            conv.weight.data = conv.weight.data.transpose(0, 1).contiguous().transpose(0, 1)
        elif fill != "normal":
            value = {"zeros": 0.0, "infinite": torch.inf, "not a number": torch.nan, "tiny": 1e-7, "huge": 6e4}[fill]
            conv.weight.fill_(value)
    return conv


@given(st.data(), convolutions(), st.sampled_from(SCHEMES.names()), st.sampled_from(["paper-completed", "fit"]))
def test_any_convolution_converts_or_is_refused(data: st.DataObject, conv: nn.Module, scheme: str, init: str) -> None:
    x = data.draw(inputs(full(spec_of(conv)))).to(conv.weight.dtype)
    expected = conv(x).shape
    try:
        converted, report = convert(nn.Sequential(conv), scheme, init=init, input_size=x.shape[1:])
    except CruciformError as error:
        assert str(error)  # noqa: PT017
        return
    y = converted(x)
    assert y.shape == expected
    assert y.dtype == conv.weight.dtype
    assert report.params_after == sum(p.numel() for p in converted.parameters())
    (row,) = report.layers
    assert (row.action == "replaced") == isinstance(converted[0], CompositeConv)
    assert row.reason or row.plan
    if row.action != "replaced":
        # Its weights, not its outputs, which torch need not compute in the same way twice.
        kept = converted[0].state_dict()
        assert type(converted[0]) is type(conv)
        assert all(torch.equal(kept[name].nan_to_num(), t.nan_to_num()) for name, t in conv.state_dict().items())


@given(st.data(), specs(), st.sampled_from(SCHEMES.names()), st.integers(0, 2**31))
def test_collapsing_keeps_the_function(data: st.DataObject, spec: object, scheme: str, seed: int) -> None:
    from strategies import layer_of

    plan = make_plan(spec, scheme)
    layer, x = layer_of(plan, seed), data.draw(inputs(plan))
    try:
        dense = collapse(nn.Sequential(layer))
    except NotLinearError:
        assert plan.border_biases
        return
    torch.testing.assert_close(dense(x), layer(x))


@given(specs(), st.sampled_from(SCHEMES.names()), st.integers(0, 2**31))
def test_a_fit_recovers_what_the_plan_can_represent(spec: object, scheme: str, seed: int) -> None:
    from strategies import layer_of

    plan = make_plan(spec, scheme)
    layer = layer_of(plan, seed)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith("bias"):
                parameter.zero_()
    kernel = layer.dense_kernel().weight.detach()
    assert relative_residual(plan, fit_parameters(plan, kernel, None), kernel) < 1e-5


@given(convolutions())
def test_converting_twice_is_converting_once(conv: nn.Module) -> None:
    once = convert(nn.Sequential(conv), "lr").model
    twice, report = convert(once, "lr")
    assert report.replaced == 0
    assert list(twice.state_dict()) == list(once.state_dict())


def test_the_strategy_is_not_empty() -> None:
    with pytest.raises(CruciformError):
        convert(nn.Sequential(nn.Conv2d(1, 1, 3)), "lr", input_size=(1, 2, 2))
