"""Of the correction of earlier errors a layer keeps what holds on inputs that it was not fitted to."""

import torch
from torch import Tensor

from cruciform.compression.fitting.correction import Correction, find_correction
from cruciform.compression.fitting.moments import Moments, MomentSums
from cruciform.compression.fitting.output_fit import fit_outputs
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

SPEC = ConvSpec(6, 4, (3, 3), padding=1)
PATCH = 54


def rows(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the trained kernel, patches with the errors of earlier layers, and what the original computes."""
    weight = torch.randn(4, 6, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(count, PATCH, dtype=torch.float64, generator=generator)
    wrong = exact + 0.7 * torch.randn(count, PATCH, dtype=torch.float64, generator=generator)
    return weight, wrong, exact @ weight.flatten(1).T + 3.0


def moments(patches: Tensor, outputs: Tensor) -> Moments:
    sums = MomentSums(PATCH, 4)
    sums.add(patches, outputs)
    return sums.moments()


def correction_of(count: int) -> Correction:
    weight, patches, outputs = rows(count, 1)
    halves = moments(patches[::2], outputs[::2]), moments(patches[1::2], outputs[1::2])
    return find_correction(halves, weight, None, centered=True)[0]


def error_on_others(count: int, correction: Correction | None) -> float:
    weight, patches, outputs = rows(count, 1)
    whole = moments(patches, outputs)
    found = fit_outputs(make_plan(SPEC, "full"), whole, weight, centered=True, correction=correction)
    kernel = found.parameters[0][0][0].flatten(1)
    _, others, wanted = rows(2000, 2)
    left = wanted - others @ kernel.T
    return float((left - left.mean(0)).square().sum(1).mean())


def test_many_inputs_keep_nearly_all_of_it_and_few_keep_little() -> None:
    assert (correction_of(20_000).kept > 0.95).all()
    assert correction_of(60).kept.mean() < 0.3


def test_the_error_on_other_inputs_is_lower_than_with_all_of_it_where_inputs_are_few() -> None:
    assert error_on_others(60, correction_of(60)) < 0.8 * error_on_others(60, None)
    assert error_on_others(20_000, correction_of(20_000)) < 1.01 * error_on_others(20_000, None)


def test_inputs_without_errors_have_nothing_to_correct() -> None:
    weight, patches, _ = rows(200, 1)
    outputs = patches @ weight.flatten(1).T
    halves = moments(patches[::2], outputs[::2]), moments(patches[1::2], outputs[1::2])
    correction, whole = find_correction(halves, weight, None, centered=False)
    found = fit_outputs(make_plan(SPEC, "full"), whole, weight, centered=False, correction=correction)
    torch.testing.assert_close(found.parameters[0][0][0], weight)


def test_without_it_a_layer_computes_what_its_kernel_makes_of_the_inputs_means_included() -> None:
    weight, patches, outputs = rows(500, 1)
    bias = torch.arange(4.0, dtype=torch.float64)
    halves = moments(patches[::2], outputs[::2]), moments(patches[1::2], outputs[1::2])
    correction, whole = find_correction(halves, weight, bias, centered=True)
    found = fit_outputs(make_plan(SPEC, "full"), whole, weight, centered=True, correction=correction.at(0.0))
    torch.testing.assert_close(found.parameters[0][0][0], weight)
    torch.testing.assert_close(found.bias, bias)


def test_halves_join_to_the_moments_of_the_whole() -> None:
    _, patches, outputs = rows(50, 1)
    joined = moments(patches[:20], outputs[:20]).joined_(moments(patches[20:], outputs[20:]))
    whole = moments(patches, outputs)
    assert joined.count == 50
    for name in ("input_mean", "output_mean", "inputs", "cross", "outputs"):
        torch.testing.assert_close(getattr(joined, name), getattr(whole, name))
