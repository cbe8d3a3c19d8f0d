"""A trained network converted by one scheme: shapes go to the outputs that they suit, layers fit the original."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from cruciform.compression.warm_start import fitted_conversion
from cruciform.compression.warm_start.fitted_conversion import check_can_be_fitted, convert_fitted
from cruciform.conversion.convert import convert
from cruciform.conversion.eligible import adaptation_of
from cruciform.errors import ConversionError

SIZE = (3, 12, 12)


def images(count: int = 50, seed: int = 0) -> Tensor:
    made = torch.randn(count, *SIZE, generator=torch.Generator().manual_seed(seed))
    return nn.functional.avg_pool2d(made, 3, 1, 1) * 3


@pytest.fixture
def trained() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(96, 5),
    )  # fmt: skip
    for layer in (model[0], model[4]):  # a column or a row of every filter, alternating: only another order is a cross
        mask = torch.zeros(layer.out_channels, 1, 3, 3)
        mask[0::2, :, 1, :] = 1
        mask[1::2, :, :, 1] = 1
        layer.weight.data.mul_(mask)
    return model


def difference(model: nn.Module, original: nn.Module) -> float:
    x = images(8, seed=1)
    with torch.no_grad():
        return float((model.eval()(x) - original.eval()(x)).abs().max() / original(x).std())


def test_scrambled_rows_and_columns_are_assigned_exactly(trained: nn.Module) -> None:
    before = copy.deepcopy(trained.state_dict())
    found = convert_fitted(trained.train(), "lr", images(), batch_size=16)
    assert trained.training, "its mode stays what it is"
    assert all(torch.equal(tensor, before[name]) for name, tensor in trained.state_dict().items())
    assert found.reordered == ("0", "4")
    assert max(layer.relative_error for layer in found.fit.layers) < 1e-9
    assert difference(found.conversion.model, trained) < 1e-4


def test_the_fit_is_nearer_to_the_outputs_than_one_to_the_weights(trained: nn.Module) -> None:
    torch.manual_seed(1)
    for layer in (trained[0], trained[4]):
        nn.init.normal_(layer.weight, std=0.2)
    found = convert_fitted(trained, "cross:full=0.25", images(), batch_size=16)
    by_weights = convert(trained, "cross:full=0.25", init="fit").model
    assert difference(found.conversion.model, trained) < 0.8 * difference(by_weights, trained)


def test_the_same_call_gives_the_same_bits(trained: nn.Module) -> None:
    first, second = (
        convert_fitted(copy.deepcopy(trained), "cross:full=0.25", images(), batch_size=7).conversion.model.state_dict()
        for _ in range(2)
    )
    assert all(torch.equal(first[name], tensor) for name, tensor in second.items())


def test_what_is_protected_stays_dense(trained: nn.Module) -> None:
    found = convert_fitted(trained, "lr", images(), batch_size=16, protect=["0"])
    assert [layer.name for layer in found.fit.layers] == ["4"]
    assert torch.equal(found.conversion.model[0].weight, trained[0].weight)  # type: ignore[index]


def test_what_can_not_be_fitted_is_refused_before_training(trained: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_can_be_fitted(trained, "lr").replaced == 2
    with pytest.raises(ConversionError, match="replaces no convolution: it has no convolutions"):
        check_can_be_fitted(nn.Linear(2, 2), "lr")
    monkeypatch.setattr(fitted_conversion, "adaptation_of", lambda conv: replace(adaptation_of(conv), fits=False))
    with pytest.raises(ConversionError, match="0, 4 can't be fitted: the layer computes its weight from others"):
        check_can_be_fitted(trained, "lr")
