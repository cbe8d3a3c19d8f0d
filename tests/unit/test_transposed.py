"""Networks with transposed convolutions: converted, fitted, collapsed, saved, exported, or refused with the reason."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import cruciform
from cruciform.budgets.survey import Valuation, count_network
from cruciform.conversion.convert import Conversion, convert
from cruciform.conversion.dense import collapse
from cruciform.deployment.search.build import Build, EngineSettings, build_engine
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import ConversionError, PlanError, UnknownNameError
from cruciform.nn.composite import CompositeConv
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

SIZE = (3, 16, 16)
BOTH = "lr or sf:rank=6"


class UpAndDown(nn.Module):
    """A small U: down by two, up by two, and a transposed convolution without a stride."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.same = nn.ConvTranspose2d(8, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.same(torch.relu(self.norm(self.up(torch.relu(self.down(x))))))
        return y


def images(count: int = 2) -> Tensor:
    return torch.randn(count, *SIZE, generator=torch.Generator().manual_seed(0))


def converted(init: str = "auto") -> Conversion:
    torch.manual_seed(0)
    return convert(UpAndDown().eval(), BOTH, init=init, input_size=SIZE)


def test_a_chain_takes_the_place_of_a_transposed_convolution() -> None:
    model, report = converted()
    assert isinstance(model.up, CompositeConv)
    assert str(model.up.plan) == "[1×4: 6] → [4×1: 8]"
    assert [row.action for row in report.layers] == ["replaced"] * 3
    # Each input once in the first stage, each of twice as many in the second.
    assert model.up.plan.macs_from_input((8, 8)) == 8 * 8 * 4 * 8 * 6 + 8 * 16 * 4 * 6 * 8


def test_the_first_scheme_that_applies_counts_for_each_layer() -> None:
    spec = ConvSpec(8, 9, (3, 3, 3), stride=2, padding=1, transposed=True, output_padding=1)
    assert make_plan(spec, "cross3 or sf") == make_plan(spec, "sf")
    assert make_plan(spec, "axial or sf") == make_plan(spec, "axial")
    assert make_plan(ConvSpec(8, 9, (3, 3, 3)), "cross3 or sf") == make_plan(ConvSpec(8, 9, (3, 3, 3)), "cross3")
    with pytest.raises(PlanError, match="would leave holes"):
        make_plan(spec, "cross3 or planes")
    with pytest.raises(UnknownNameError, match="Did you mean 'sf'"):
        make_plan(spec, "cross3 or sff")


def test_a_fitted_chain_of_full_rank_computes_what_the_trained_convolution_does() -> None:
    torch.manual_seed(0)
    dense = UpAndDown().eval()
    model = convert(dense, {"up": "sf:rank=32"}, init="fit", input_size=SIZE).model
    torch.testing.assert_close(model(images()), dense(images()), rtol=1e-4, atol=1e-5)


def test_it_collapses_to_torchs_own_transposed_convolutions() -> None:
    model = converted("fit").model.eval()
    dense = collapse(model)
    assert isinstance(dense.up, nn.ConvTranspose2d)
    assert isinstance(dense.same, nn.ConvTranspose2d)
    torch.testing.assert_close(dense(images()), model(images()))


def test_it_is_the_same_saved_and_loaded(tmp_path: Path) -> None:
    model, report = converted()
    cruciform.save(model, tmp_path / "saved", report)
    loaded = cruciform.load(tmp_path / "saved", UpAndDown()).eval()
    assert torch.equal(loaded(images()), model.eval()(images()))


def test_all_its_weights_get_gradients() -> None:
    model = converted().model.train()
    model(images()).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in model.up.parameters())


@pytest.mark.parametrize("target", ["onnxruntime", "openvino", "torch"])
def test_an_engine_computes_the_same(target: str, tmp_path: Path) -> None:
    model = converted("fit").model.eval()
    engine = build_engine(model, Build({}), EngineSettings(TARGETS.get(target), SIZE), tmp_path)
    with torch.no_grad():
        wanted = model(images()).numpy()
    np.testing.assert_allclose(engine(images().numpy()), wanted, rtol=1e-3, atol=1e-4)


def test_a_budget_may_spend_on_transposed_layers_too() -> None:
    setting = EngineSettings(TARGETS.get("onnxruntime"), SIZE)
    with_them, dense = count_network(UpAndDown(), setting, Valuation(candidates=["sf", "lr"]))
    without, _ = count_network(UpAndDown(), setting, Valuation(candidates=["sf", "lr"], protect=["up", "same"]))
    assert with_them["MACs"] < without["MACs"] < dense["MACs"]


class Sized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.up(self.down(x), output_size=list(x.shape[2:]))
        return y


def test_one_that_is_given_its_output_size_is_named() -> None:
    with pytest.raises(ConversionError, match=r"with output_size in evaluation mode.* protect=\['up'\]"):
        convert(Sized(), {"up": "sf"}, input_size=SIZE)
    assert convert(Sized(), "sf", protect=["up"], input_size=SIZE).report.replaced == 1


def test_a_stride_along_one_axis_alone_leaves_room_for_other_filters() -> None:
    spec = ConvSpec(8, 9, (3, 3, 3), stride=(1, 2, 2), padding=1, transposed=True, output_padding=(0, 1, 1))
    assert str(make_plan(spec, "cross:shapes=1xkxk")) == "[1×3×3: 9]"
