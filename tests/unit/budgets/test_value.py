"""What a plan keeps of a kernel."""

import pytest
import torch

from cruciform.budgets.value import expected_energy, kept_energy, natural_kernel
from cruciform.nn.composite import CompositeConv
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

SPEC = ConvSpec(16, 16, 3, padding=1, bias=False)


def test_a_kernel_that_the_plan_can_compute_is_kept_whole(generator: torch.Generator) -> None:
    for scheme in ("lr", "lr-join", "sf"):
        layer = CompositeConv(make_plan(SPEC, scheme), generator=generator)
        assert kept_energy(layer.plan, layer.dense_kernel().weight.detach()) == pytest.approx(1, abs=1e-4)


def test_a_line_keeps_a_third_of_what_a_random_kernel_holds() -> None:
    kernel = torch.randn(64, 64, 3, 3, generator=torch.Generator().manual_seed(0))
    plan = make_plan(ConvSpec(64, 64, 3, bias=False), "lr")
    assert kept_energy(plan, kernel) == pytest.approx(1 / 3, abs=0.02)


def test_more_freedom_keeps_more() -> None:
    kept = [expected_energy(SPEC, scheme) for scheme in ("lr", "lr-join", "lr-join-wfull", "full")]
    assert kept == sorted(kept)
    assert kept[-1] == 1
    shares = [expected_energy(SPEC, f"cross:full={share}") for share in (0, 0.25, 0.5, 1)]
    assert shares == sorted(shares)


def test_the_share_hardly_depends_on_the_number_of_channels() -> None:
    few, many = (expected_energy(ConvSpec(n, n, 3, bias=False), "lr-join") for n in (32, 512))
    assert few == pytest.approx(many, abs=0.05)


def test_neighboring_taps_are_correlated() -> None:
    kernel = natural_kernel(ConvSpec(64, 64, 3))
    near = torch.corrcoef(torch.stack([kernel[..., 0, 0].flatten(), kernel[..., 0, 1].flatten()]))[0, 1]
    far = torch.corrcoef(torch.stack([kernel[..., 0, 0].flatten(), kernel[..., 2, 2].flatten()]))[0, 1]
    assert near.item() == pytest.approx(0.5, abs=0.05)
    assert far.item() == pytest.approx(0.5**4, abs=0.05)
