import copy
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

from cruciform.deployment.search.build import EngineSettings, build_graph
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import NotLinearError, ShapeError
from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import checksum, spec_of
from cruciform.plan import FilterGroup, LayerPlan, Stage
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

SPEC = ConvSpec(3, 8, 3, padding=1)


def test_the_full_plan_is_torchs_convolution_bit_for_bit() -> None:
    layer, conv = CompositeConv(make_plan(SPEC, "full")), torch.nn.Conv2d(3, 8, 3, padding=1)
    conv.load_state_dict({"weight": layer.weight_0_0, "bias": layer.bias_0_0})
    x = torch.randn(2, 3, 9, 9)
    assert torch.equal(layer(x), conv(x))


def test_parameters_are_named_by_stage_and_group() -> None:
    layer = CompositeConv(make_plan(SPEC, "lr-join"))
    assert list(layer.state_dict()) == [
        "weight_0_0", "bias_0_0", "weight_0_1", "bias_0_1", "weight_1_0", "bias_1_0",
    ]  # fmt: skip
    assert tuple(layer.weight_0_1.shape) == (4, 3, 1, 3)
    assert list(CompositeConv(make_plan(ConvSpec(3, 8, 3, bias=False), "lr")).state_dict()) == [
        "weight_0_0",
        "weight_0_1",
    ]


def test_it_shows_its_plan_in_one_line() -> None:
    shown = repr(CompositeConv(make_plan(ConvSpec(3, 8, 3, stride=2, padding=1), "lr")))
    assert shown == "CompositeConv(3, [3×1: 4 ‖ 1×3: 4], stride=(2, 2), padding=((1, 1), (1, 1)))"


def test_an_input_without_batch_is_taken_as_torch_takes_it() -> None:
    layer, x = CompositeConv(make_plan(SPEC, "lr")), torch.randn(3, 7, 7)
    torch.testing.assert_close(layer(x), layer(x[None])[0])


@pytest.mark.parametrize("shape", [(1, 4, 7, 7), (7, 7), (1, 3, 7, 7, 7)])
def test_an_input_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"takes inputs of \(batch, 3, 2 spatial sizes\), not"):
        CompositeConv(make_plan(SPEC, "lr"))(torch.zeros(shape))


def test_channels_last_and_other_types_give_the_same_answer() -> None:
    layer, x = CompositeConv(make_plan(SPEC, "lr-join-wfull")), torch.randn(2, 3, 8, 8)
    expected = layer(x)
    last = x.to(memory_format=torch.channels_last)
    torch.testing.assert_close(layer.to(memory_format=torch.channels_last)(last), expected)
    torch.testing.assert_close(layer.to(torch.bfloat16)(x.bfloat16()).float(), expected, rtol=0.05, atol=0.1)


def test_a_copy_is_independent_and_equal() -> None:
    layer, x = CompositeConv(make_plan(SPEC, "lr-join")), torch.randn(1, 3, 5, 5)
    again = copy.deepcopy(layer)
    torch.testing.assert_close(again(x), layer(x))
    with torch.no_grad():
        again.weight_0_0.zero_()
    assert layer.weight_0_0.any()


def test_it_answers_what_networks_ask_of_a_convolution() -> None:
    conv = torch.nn.Conv2d(3, 8, (3, 5), stride=(2, 1), padding=(1, 2), dilation=(1, 2), padding_mode="reflect")
    layer = CompositeConv(make_plan(spec_of(conv), "lr"))
    for name in (
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
    ):
        assert getattr(layer, name) == getattr(conv, name)
    assert CompositeConv(make_plan(ConvSpec(3, 8, 4, padding="same"), "lr")).padding == ((1, 2), (1, 2))


def test_gradients_reach_every_parameter() -> None:
    layer = CompositeConv(make_plan(SPEC, "lr-join-wfull"))
    layer(torch.randn(1, 3, 5, 5)).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in layer.parameters())


def test_an_inner_non_linearity_is_run_and_has_no_single_kernel() -> None:
    stages = (Stage((FilterGroup((1, 3), 6),), activation="relu"), Stage((FilterGroup((3, 1), 8),)))
    layer, x = CompositeConv(LayerPlan(SPEC, stages)), torch.randn(1, 3, 5, 5)
    hidden = torch.nn.functional.conv2d(x, layer.weight_0_0, layer.bias_0_0, padding=(0, 1)).relu()
    expected = torch.nn.functional.conv2d(hidden, layer.weight_1_0, layer.bias_1_0, padding=(1, 0))
    torch.testing.assert_close(layer(x), expected)
    with pytest.raises(NotLinearError, match=r"a non-linearity \(relu\) after stage 0"):
        layer.dense_kernel()


def test_a_group_larger_than_the_window_has_a_larger_dense_kernel() -> None:
    plan = LayerPlan(ConvSpec(2, 2, 3, padding=1), (Stage((FilterGroup((1, 5), 1), FilterGroup((3, 1), 1))),))
    spec, weight, _ = CompositeConv(plan).dense_kernel()
    assert (spec.kernel, spec.padding, tuple(weight.shape)) == ((3, 5), ((1, 1), (2, 2)), (2, 2, 3, 5))


def test_it_exports_as_plain_convolutions_and_one_concatenation() -> None:
    layer = CompositeConv(make_plan(SPEC, "lr-join"))
    program = torch.export.export(layer, (torch.randn(2, 3, 8, 8),))
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert called == ["aten.conv2d.default", "aten.conv2d.default", "aten.cat.default", "aten.conv2d.default"]


@pytest.mark.slow
def test_it_compiles_without_a_graph_break() -> None:
    layer, x = CompositeConv(make_plan(SPEC, "lr-join-wfull")), torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(torch.compile(layer, backend="aot_eager", fullgraph=True)(x), layer(x))


def test_on_the_meta_device_nothing_is_drawn() -> None:
    with torch.device("meta"):
        assert CompositeConv(make_plan(SPEC, "lr")).weight_0_0.is_meta


def test_a_tail_before_the_concatenation_is_the_same_as_after(generator: torch.Generator) -> None:
    for scheme in ("lr", "lr-join", "lr-join-wfull"):
        layer = CompositeConv(make_plan(ConvSpec(4, 8, 3, padding=1), scheme), generator=generator)
        x, pool = torch.randn(2, 4, 9, 9, generator=generator, requires_grad=True), torch.nn.MaxPool2d(2)
        before, after = layer(x, pool), pool(layer(x))
        assert torch.equal(before, after)
        weight = torch.randn(before.shape, generator=generator)
        grads = [torch.autograd.grad((y * weight).sum(), (x, *layer.parameters())) for y in (before, after)]
        assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.slow
def test_a_grey_volume_with_channels_last_ends_no_process() -> None:
    code = """
        import torch
        from cruciform import CompositeConv, ConvSpec, make_plan

        volume = torch.randn(8, 1, 28, 28, 28).to(memory_format=torch.channels_last_3d)
        for scheme in ("cross3", "planes", "cross:full=0.25"):
            layer = CompositeConv(make_plan(ConvSpec(1, 66, (3, 3, 3), stride=2, padding=1), scheme))
            layer = layer.to(memory_format=torch.channels_last_3d)
            for _ in range(3):
                layer(volume).sum().backward()
                with torch.no_grad():
                    layer(volume)
    """
    # In a process of its own: what it guards against is heap corruption within torch.
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False).returncode == 0


def test_what_no_window_reads_has_no_gradient_in_16_bits() -> None:
    plan = LayerPlan(ConvSpec(2, 5, (3, 1, 1), stride=(2, 1, 1)), (Stage((FilterGroup((3, 1, 1), 5),)),))
    layer = CompositeConv(plan, dtype=torch.bfloat16)
    for _ in range(10):
        x = torch.randn(2, 2, 6, 7, 57, dtype=torch.bfloat16, requires_grad=True)
        for size in (100, 10_000, 100_000):  # so that memory which nobody fills holds something else than zeros
            del [torch.full((size,), torch.nan) for _ in range(3)][:]
        (gradient,) = torch.autograd.grad(layer(x).sum(), x)
        assert gradient[:, :, 5].eq(0).all()
        assert gradient[:, :, :5].ne(0).any()


def test_a_grey_volume_in_16_bits_keeps_its_channels_last() -> None:
    layer = CompositeConv(make_plan(ConvSpec(1, 6, (3, 3, 3), stride=2, padding=1), "cross3"))
    layer = layer.to(memory_format=torch.channels_last_3d)
    volume = torch.randn(2, 1, 8, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(volume).is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("scheme", ["cross3", "planes", "cross:full=0.25"])
def test_a_volume_in_16_bits_is_computed_as_in_32(scheme: str, padding: int, generator: torch.Generator) -> None:
    for c, size in ((64, 7), (32, 8), (32, 9), (1, 16)):
        spec = ConvSpec(c, 64, (3, 3, 3), stride=2, padding=padding)
        layer = CompositeConv(make_plan(spec, scheme), generator=generator).to(memory_format=torch.channels_last_3d)
        x = torch.randn(4, c, size, size, size, generator=generator).to(memory_format=torch.channels_last_3d)
        found = []
        for enabled in (True, False):
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                y = layer(x).float()
            found.append((y, *torch.autograd.grad(y.square().mean(), tuple(layer.parameters()))))
        for low, high in zip(*found, strict=True):
            assert (low - high).norm() < 0.02 * high.norm()


@pytest.mark.slow
def test_strides_are_exported_as_they_are_to_other_engines_only() -> None:
    layer = CompositeConv(make_plan(ConvSpec(1, 6, (3, 3, 3), stride=2, padding=1), "cross3"))
    found = {}
    for name in ("torch", "onnxruntime"):
        graph = build_graph(nn.Sequential(layer), {}, EngineSettings(TARGETS.get(name), (1, 8, 8, 8)))
        found[name] = {str(node.target) for node in graph.graph.nodes if node.op == "call_function"}
    assert found["onnxruntime"] == {"aten.conv3d.default", "aten.cat.default"}
    assert "aten.slice.Tensor" in found["torch"]


@pytest.mark.slow
def test_strided_volumes_compile_without_a_graph_break() -> None:
    layer = CompositeConv(make_plan(ConvSpec(1, 6, (3, 3, 3), stride=2, padding=1), "cross3"))
    x = torch.randn(2, 1, 8, 8, 8)
    torch.testing.assert_close(torch.compile(layer, backend="aot_eager", fullgraph=True)(x), layer(x))


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", [(1, 1, 3), (1, 3, 3), (1, 3, 1), (3, 1, 1), (1, 1, 1)])
def test_strided_volumes_are_what_torch_computes_in_64_bits(
    kernel: tuple[int, int, int], dtype: torch.dtype, *, batched: bool
) -> None:
    spec = ConvSpec(2, 5, kernel, stride=(2, 2, 2), padding=(1, 1, 1))
    layer = CompositeConv(LayerPlan(spec, (Stage((FilterGroup(kernel, 5),)),)), dtype=dtype)
    x = torch.randn(*((2,) if batched else ()), 2, 8, 9, 7).to(dtype).requires_grad_()
    exact = x.detach().double().requires_grad_()
    weight, bias = (tensor.detach().double() for tensor in (layer.weight_0_0, layer.bias_0_0))
    pair = layer(x), torch.nn.functional.conv3d(exact, weight, bias, 2, 1)
    torch.testing.assert_close(pair[0].double(), pair[1], atol=0.05, rtol=0.02)
    gradients = [torch.autograd.grad(y.square().sum(), z)[0].double() for y, z in zip(pair, (x, exact), strict=True)]
    torch.testing.assert_close(*gradients, atol=0.2, rtol=0.05)


STRIDED_WITH_AVX2 = """
import torch
from cruciform import CompositeConv, ConvSpec, FilterGroup, LayerPlan, Stage
torch.set_num_threads(2)
for stride in ((2, 2), (1, 2), (2, 1)):
    for channels in (1, 2, 3, 4):
        spec = ConvSpec(channels, 5, (1, 1), stride=stride)
        layer = CompositeConv(LayerPlan(spec, (Stage((FilterGroup((1, 1), 5),)),)))
        x = torch.randn(3, channels, 28, 28).to(memory_format=torch.channels_last).requires_grad_()
        exact = layer.weight_0_0.detach().double().requires_grad_()
        wanted = torch.nn.functional.conv2d(x.detach().double(), exact, layer.bias_0_0.detach().double(), stride)
        torch.testing.assert_close(layer(x).double(), wanted, atol=1e-4, rtol=1e-4)
        layer(x).square().sum().backward()
        wanted.square().sum().backward()
        torch.testing.assert_close(layer.weight_0_0.grad.double(), exact.grad, atol=1e-2, rtol=1e-4)
print("right")
"""


@pytest.mark.slow
def test_a_strided_1x1_layer_learns_on_processors_with_avx2_alone() -> None:
    # There torch's own convolution has a wrong gradient of the weights, or ends the process.
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    command = [sys.executable, "-c", STRIDED_WITH_AVX2]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "right\n", done.stderr[-1000:]


def test_a_checksum_tells_names_and_bits_apart_in_any_type() -> None:
    weights = {"a": torch.arange(4.0), "b": torch.tensor(3)}
    same = {name: tensor.clone() for name, tensor in weights.items()}
    assert checksum(weights) == checksum(same)
    others = [
        {"b": weights["b"], "a": weights["a"]},
        {**weights, "a": weights["a"].nextafter(torch.tensor(9.0))},
        {**weights, "a": weights["a"].bfloat16()},
    ]
    assert len({checksum(weights), checksum(weights, "about"), *map(checksum, others)}) == 5
