"""A network whose layers are fitted one after the other to what the original computes."""

import copy
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor, nn

from cruciform.compression.batching import inputs_at_once
from cruciform.compression.fitting.fit_network import fit_network_
from cruciform.compression.fitting.lockstep import Sampling, collect_moments
from cruciform.compression.fitting.moments import MomentSums
from cruciform.compression.fitting.norms import reestimate_norms_
from cruciform.compression.fitting.output_fit import fit_outputs
from cruciform.conversion.convert import convert
from cruciform.errors import ConversionError
from cruciform.nn.inspect import spec_of
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec


def images(count: int = 96, seed: int = 0) -> Tensor:
    """Smooth images, as photographs are: neighboring pixels are alike, which a fit to weights can't know."""
    made = torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed))
    return nn.functional.avg_pool2d(made, 5, 1, 2) * 5


def batches() -> Iterable[Tensor]:
    return images().split(32)


@pytest.fixture
def trained() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
        nn.Conv2d(12, 16, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=2, dilation=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 5),
    )  # fmt: skip
    reestimate_norms_(model, batches())
    return model.eval()


def output_error(model: nn.Module, original: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        y = original(x)
        return float((model(x) - y).square().sum() / (y - y.mean(0)).square().sum())


@pytest.mark.parametrize("scheme", ["lr", "lr-join", "sf", "cross:full=0.25"])
def test_outputs_come_nearer_than_by_the_weights(trained: nn.Module, scheme: str) -> None:
    by_weights = convert(trained, scheme, init="fit", input_size=(3, 16, 16)).model
    fitted = copy.deepcopy(by_weights)
    found = fit_network_(fitted, trained, batches)
    held_out = images(seed=1)
    assert output_error(fitted, trained, held_out) < 0.6 * output_error(by_weights.eval(), trained, held_out)
    assert [layer.name for layer in found.layers] == ["0", "3", "6"]
    assert all(layer.relative_error <= layer.weight_fit_error for layer in found.layers)
    assert found.norms == 2


def test_later_layers_make_up_for_earlier_ones(trained: nn.Module) -> None:
    """After the same first layer, a second that was fitted to what it reads is nearer than one that was not."""
    start = convert(trained, "lr", init="fit", input_size=(3, 16, 16)).model
    one_by_one, at_once = copy.deepcopy(start), copy.deepcopy(start)
    fit_network_(one_by_one, trained, batches)
    found = fit_network_(at_once, trained, batches, sampling=Sampling(inputs=96, block=3))
    assert len(found.layers) == 3

    def second_layer(model: nn.Module) -> Tensor:
        with torch.no_grad():
            y: Tensor = nn.Sequential(*list(model.children())[:4])(images())
        return y - y.mean((0, 2, 3), keepdim=True)  # the norm after it takes the mean

    wanted = second_layer(trained)
    errors = [float((second_layer(model) - wanted).square().mean()) for model in (one_by_one, at_once)]
    assert errors[0] < 0.98 * errors[1]


def test_layers_of_one_block_read_what_the_original_delivers(trained: nn.Module) -> None:
    compressed = convert(trained, "sf", init="fit", input_size=(3, 16, 16)).model.eval()
    sampling = Sampling(inputs=96, block=3)
    found = fit_network_(compressed, trained, batches, sampling=sampling)
    specs = {layer.name: spec_of(trained.get_submodule(layer.name)) for layer in found.layers}  # type: ignore[arg-type]
    moments = collect_moments(trained, trained, specs, batches, sampling)
    for layer in found.layers:
        plan, weight = make_plan(specs[layer.name], "sf"), trained.get_parameter(f"{layer.name}.weight")
        alone = fit_outputs(plan, moments[layer.name], weight, centered=True)
        assert layer.relative_error == pytest.approx(alone.relative_error, rel=1e-3)
    assert not any(module._forward_hooks for module in compressed.modules())


def test_the_original_stays_what_it_is(trained: nn.Module) -> None:
    before = {name: tensor.clone() for name, tensor in trained.state_dict().items()}
    fit_network_(convert(trained, "lr", init="fit", input_size=(3, 16, 16)).model, trained, batches)
    assert all(torch.equal(tensor, before[name]) for name, tensor in trained.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in trained.modules())


def test_a_shared_layer_is_fitted_to_all_its_calls() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.conv = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(self.conv(self.stem(x)).relu())

    torch.manual_seed(0)
    model = Twice().eval()
    by_weights = convert(model, "lr", init="fit", input_size=(3, 16, 16)).model
    fitted = copy.deepcopy(by_weights)
    (layer,) = fit_network_(fitted, model, batches).layers
    assert layer.name == "conv"
    assert output_error(fitted, model, images(seed=1)) < output_error(by_weights, model, images(seed=1))


def test_a_layer_that_no_input_reaches_is_named() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 8, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    model = Unused().eval()
    found = fit_network_(convert(model, "lr", init="fit", input_size=(3, 16, 16)).model, model, batches)
    assert found.skipped == {"unused": "no calibration input reaches it"}
    assert [layer.name for layer in found.layers] == ["used"]


def test_a_network_without_converted_layers_is_refused(trained: nn.Module) -> None:
    with pytest.raises(ConversionError, match="no converted layer"):
        fit_network_(copy.deepcopy(trained), trained, batches)


def test_inputs_with_nan_are_refused() -> None:
    sums = MomentSums(2, 1)
    with pytest.raises(ConversionError, match="NaN or Inf"):
        sums.add(torch.tensor([[1.0, float("nan")]]), torch.ones(1, 1))
    with pytest.raises(ConversionError, match="no calibration input"):
        sums.moments()


def test_norms_get_the_statistics_of_the_inputs_and_keep_their_momentum() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3, momentum=0.3)).eval()
    x = images() + 2
    assert reestimate_norms_(model, x.split(32)) == 1
    torch.testing.assert_close(model[0].running_mean, x.mean((0, 2, 3)), atol=1e-4, rtol=1e-3)
    assert model[0].momentum == 0.3
    assert not model[0].training


def test_one_stage_is_the_least_squares_solution() -> None:
    """Against numpy's own solver on the patches themselves."""
    generator = torch.Generator().manual_seed(0)
    plan = make_plan(ConvSpec(4, 6, (3, 3)), "lr")
    patches = torch.randn(500, 36, generator=generator, dtype=torch.float64) @ torch.randn(36, 36, dtype=torch.float64)
    outputs = torch.randn(500, 6, generator=generator, dtype=torch.float64)
    sums = MomentSums(36, 6)
    sums.add(patches, outputs)
    found = fit_outputs(plan, sums.moments(), torch.zeros(6, 4, 3, 3, dtype=torch.float64), ridge=1e-12)
    taps = torch.zeros(3, 3, dtype=torch.bool)
    taps[:, 1] = True  # the first half of the filters are 3×1
    columns = taps.flatten().repeat(4)
    design = torch.cat([patches[:, columns], torch.ones(500, 1, dtype=torch.float64)], 1)
    solved = torch.linalg.lstsq(design, outputs[:, :3]).solution
    weight, bias = found.parameters[0][0]
    torch.testing.assert_close(weight.flatten(1).T, solved[:-1], atol=1e-6, rtol=1e-5)
    assert bias is not None
    torch.testing.assert_close(bias, solved[-1], atol=1e-6, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [ConvSpec(512, 512, (3, 3), padding=1), ConvSpec(256, 256, (3, 3, 3), padding=1)])
def test_a_large_layer_takes_less_than_two_gigabytes(spec: ConvSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr("cruciform.compression.fitting.output_fit.SWEEPS", 1)  # each takes the same memory, and long
    patch = spec.in_channels * torch.Size(spec.kernel).numel()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    generator = torch.Generator().manual_seed(0)
    sums = MomentSums(patch, spec.out_channels)
    weight = torch.randn(spec.out_channels, spec.in_channels, *spec.kernel, generator=generator)
    for _ in range(4):
        x = torch.randn(4096, patch, generator=generator)
        sums.add(x, x @ weight.flatten(1).T)
    found = fit_outputs(make_plan(spec, "sf"), sums.moments(), weight)
    assert found.relative_error < found.weight_fit_error
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2_000_000  # kilobytes


def test_the_batch_follows_from_activations_not_from_inputs() -> None:
    shallow = nn.Conv2d(3, 8, 3)
    deep = nn.Sequential(*[nn.Conv2d(3 if not n else 64, 64, 3, padding=1) for n in range(20)])
    image = torch.zeros(1, 3, 32, 32)
    assert inputs_at_once(shallow, image) > 50 * inputs_at_once(deep, image)
    assert inputs_at_once(deep, torch.zeros(1, 3, 256, 256)) == 1
