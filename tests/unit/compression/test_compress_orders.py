"""A network compressed by shapes without a join: each output gets the shape that suits it, and all stays exact."""

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import cruciform
from cruciform.compression import compress, rank_candidates
from cruciform.compression.channel_order import reordered_network
from cruciform.compression.compression_result import Compression
from cruciform.compression.fitting.fit_network import NetworkFit, fit_network_
from cruciform.compression.fitting.layer_moments import Batches
from cruciform.compression.fitting.sensitivity import measure_sensitivity
from cruciform.deployment.search.layer_forms import Form

Networks = Mapping[str, tuple[nn.Module, Mapping[str, Form]]]
SIZE = (3, 12, 12)
OPTIONS = cruciform.CompressOptions(rounds=1)


@pytest.fixture(autouse=True)
def crosses(counted_times: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """The only candidates are crosses without a join, and times are counted."""
    monkeypatch.setattr(rank_candidates, "RANK_COUNTS", {})
    monkeypatch.setattr(rank_candidates, "OTHERS", ("cross:full=0.5", "lr"))


def images(count: int = 64, seed: int = 0) -> Tensor:
    made = torch.randn(count, *SIZE, generator=torch.Generator().manual_seed(seed))
    return nn.functional.avg_pool2d(made, 3, 1, 1) * 3


def lines(conv: nn.Conv2d) -> None:
    """Leave of every filter a column or a row, in turns: nothing but another order makes a cross of them."""
    with torch.no_grad():
        mask = torch.zeros(conv.out_channels, 1, 3, 3)
        mask[0::2, :, 1, :] = 1
        mask[1::2, :, :, 1] = 1
        conv.weight.mul_(mask)


@pytest.fixture
def trained() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(96, 5),
    ).eval()  # fmt: skip
    lines(model[0])
    lines(model[4])
    return model


def largest_difference(model: nn.Module, original: nn.Module) -> float:
    x = images(8, seed=1)
    with torch.no_grad():
        return float((model(x) - original(x)).abs().max() / original(x).std())


def run(model: nn.Module, macs: str = "50%", **options: object) -> Compression:
    return cruciform.compress(
        model, images(), {"macs": macs}, target="onnxruntime", options=replace(OPTIONS, **options)  # type: ignore[arg-type]
    )  # fmt: skip


def test_scrambled_rows_and_columns_are_found_exactly(trained: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    before = copy.deepcopy(trained.state_dict())
    found = run(trained)
    assert set(found.report.compressed.plan.mapping.values()) == {"lr"}
    assert found.report.compressed.reordered == ("0", "4")
    assert found.report.compressed.rise < 1e-9
    assert largest_difference(found.model, trained) < 1e-4
    assert "each gets the shape that suits it: 0, 4" in str(found)
    assert all(torch.equal(tensor, before[name]) for name, tensor in trained.state_dict().items())
    # In its own order a cross loses nearly half of every filter.
    monkeypatch.setattr(compress, "find_fixed_orders", lambda model, names, batches: dict.fromkeys(names, "a test"))
    unordered = run(trained)
    assert largest_difference(unordered.model, trained) > 0.1
    assert unordered.report.compressed.reordered == ()
    assert "channels keep their order in 0, 4: a test" in str(unordered)


@pytest.mark.slow
def test_it_is_saved_loaded_and_shipped(trained: nn.Module, tmp_path: Path) -> None:
    found = run(trained)
    found.save(tmp_path / "small")
    again = cruciform.load(tmp_path / "small", nn.Sequential(*copy.deepcopy(trained))).eval()
    x = images(4, seed=2)
    with torch.no_grad():
        wanted = found.model(x)
        torch.testing.assert_close(again(x), wanted, rtol=0, atol=0)
    assert json.loads((tmp_path / "small" / "compression.json").read_text("utf-8"))["reordered"] == ["0", "4"]
    quick = cruciform.DeployOptions(rounds=1, search_seconds=1)
    artifact = cruciform.deploy(
        again, tmp_path / "artifact", target="onnxruntime", batch=4, input_size=SIZE, options=quick
    )
    np.testing.assert_allclose(artifact(x.numpy()), wanted.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_stopped_while_fitting_it_resumes_in_the_same_order_to_the_same_bits(
    trained: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(what: str) -> None:
        if what.startswith("fitted layer 2 "):
            raise KeyboardInterrupt

    trained[0].weight.data.add_(0.1 * torch.randn(16, 3, 3, 3))  # type: ignore[index,union-attr]
    whole = run(trained).model.state_dict()
    monkeypatch.setattr("cruciform.compression.compression_state.EVERY", -1.0)
    with pytest.raises(KeyboardInterrupt):
        run(trained, state=tmp_path / "state", on_progress=stop)
    kept = json.loads((tmp_path / "state" / "layers.json").read_text("utf-8"))["value"]
    assert sorted(kept["orders"]["4"]) == list(range(24))
    said: list[str] = []
    resumed = run(trained, state=tmp_path / "state", on_progress=said.append).model.state_dict()
    assert not any(what.startswith(("candidates", "fitted layer 1 ")) for what in said)
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())
    # Fitted layers of another order are of no use.
    monkeypatch.setattr(reordered_network, "permute_channels_", lambda *words: "a test")
    said.clear()
    other = run(trained, state=tmp_path / "state", on_progress=said.append)
    assert any(what.startswith("fitted layer 1 ") for what in said)
    assert other.report.compressed.reordered == ()
    assert "channels keep their order in 0, 4: a test" in str(other)


def test_in_a_residual_network_only_inner_channels_change_their_order() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.inner = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
            self.outer, self.head = nn.Conv2d(16, 16, 3, padding=1), nn.Linear(16, 5)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            x = torch.relu(x + self.outer(torch.relu(self.inner(x))))
            logits: Tensor = self.head(x.mean((2, 3)))
            return logits

    torch.manual_seed(0)
    model = Residual().eval()
    for conv in (model.stem, model.inner, model.outer):
        lines(conv)
    found = run(model).report.compressed
    assert found.plan.mapping["inner"] == "lr"
    assert found.reordered == ("inner",)
    fits = {layer.name: layer.relative_error for layer in found.fit.layers}
    assert fits["inner"] < 1e-6
    note = "channels keep their order in stem, outer: they are added to values in another order"
    assert note in found.plan.problems


def test_the_choice_knows_what_the_right_shapes_are_worth() -> None:
    """Of two equal layers, of which only one may be reordered, that one is made cheap."""
    torch.manual_seed(0)

    class Ends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 16, 1)
            self.first, self.last = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.last(torch.relu(self.first(self.stem(x))))
            return y

    model = Ends().eval()
    lines(model.first)
    lines(model.last)
    found = run(model, "75%").report.compressed
    assert found.plan.mapping == {"first": "lr"}
    assert found.reordered == ("first",)
    assert "channels keep their order in last: the network returns them" in found.plan.problems


@pytest.mark.slow
def test_errors_count_by_the_sensitivity_of_the_output_that_they_are_now_in(
    trained: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def fit(
        compressed: nn.Module, original: nn.Module, batches: Batches, *, metrics: dict[str, Tensor], **words: Any
    ) -> NetworkFit:
        for name, expected in measure_sensitivity(original, list(metrics), batches).items():
            torch.testing.assert_close(metrics[name], expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))
            seen.append(name)
        return fit_network_(compressed, original, batches, metrics=metrics, **words)

    monkeypatch.setattr(compress, "fit_network_", fit)
    assert run(trained).report.compressed.reordered == ("0", "4")
    assert sorted(seen) == ["0", "4"]
