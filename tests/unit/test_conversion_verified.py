"""A conversion is verified by running the network, in both modes, also where nobody says what its input is."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cruciform import convert, convert_, create_model, plan_conversion
from cruciform.conversion import convert as api
from cruciform.conversion.trial import try_out
from cruciform.conversion.verification import verify_conversion
from cruciform.errors import ConversionError, UnverifiedWarning
from cruciform.nn.composite import CompositeConv

SIZES = [None, (3, 12, 12)]
BOTH = ("evaluation", "training")


class Base(nn.Module):
    """Two convolutions in sequence; what else it does, its children say."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor) -> Any:
        return self.second(self.first(x))


class Reads(Base):
    """Reads a weight in evaluation mode."""

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x) if self.training else F.conv2d(x, self.first.weight))


class ReadsInTraining(Base):
    """Reads a weight in training mode, for a penalty."""

    def forward(self, x: Tensor) -> Any:
        y = super().forward(x)
        return (y, self.second.weight.square().sum()[None]) if self.training else y


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("change", [convert, convert_])
@pytest.mark.parametrize(
    ("network", "name", "mode"), [(Reads, "first", "evaluation"), (ReadsInTraining, "second", "training")]
)
def test_weights_that_are_read_directly_are_refused_by_the_name_of_their_layer(
    network: type[Base], name: str, mode: str, change: Callable[..., api.Conversion], size: tuple[int, ...] | None
) -> None:
    model = network()
    with pytest.raises(
        ConversionError,
        match=rf"reads the attribute 'weight' of {name} in {mode} mode, .*; protect it with protect=\['{name}'\]",
    ):
        change(model, "lr", input_size=size)
    assert type(model.first) is type(model.second) is nn.Conv2d
    report = change(model, "lr", input_size=size, protect=[name]).report
    assert report.verification is not None
    assert (report.replaced, report.verification.modes) == (1, BOTH)


class Global(Base):
    """Uses a convolution by a global name, which no search of the network finds."""

    def forward(self, x: Tensor) -> Tensor:
        return self.second(ELSEWHERE["first"](x))


ELSEWHERE: dict[str, nn.Module] = {}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("change", [convert, convert_])
def test_old_weights_that_stay_in_use_are_noticed_wherever_they_are_kept(
    change: Callable[..., api.Conversion], size: tuple[int, ...] | None
) -> None:
    model = Global()
    ELSEWHERE["first"] = model.first
    with pytest.raises(ConversionError, match=r"after converting first, the network still uses its old weights"):
        change(model, "lr", input_size=size)
    assert change(model, "lr", input_size=size, protect=["first"]).report.verified


class Odd(Base):
    """Takes more than one can guess."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.second(self.first(x)) + y


class Strict(Base):
    """Takes one size only, and not a usual one."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != 37:
            raise ValueError("37 or nothing")
        return super().forward(x)


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (Odd, "its forward does not take a single tensor"),
        (Strict, r"at \(3, 224, 224\) and other common sizes it fails: 37 or nothing"),
        (lambda: nn.ModuleDict({"only": nn.Conv2d(3, 8, 3)}), "missing the required"),
    ],
)
@pytest.mark.parametrize("change", [convert, convert_])
def test_what_can_not_be_run_is_converted_with_a_warning(
    network: Callable[[], nn.Module], why: str, change: Callable[..., api.Conversion]
) -> None:
    with pytest.warns(UnverifiedWarning, match=rf"not verified: give input_size=\(3, 224, 224\).*{why}") as caught:
        report = change(network(), "lr").report
    assert caught[0].filename == __file__
    assert report.replaced
    assert not report.verified
    assert report.to_dict()["verified"] is False
    (warning,) = report.warnings
    assert warning.startswith("not verified: give input_size=(3, 224, 224)")
    assert warning in str(report)


def test_a_size_that_is_given_verifies_what_no_guess_could() -> None:
    report = convert(Strict(), "lr", input_size=(3, 37, 37)).report
    assert report.warnings == ()
    assert str(report.verification) == "verified at (3, 37, 37), in evaluation and training mode"


class Flat(nn.Sequential):
    """Takes one size only, as its linear layer says."""

    def __init__(self, channels: int, extent: int) -> None:
        layers = [nn.Conv2d(channels, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * extent**2, 5)]
        super().__init__(*layers)


@pytest.mark.parametrize(
    ("network", "size"),
    [
        (lambda: Flat(1, 28), (1, 28, 28)),
        (lambda: Flat(3, 32), (3, 32, 32)),
        (lambda: nn.Sequential(nn.Conv3d(2, 6, 3)), (2, 32, 32, 32)),
        (lambda: nn.Conv2d(7, 6, 3), (7, 224, 224)),
        (lambda: create_model("nin"), (3, 32, 32)),
        (lambda: create_model("vgg11", input_size=96, in_channels=2), (2, 96, 96)),
        (lambda: nn.Sequential(create_model("nin", input_size=40), nn.ReLU()), (3, 40, 40)),
    ],
)
def test_the_size_is_guessed_from_what_the_network_says_of_itself(
    network: Callable[[], nn.Module], size: tuple[int, ...]
) -> None:
    with torch.device("meta"):
        model = network()
    report = convert(model, "lr" if len(size) == 3 else "cross3").report
    assert report.verification is not None
    assert (report.verification.input_size, report.verification.guessed) == (size, True)
    assert report.verification.modes == BOTH
    assert str(report.verification) in str(report)
    # A guess verifies, and counts nothing.
    assert (report.input_size, report.counted, report.macs_before, report.macs_after) == (None, None, None, None)
    assert json.loads(json.dumps(report.to_dict()))["verification"]["input_size"] == list(size)


@pytest.mark.slow
@pytest.mark.usefixtures("libraries")
def test_the_size_is_what_timm_writes_on_its_networks() -> None:
    import timm

    with torch.device("meta"):
        model, grey = timm.create_model("inception_v3"), timm.create_model("inception_v3", in_chans=1)
    sizes = [convert(network, "lr").report.verification for network in (model, grey)]
    assert [each and each.input_size for each in sizes] == [(3, 299, 299), (1, 299, 299)]


def test_nothing_is_run_where_nothing_is_planned_or_replaced() -> None:
    assert plan_conversion(Odd()).verification is None
    assert convert(Odd(), "full").report.verification is None


def test_a_network_that_does_not_train_by_itself_is_verified_in_evaluation_and_says_so() -> None:
    class NeedsTargets(Base):
        def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
            if self.training and targets is None:
                raise ValueError("targets should be given")
            return super().forward(x)

    for size in SIZES:
        report = convert(NeedsTargets(), "lr", input_size=size).report
        assert report.verified
        assert "in evaluation mode; it does not run in training mode: targets should be given" in str(report)


def test_layers_that_no_run_uses_are_named() -> None:
    class Spare(Base):
        def __init__(self) -> None:
            super().__init__()
            self.spare, self.auxiliary = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Any:
            y = super().forward(x)
            return (y, self.auxiliary(x)) if self.training else y

    report = convert(Spare(), "lr").report
    assert report.warnings == ("not verified, since the network does not use it: spare",)
    assert report.verification is not None
    assert report.verification.unused == ("spare",)


def test_layers_that_are_called_past_their_hooks_are_used() -> None:
    class Past(Base):
        def forward(self, x: Tensor) -> Any:
            return self.second(self.first.forward(x))

    assert convert(Past(), "lr").report.warnings == ()


class Busy(nn.Module):
    """Leaves traces wherever it can: statistics, counters, lists, random numbers of two kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=None), nn.Dropout(0.5)
        self.pool, self.last = nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(4)
        self.calls = 0
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(x)
        if random.random() < 0 or torch.rand(1).item() < 0:
            raise ValueError
        return self.last(self.pool(self.drop(self.norm(self.conv(x)))))


@pytest.mark.parametrize("size", SIZES)
def test_a_network_and_all_random_numbers_are_left_as_they_were(
    size: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome() -> tuple[Any, ...]:
        torch.manual_seed(0)
        random.seed(0)
        model = Busy()
        converted, report = convert_(model, "lr", input_size=size)
        assert report.verification is None or report.verification.modes == BOTH
        assert (model.calls, model.seen, model.training) == (0, [], True)
        return *converted.state_dict().values(), torch.rand(3), random.random()

    verified = outcome()
    monkeypatch.setattr(api, "_try_before", lambda model, report: "")
    for one, other in zip(verified, outcome(), strict=True):
        assert torch.equal(torch.as_tensor(one), torch.as_tensor(other))


def test_attention_beside_convolutions_is_run_as_well() -> None:
    class Mixed(Base):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(super().forward(x).flatten(2).mT)

    report = convert(Mixed().eval(), "lr").report
    assert report.verification is not None
    assert report.verification.modes == BOTH


def test_a_network_that_looks_at_values_is_verified_at_a_size_that_is_given() -> None:
    class Looks(Base):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if x.sum().item() == 0 else x

    assert convert(Looks(), "lr", input_size=(3, 12, 12)).report.verified
    with pytest.warns(UnverifiedWarning, match="not verified"):
        convert(Looks(), "lr")


def test_outputs_of_another_shape_are_noticed_in_either_mode() -> None:
    model = Base()
    before = try_out(model, (3, 12, 12))
    assert before.outputs == dict.fromkeys(BOTH, ((4, 8, 8),))
    assert verify_conversion(model, before, new={}, old={}).modes == BOTH
    model.second = nn.Conv2d(8, 5, 3)
    with pytest.raises(ConversionError, match=r"changed the output shapes from \(\(4, 8, 8\),\) to \(\(5, 8, 8\),\)"):
        verify_conversion(model, before, new={}, old={})
    model.second = nn.Conv2d(8, 4, 3)
    model.first.train = lambda mode: setattr(model, "second", nn.Conv2d(8, 4 + mode, 3))  # type: ignore[assignment]
    with pytest.raises(ConversionError, match="changed the output shapes"):
        verify_conversion(model, before, new={}, old={})


def test_a_copy_is_verified_and_the_original_stays() -> None:
    model = Base()
    converted = convert(model, "lr").model
    assert isinstance(converted.first, CompositeConv)
    assert type(model.first) is nn.Conv2d
