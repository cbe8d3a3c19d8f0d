import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from cruciform import load
from cruciform.cli.main import app
from cruciform.conversion.convert import convert
from cruciform.conversion.fit import fit_parameters, relative_residual
from cruciform.errors import ConversionError
from cruciform.nn.composite import CompositeConv
from cruciform.plan import FilterGroup, LayerPlan, Stage
from cruciform.schemes import SCHEMES, cross, make_plan
from cruciform.spec import ConvSpec

SPECS = [
    ConvSpec(16, 32, 3, padding=1),
    ConvSpec(32, 16, (5, 3), stride=(2, 1)),
    ConvSpec(6, 24, (3, 3, 3), padding=1),
    ConvSpec(3, 64, 3, bias=False),
    ConvSpec(5, 7, 4, padding="same"),
]
OTHERS = {
    "narrow": cross(width=0.5, join=True),
    "wide": cross(width=1.5, full=0.2, join=True),
    "shapes": cross(width=0.75, shapes=["k", "1", "2"], join=True),
}


def natural(spec: ConvSpec, seed: int = 0) -> torch.Tensor:
    """A kernel as training makes them: smooth in space, its channels correlated, spectra that fall off."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(spec.out_channels, 40, generator=generator) * torch.logspace(0, -2, 40)
    kernel = (rows @ torch.randn(40, spec.in_channels * math.prod(spec.kernel), generator=generator)).reshape(
        spec.out_channels, spec.in_channels, *spec.kernel
    )
    for axis in range(2, kernel.ndim):
        kernel = kernel + 0.7 * kernel.roll(1, axis)
    return kernel


@pytest.mark.parametrize("scheme", [*SCHEMES.names(), *OTHERS])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_kernel_built_from_the_plan_is_recovered(scheme: str, spec: ConvSpec) -> None:
    plan = make_plan(spec, OTHERS.get(scheme, scheme))
    layer = CompositeConv(plan, generator=torch.Generator().manual_seed(0))
    kernel = layer.dense_kernel().weight.detach()
    fitted = fit_parameters(plan, kernel, None)
    assert relative_residual(plan, fitted, kernel) < 1e-5


@pytest.mark.parametrize("shape", [(3, 3), (5, 5), (3, 3, 3)])
def test_the_residual_falls_with_the_width(shape: tuple[int, ...]) -> None:
    spec = ConvSpec(24, 32, shape, padding=1)
    kernel = natural(spec)
    residuals = []
    for width in (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0):
        plan = make_plan(spec, cross(width=width, join=True))
        residuals.append(relative_residual(plan, fit_parameters(plan, kernel, None), kernel))
    assert residuals == sorted(residuals, reverse=True)
    assert residuals[0] > residuals[-1]


def test_without_a_join_the_fit_is_the_projection_on_the_taps() -> None:
    spec = ConvSpec(4, 6, 3)
    kernel = torch.randn(6, 4, 3, 3)
    plan = make_plan(spec, "lr")
    ((vertical, _), (horizontal, _)) = fit_parameters(plan, kernel, torch.zeros(6))[0]
    assert torch.equal(vertical, kernel[:3, :, :, 1:2])
    assert torch.equal(horizontal, kernel[3:, :, 1:2, :])


def test_the_separable_fit_is_the_best_of_its_rank() -> None:
    """Eckart and Young: no matrix of that rank is closer than the truncated SVD."""
    spec = ConvSpec(6, 4, 3)
    kernel = torch.randn(4, 6, 3, 3, dtype=torch.float64)
    plan = make_plan(spec, "sf")
    matrix = kernel.permute(0, 2, 1, 3).reshape(12, 18)
    best = torch.linalg.svdvals(matrix)[4:].norm() / matrix.norm()
    fitted = fit_parameters(plan, kernel, torch.zeros(4))
    assert relative_residual(plan, fitted, kernel) == pytest.approx(float(best), rel=1e-6)


def test_decomposition_that_is_not_one() -> None:
    """A peer's spatial decomposition does not reproduce even a separable kernel. Ours does, outputs included."""
    torch.manual_seed(0)
    conv = nn.Conv2d(6, 8, 3, padding=1)
    factors = [torch.randn(*shape) for shape in ((8, 4), (4, 3), (4, 6), (4, 3))]
    with torch.no_grad():
        conv.weight.copy_(torch.einsum("dk,kh,kc,kw->dchw", *factors))
    converted, report = convert(nn.Sequential(conv), "sf", init="fit")
    assert report.layers[0].residual < 1e-5
    x = torch.randn(2, 6, 9, 9)
    torch.testing.assert_close(converted(x), conv(x), rtol=1e-4, atol=1e-4)


def test_biases_are_kept() -> None:
    conv = nn.Conv2d(4, 6, 3)
    layer = convert(conv, "lr-join", init="fit").model
    assert torch.equal(layer.bias_1_0, conv.bias)
    assert not layer.bias_0_0.any()
    layer = convert(conv, "lr", init="fit").model
    assert torch.equal(torch.cat([layer.bias_0_0, layer.bias_0_1]), conv.bias)


def test_zeros_are_fitted_by_zeros() -> None:
    plan = make_plan(ConvSpec(3, 4, 3), "lr-join")
    fitted = fit_parameters(plan, torch.zeros(4, 3, 3, 3), None)
    assert relative_residual(plan, fitted, torch.zeros(4, 3, 3, 3)) == 0
    assert all(weight.isfinite().all() for stage in fitted for weight, _ in stage)


def test_what_can_not_be_fitted_is_refused() -> None:
    spec = ConvSpec(3, 4, 3)
    with pytest.raises(ConversionError, match="needs \\(4, 3, 3, 3\\)"):
        fit_parameters(make_plan(spec, "lr"), torch.zeros(4, 3, 5, 5), None)
    with pytest.raises(ConversionError, match="NaN or Inf"):
        fit_parameters(make_plan(spec, "lr"), torch.full((4, 3, 3, 3), torch.inf), None)
    inner = LayerPlan(spec, (Stage((FilterGroup((1, 3), 4),), activation="relu"), Stage((FilterGroup((3, 1), 4),))))
    with pytest.raises(ConversionError, match="a non-linearity"):
        fit_parameters(inner, torch.zeros(4, 3, 3, 3), None)
    with pytest.raises(ConversionError, match="is larger than the kernel"):
        fit_parameters(make_plan(spec, cross(shapes=["1x5"])), torch.zeros(4, 3, 3, 3), None)


NETWORK_OF_A_USER = """
import torch
from torch import nn

def make():
    model = nn.Sequential(nn.Conv2d(6, 8, 3, padding=1))
    model.load_state_dict(torch.load("trained.pt", weights_only=True))
    return model
"""


def test_the_command_fits_the_trained_weights_that_a_function_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Was refused for want of trained weights, which it has."""
    conv = nn.Conv2d(6, 8, 3, padding=1)
    factors = [torch.randn(*shape) for shape in ((8, 4), (4, 3), (4, 6), (4, 3))]
    with torch.no_grad():
        conv.weight.copy_(torch.einsum("dk,kh,kc,kw->dchw", *factors))
    torch.save(nn.Sequential(conv).state_dict(), tmp_path / "trained.pt")
    (tmp_path / "network_of_a_user.py").write_text(NETWORK_OF_A_USER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    command = "convert network_of_a_user:make --init fit --scheme sf --input 6x9x9 -o fitted"
    shown = CliRunner().invoke(app, command.split(), catch_exceptions=False).output
    assert "relative residual of the fitted weights" in shown
    fitted = load(tmp_path / "fitted", sys.modules["network_of_a_user"].make())
    x = torch.randn(2, 6, 9, 9)
    torch.testing.assert_close(fitted(x), conv(x), rtol=1e-4, atol=1e-4)
    with pytest.raises(ConversionError, match="nin is built without trained weights.* trained network of your own"):
        CliRunner().invoke(app, ["convert", "nin", "--init", "fit"], catch_exceptions=False)


@pytest.mark.slow
def test_allocating_full_svd_on_conv3d() -> None:
    """A peer needs the full SVD of the kernel. A Conv3d(1024, 512, 3) must fit in 2 GB and 60 s."""
    code = """
import re, torch, time
from pathlib import Path
from cruciform.conversion.fit import fit_parameters
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec
torch.set_num_threads(2)
start, kernel = time.perf_counter(), torch.randn(512, 1024, 3, 3, 3)
fit_parameters(make_plan(ConvSpec(1024, 512, (3, 3, 3)), "lr-join"), kernel, None)
# Not getrusage: its peak is also that of the process which started this one.
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(int(peak[1]) / 2**20, time.perf_counter() - start)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    gigabytes, seconds = map(float, done.stdout.split())
    assert gigabytes < 2
    assert seconds < 60
