"""A network whose layers are fitted one after the other to what the original computes."""

import copy
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cruciform.compression.fitting import fit_network, layer_moments
from cruciform.compression.fitting.fit_network import fit_network_
from cruciform.compression.fitting.layer_moments import Sampling, collect_moments, sample_outputs
from cruciform.compression.fitting.moments import MomentSums
from cruciform.compression.fitting.norms import measure_statistics, move_norms_
from cruciform.compression.fitting.output_fit import fit_outputs
from cruciform.conversion.convert import convert
from cruciform.errors import ConversionError
from cruciform.nn.composite import CompositeConv
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
    for name, found in measure_statistics(model, batches()).items():
        model.get_submodule(name).load_state_dict(
            {"running_mean": found.mean, "running_var": found.variance}, strict=False
        )
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
    moments = collect_moments(trained, specs, batches, sampling)
    for layer in found.layers:
        plan, weight = make_plan(specs[layer.name], "sf"), trained.get_parameter(f"{layer.name}.weight")
        alone = fit_outputs(plan, moments[layer.name][0], weight, centered=True)
        assert layer.relative_error == pytest.approx(alone.relative_error, rel=1e-3)
    assert not any(module._forward_hooks for module in compressed.modules())


def test_what_the_original_gave_is_sampled_once_for_all_layers(
    trained: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled: list[list[str]] = []

    def counted(model: nn.Module, layers: dict[str, ConvSpec], *more: Any) -> Any:
        sampled.append(list(layers))
        return sample_outputs(model, layers, *more)

    monkeypatch.setattr(fit_network, "sample_outputs", counted)
    fits = []
    for memory in (1e9, 0.0):
        monkeypatch.setattr(layer_moments, "MEMORY", memory)
        compressed = convert(trained, "sf", init="fit", input_size=(3, 16, 16)).model.eval()
        fits.append(fit_network_(compressed, trained, batches).layers)
    names = [layer.name for layer in fits[0]]
    assert len(names) > 2
    assert sampled == [names, *([name] for name in names)]
    assert fits[0] == fits[1]  # to the bit, with however many layers at once


def test_samples_of_other_calls_than_the_networks_are_refused(trained: nn.Module) -> None:
    name = next(name for name, module in trained.named_modules() if isinstance(module, nn.Conv2d))
    specs, sampling = {name: spec_of(trained.get_submodule(name))}, Sampling(inputs=96)  # type: ignore[arg-type]
    samples = sample_outputs(trained, specs, batches, sampling)
    twice = {name: [calls * 2 for calls in samples[name]]}
    with pytest.raises(ConversionError, match=f"{name} ran 2 times in the original network and 1 times"):
        collect_moments(trained, specs, batches, sampling, samples=twice)
    given, own = (collect_moments(trained, specs, batches, sampling, samples=one) for one in (samples, None))
    assert torch.equal(given[name][0].cross, own[name][0].cross)


def test_layers_that_wait_compute_the_originals_outputs_and_nothing_else(
    trained: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed = convert(trained, "lr", init="fit", input_size=(3, 16, 16)).model.eval()
    pairs, _ = fit_network._pairs(compressed, trained)
    x, alone = images(4), CompositeConv.forward
    with torch.no_grad():
        wanted, before = trained(x), compressed(x)
        monkeypatch.setattr(CompositeConv, "forward", lambda *given: pytest.fail("it runs"))
        with fit_network._standing_in(pairs.values()):
            assert torch.equal(compressed(x), wanted)
        monkeypatch.setattr(CompositeConv, "forward", alone)
        assert torch.equal(compressed(x), before)
        assert not torch.allclose(before, wanted)


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
    sums.add(torch.tensor([[1.0, float("nan")]]), torch.ones(1, 1))
    with pytest.raises(ConversionError, match="NaN or Inf"):
        sums.moments()
    with pytest.raises(ConversionError, match="no calibration input"):
        sums.moments()


def test_moments_are_those_of_all_patches_whatever_the_batches() -> None:
    """More values than a block, more patches than a chunk, and batches that divide neither."""
    generator = torch.Generator().manual_seed(0)
    patches = torch.randn(3001, 530, generator=generator, dtype=torch.float64)
    outputs = torch.randn(3001, 3, generator=generator, dtype=torch.float64)
    sums = MomentSums(530, 3)
    for some, values in zip(patches.split(977), outputs.split(977), strict=True):
        sums.add(some, values)
    found = sums.moments()
    assert found.count == 3001
    torch.testing.assert_close(found.inputs, patches.T @ patches / 3001, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(found.cross, outputs.T @ patches / 3001, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(found.outputs, outputs.T @ outputs / 3001, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(found.input_mean, patches.mean(0), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("sizes", [[1] * 9, [4, 4, 1], [1, 8]])
def test_parts_together_have_all_inputs_whatever_the_batches(trained: nn.Module, sizes: list[int]) -> None:
    given = images(9)
    layers = {"3": spec_of(trained.get_submodule("3"))}
    every = Sampling(patches=1e9, inputs=9)
    (whole,) = collect_moments(trained, layers, lambda: [given], every)["3"]
    first, second = collect_moments(trained, layers, lambda: given.split(sizes), replace(every, parts=2))["3"]
    assert (first.count, second.count) == (5 * 64, 4 * 64)
    torch.testing.assert_close(first.joined_(second).inputs, whole.inputs)


def test_a_network_is_fitted_one_input_at_a_time(trained: nn.Module) -> None:
    conversion = convert(trained, "sf", init="fit", input_size=(3, 16, 16))
    together, alone = copy.deepcopy(conversion.model), conversion.model
    sampling = Sampling(patches=1e9, inputs=9)
    for model, size in ((together, 9), (alone, 1)):
        fit_network_(model, trained, lambda size=size: images(9).split(size), sampling=sampling)  # type: ignore[misc]
    torch.testing.assert_close(alone(images(4)), together(images(4)), rtol=1e-3, atol=1e-3)


def test_norms_move_by_what_changed_and_keep_what_they_learnt_of_the_rest() -> None:
    x = images()
    original = nn.Sequential(nn.Conv2d(3, 3, 1, bias=False), nn.BatchNorm2d(3, momentum=0.3)).eval()
    original[1].running_mean.fill_(5.0)  # of other images than these
    original[1].running_var.fill_(2.0)
    changed = copy.deepcopy(original)
    with torch.no_grad():
        changed[0].weight.mul_(0.5)
    means = original[0](x).mean((0, 2, 3))
    assert move_norms_(changed, original, lambda: x.split(32)) == 1
    torch.testing.assert_close(changed[1].running_mean, 5.0 - means / 2, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(changed[1].running_var, torch.full((3,), 2.0 * 0.25**0.5), atol=1e-4, rtol=1e-3)
    assert changed[1].momentum == 0.3
    assert not changed[1].training
    assert not changed[1].num_batches_tracked


def test_norms_of_a_network_that_did_not_change_stay_to_the_bit(trained: nn.Module) -> None:
    same = copy.deepcopy(trained)
    assert move_norms_(same, trained, batches) == 2
    assert all(
        torch.equal(a, b) for a, b in zip(same.state_dict().values(), trained.state_dict().values(), strict=True)
    )


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


FIT_A_LARGE_LAYER = """
import sys
import torch
from cruciform.compression.fitting import output_fit
from cruciform.compression.fitting.correction import find_correction
from cruciform.compression.fitting.moments import MomentSums
from cruciform.measure.record import peak_memory
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

channels, rank = map(int, sys.argv[1:])
spec = ConvSpec(channels, channels, (3,) * rank, padding=1)
output_fit.SWEEPS = 1  # each takes the same memory, and long
patch = channels * 3**rank
before = peak_memory()  # of this process alone: getrusage would begin with that of the one that started it
generator = torch.Generator().manual_seed(0)
halves = [MomentSums(patch, channels) for _ in range(2)]
weight = torch.randn(channels, channels, *spec.kernel, generator=generator)
for number in range(4):
    x = torch.randn(4096, patch, generator=generator)
    halves[number % 2].add(x, x @ weight.flatten(1).T)
made = [half.moments() for half in halves]
correction, whole = find_correction(made, weight, None, centered=True)
del made, halves
found = output_fit.fit_outputs(make_plan(spec, "sf"), whole, weight, correction=correction)
assert found.relative_error < found.weight_fit_error
print(peak_memory() - before)
"""


@pytest.mark.slow
def test_a_large_layer_takes_less_than_two_gigabytes() -> None:
    # A 3×3×3 layer of 256 channels; a 3×3 layer of 512 takes less. In a process of its own: the peak of this one may be
    # higher already.
    command = [sys.executable, "-c", FIT_A_LARGE_LAYER, "256", "3"]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert 0.5e9 < peak < 2e9


class Residual(nn.Module):
    """Errors travel past the branches, which draw every map to zero by themselves."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Conv2d(3, 12, 3, padding=1)
        self.branches = nn.ModuleList(nn.Conv2d(12, 12, 3, padding=1) for _ in range(6))
        with torch.no_grad():
            for branch in self.branches:
                branch.weight.mul_(0.5)
                branch.weight[range(12), range(12), 1, 1] -= 0.5

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for branch in self.branches:
            x = x + branch(x)
        return x


def fitted_residual(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> float:
    original = Residual().eval()
    fitted = convert(original, "sf:rank=6", init="fit", input_size=(3, 16, 16)).model
    with monkeypatch.context() as changed:
        for name, value in changes.items():
            changed.setattr(fit_network, name, value)
        fit_network_(fitted, original, batches)
    return output_error(fitted, original, images(seed=1))


@pytest.mark.slow
def test_branches_of_a_residual_network_go_on_correcting_what_passes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: dict[str, Any] = {"find_shortcuts": lambda *given: {}}
    errors = [fitted_residual(monkeypatch, SHARES=shares, **alone) for shares in (fit_network.SHARES, (1.0,))]
    assert errors[0] < 0.2 * errors[1]


def test_errors_that_pass_a_branch_are_corrected_where_it_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = fitted_residual(monkeypatch, find_shortcuts=lambda *given: {})
    assert fitted_residual(monkeypatch) < 0.5 * alone


def test_corrections_are_judged_with_the_original_behind_them(
    trained: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not fitted yet is far worse than it will be, and would hide what a correction is worth."""
    compressed = convert(trained, "sf:rank=2", init="fit", input_size=(3, 16, 16)).model.eval()
    judged: list[float] = []

    def kept(*given: Any) -> float:
        judged.append(fit_network_error(*given))
        return judged[-1]

    fit_network_error = fit_network.output_error
    monkeypatch.setattr(fit_network, "output_error", kept)
    fit_network_(compressed, trained, batches)
    first = judged[: len(fit_network.SHARES)]
    assert max(first) < 1e-9, "before the first layer there is nothing to correct, and all others are the original's"
    assert min(judged[len(first) :]) > 1e-6
