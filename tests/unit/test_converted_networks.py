"""What hangs on a convolution besides its weight: all of it stays, or is told; nothing gets lost on the way."""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cruciform import convert, convert_, diagnose, load, profile, save
from cruciform.conversion.convert import converted_plans
from cruciform.conversion.dense import collapse
from cruciform.conversion.fit import fit_parameters
from cruciform.errors import ConversionError, CountError, NotLinearError, ShapeError, SpecError, StoreError
from cruciform.plan import FilterGroup, LayerPlan, Stage
from cruciform.schemes import make_plan
from cruciform.sources.build_network import build_network
from cruciform.spec import ConvSpec

SIZE = (3, 8, 8)


def two(**options: Any) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3, **options), nn.ReLU(), nn.Conv2d(4, 5, 3, **options))


def hidden(x: Tensor, weight: Tensor) -> Tensor:
    return torch.conv2d(x, weight)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_work_that_no_call_shows_is_no_total() -> None:
    scripted = torch.jit.script(hidden)

    class Scripted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen = nn.Conv2d(3, 4, 3)
            self.weight = nn.Parameter(torch.zeros(4, 4, 3, 3))

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = scripted(self.seen(x), self.weight)
            return result

    with pytest.raises(CountError, match=r"3,888 multiply-accumulates by arithmetic, 6,192 by the dispatcher"):
        profile(Scripted(), SIZE)


@pytest.mark.parametrize("keep", [
    lambda conv: SimpleNamespace(layer=conv), lambda conv: deque([conv]), lambda conv: {conv: 1},
])  # fmt: skip
def test_convolutions_that_objects_hold_on_to_are_found(keep: Any) -> None:
    model = two()
    model.kept = keep(model[2])  # type: ignore[assignment]
    with pytest.raises(ConversionError, match="2 is also referenced in kept"):
        convert(model, "lr")


def test_the_doctor_leaves_gradients_alone_also_where_a_network_makes_its_buffers_as_it_runs() -> None:
    class Late(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(*two())
            self.register_buffer("grid", None)

        def forward(self, x: Tensor) -> Tensor:
            x -= 0.5  # in place, as some normalize
            self.grid = torch.ones(x.shape[-1])
            return super().forward(x * self.grid)

    model = Late()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 7)
    assert diagnose(model, SIZE).depth == 1
    assert all(bool((parameter.grad == 7).all()) for parameter in model.parameters() if parameter.grad is not None)
    assert model.grid is None


def test_a_weight_that_was_exchanged_counts() -> None:
    model = two()
    model[0].weight = nn.Parameter(model[0].weight.sum(1, keepdim=True))  # for grey images
    converted = convert(model, "lr", input_size=(1, 8, 8)).model
    assert converted(torch.zeros(1, 1, 8, 8)).shape == (1, 5, 4, 4)


def test_collapsed_layers_are_as_frozen_as_they_were() -> None:
    low = convert(two(), "lr").model
    for name, parameter in low.named_parameters():
        parameter.requires_grad_("bias" in name)
    dense = collapse(low)
    assert {name: parameter.requires_grad for name, parameter in dense.named_parameters()} == {
        "0.weight": False, "0.bias": True, "2.weight": False, "2.bias": True,
    }  # fmt: skip


def test_a_later_stage_that_reaches_out_of_its_window_has_no_equal_kernel() -> None:
    low = convert(nn.Sequential(nn.Conv2d(4, 8, 3)), "cross:shapes=1xk,join=5x1", init="pytorch").model
    with pytest.raises(NotLinearError, match="stage 0 has a bias"):
        collapse(low)


def test_a_subclass_that_brings_arguments_only_is_converted() -> None:
    class Three(nn.Conv2d):
        def __init__(self, before: int, after: int) -> None:
            super().__init__(before, after, 3, padding=1)

    assert convert(nn.Sequential(Three(3, 4), Three(4, 5)), "lr").report.replaced == 2


def test_what_a_replacement_would_lose_is_refused_and_what_was_written_on_it_stays() -> None:
    model = two()
    model[0].lr_mult = 0.1  # type: ignore[assignment]
    assert convert(model, "lr").model[0].lr_mult == 0.1
    model[0].register_buffer("mask", torch.ones(1))
    model[2].temperature = nn.Parameter(torch.ones(1))
    with pytest.raises(ConversionError, match="0 can't be converted: it also has mask"):
        convert(model, "lr")
    with pytest.raises(ConversionError, match="2 can't be converted: it also has temperature"):
        convert(model, "lr", protect=["0"])
    model = two()
    model[0].weight.register_hook(lambda gradient: gradient)
    with pytest.raises(ConversionError, match="one of its weights has a hook"):
        convert_(model, "lr")


def test_numbers_are_not_loaded_onto_the_meta_device(tmp_path: Path) -> None:
    conversion = convert(two(), "lr")
    save(conversion.model, tmp_path / "model", conversion.report)
    with torch.device("meta"):
        sketch = two()
    with pytest.raises(StoreError, match="is on the meta device"):
        load(tmp_path / "model", sketch)


def test_a_collapsed_network_that_pads_unequally_is_saved_as_it_is(tmp_path: Path) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 4, padding="same"))

    conversion = convert(make(), "lr")
    dense = collapse(conversion.model)
    save(dense, tmp_path / "model", conversion.report)
    x = torch.randn(1, *SIZE)
    torch.testing.assert_close(load(tmp_path / "model", make())(x), conversion.model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("libraries")
def test_a_collapsed_layer_is_not_saved_for_a_base_that_pads_or_standardizes(tmp_path: Path) -> None:
    from timm.layers import Conv2dSame, ScaledStdConv2d, StdConv2d

    for kind in (Conv2dSame, StdConv2d, ScaledStdConv2d):
        conversion = convert(nn.Sequential(kind(3, 4, 3, bias=False)), "lr")
        save(conversion.model, tmp_path / "model", conversion.report)
        with pytest.raises(StoreError, match="save the network before collapsing it"):
            save(collapse(conversion.model), tmp_path / "model", conversion.report)
    frozen = nn.Sequential(ScaledStdConv2d(3, 4, 3)).requires_grad_(False)
    low = convert(frozen, "lr-join").model
    assert not any(parameter.requires_grad for parameter in low.parameters())
    assert list(converted_plans(low)) == ["0"]


def test_what_nothing_can_be_fitted_to_is_told() -> None:
    spec = ConvSpec(4, 8, 3, padding=1)
    with pytest.raises(ConversionError, match="is on the meta device"):
        fit_parameters(make_plan(spec, "lr"), torch.empty(8, 4, 3, 3, device="meta"), None)
    whole, line = FilterGroup((1, 1), 4), FilterGroup((3, 1), 4)
    plan = LayerPlan(spec, (Stage((FilterGroup((1, 3), 6),)), Stage((whole, line))))
    with pytest.raises(ConversionError, match="every stage after the first needs exactly one filter group"):
        fit_parameters(plan, torch.zeros(8, 4, 3, 3), None)


@pytest.mark.usefixtures("libraries")
def test_a_network_that_is_run_otherwise_than_by_its_users_says_so() -> None:
    with torch.device("meta"):
        network, size = build_network("torchvision:raft_small", {})
    assert profile(network, size).notes[0].startswith("optical flow with 2 updates")


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("look", [profile, diagnose])
def test_a_scripted_network_is_told_as_one(look: Callable[..., object]) -> None:
    scripted = torch.jit.script(two())
    with pytest.raises(SpecError, match="is scripted or traced.*before torch.jit"):
        look(scripted, SIZE)
    with pytest.raises(SpecError, match="Sequential: its 0 is scripted or traced"):
        look(nn.Sequential(scripted, nn.ReLU()), SIZE)


def test_a_wrapper_says_what_to_unwrap() -> None:
    with pytest.raises(ShapeError, match=r"it wraps a network: give model\.module"):
        profile(nn.DataParallel(two()), SIZE)
