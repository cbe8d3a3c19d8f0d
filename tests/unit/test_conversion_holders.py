"""What else may hold a convolution or its weights: all of it is found without running the network, and refused."""

import weakref
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cruciform import convert, convert_, plan_conversion
from cruciform.conversion import planning
from cruciform.errors import ConversionError


class Two(nn.Module):
    """Two convolutions, and nothing that could be run."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)


class Slotted:
    """Holds something without a dictionary."""

    __slots__ = ("__held", "empty")

    def __init__(self, held: object) -> None:
        self.__held = held


def with_default(held: object) -> Callable[[], object]:
    def function(held: object = held) -> object:
        return held

    return function


def with_named_default(held: object) -> Callable[[], object]:
    def function(*, held: object = held) -> object:
        return held

    return function


def with_closure(held: object) -> Callable[[], object]:
    def function() -> object:
        return held

    return function


def with_empty_closure(held: object) -> Callable[[], object]:
    def function() -> object:
        return never, held

    if held is None:
        never = 1
    return function


KEEP: dict[str, Callable[[Any], object]] = {
    "slots": Slotted,
    "a list in slots": lambda held: Slotted([held]),
    "a default argument": with_default,
    "a named default argument": with_named_default,
    "a closure": with_closure,
    "a closure beside an empty one": with_empty_closure,
    "the default of a partial": lambda held: partial(with_default(held)),
    "an attribute of a function": lambda held: setattr(function := lambda: None, "held", held) or function,
    "a weak reference": weakref.ref,
    "a weak proxy": weakref.proxy,
    "a weak set": lambda held: weakref.WeakSet([held]),
    "a weak dictionary": lambda held: weakref.WeakValueDictionary({"held": held}),
    "weak keys": lambda held: weakref.WeakKeyDictionary({held: 1}),
    "a namespace": lambda held: SimpleNamespace(held=held),
}


@pytest.mark.parametrize("change", [plan_conversion, convert, convert_])
@pytest.mark.parametrize("keep", KEEP.values(), ids=KEEP.keys())
def test_whatever_keeps_a_convolution_is_found(keep: Callable[[Any], object], change: Callable[..., object]) -> None:
    model = Two()
    vars(model)["kept"] = keep(model.second)  # by assignment torch would register a proxy as a module
    with pytest.raises(ConversionError, match=r"^second is also referenced in kept, .*protect=\['second'\]"):
        change(model)
    assert plan_conversion(model, protect=["second"]).replaced == 1
    assert type(model.second) is nn.Conv2d


@pytest.mark.parametrize(
    ("keep", "what"),
    [
        (lambda conv: [conv.weight], r"second\.weight"),
        (lambda conv: {"decayed": (conv.bias,)}, r"second\.bias"),
        (lambda conv: torch.optim.SGD(conv.parameters()), r"second\.(weight|bias)"),
        (lambda conv: Slotted(conv.weight), r"second\.weight"),
        (lambda conv: weakref.ref(conv.weight), r"second\.weight"),
        (lambda conv: conv.weight.detach(), "a view of the weights of second"),
        (lambda conv: [conv.weight.data[2:]], "a view of the weights of second"),
    ],
)
@pytest.mark.parametrize("change", [plan_conversion, convert, convert_])
def test_whatever_keeps_a_weight_is_found(keep: Callable[[Any], object], what: str, change: Any) -> None:
    model = Two()
    model.kept = keep(model.second)  # type: ignore[assignment]
    with pytest.raises(ConversionError, match=f"^{what} is also referenced in kept"):
        change(model)


def test_a_convolution_in_the_slots_of_its_own_network_is_found() -> None:
    class WithSlots(Two):
        __slots__ = ("hidden",)

        def __init__(self) -> None:
            super().__init__()
            WithSlots.hidden.__set__(self, self.first)  # type: ignore[attr-defined]

    with pytest.raises(ConversionError, match="first is also referenced in hidden"):
        plan_conversion(WithSlots())


@pytest.mark.parametrize("wrap", [lambda function: function, staticmethod, classmethod, property])
def test_a_convolution_in_the_default_of_a_method_is_found(wrap: Callable[[Any], Any]) -> None:
    model = Two()
    model.__class__ = type("Odd", (Two,), {"method": wrap(with_default(model.first))})
    with pytest.raises(ConversionError, match=r"first is also referenced in Odd\.method"):
        plan_conversion(model)


def test_a_convolution_within_a_module_that_is_not_registered_is_found() -> None:
    model = Two()
    model.order = [nn.Sequential(model.first, nn.ReLU())]  # type: ignore[assignment]
    with pytest.raises(ConversionError, match="first is also referenced in order"):
        plan_conversion(model)


def test_what_a_network_holds_besides_its_convolutions_is_no_hindrance() -> None:
    model = Two()
    model.kept = [model, nn.Conv2d(3, 4, 3), torch.zeros(3), weakref.ref(nn.ReLU()), Slotted(3)]  # type: ignore[assignment]
    assert plan_conversion(model).replaced == 2


def shared_data(first: nn.Conv2d, second: nn.Conv2d) -> None:
    second.weight = nn.Parameter(first.weight.data)


def assigned_data(first: nn.Conv2d, second: nn.Conv2d) -> None:
    second.weight.data = first.weight.data


def overlapping(first: nn.Conv2d, second: nn.Conv2d) -> None:
    flat = torch.randn(200)
    first.weight, second.weight = (nn.Parameter(flat[n : n + 144].view(4, 4, 3, 3)) for n in (0, 56))


def of_another_type(first: nn.Conv2d, second: nn.Conv2d) -> None:
    second.weight = nn.Parameter(first.weight.data.view(torch.int32).view(torch.float32))


@pytest.mark.parametrize("tie", [shared_data, assigned_data, overlapping, of_another_type])
@pytest.mark.parametrize("change", [plan_conversion, convert, convert_])
def test_weights_that_share_memory_are_refused_like_tied_ones(tie: Any, change: Any) -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3))
    tie(*model)
    assert model[0].weight is not model[1].weight
    with pytest.raises(ConversionError, match=r"0 and 1 share a parameter or its memory.*protect=\['0', '1'\]"):
        change(model)
    assert convert(model, protect=["0", "1"]).report.replaced == 0


def test_a_buffer_and_a_linear_layer_in_the_memory_of_a_weight_are_found() -> None:
    for other in (nn.Linear(9, 16), nn.BatchNorm2d(4)):
        model = nn.Sequential(nn.Conv2d(4, 4, 3), other)
        if isinstance(other, nn.Linear):
            other.weight = nn.Parameter(model[0].weight.data.view(16, 9))
        else:
            other.running_mean = model[0].weight.data[:, 0, 0, 0]
        with pytest.raises(ConversionError, match=r"0 and 1 share a parameter or its memory.*protect=\['0'\]"):
            plan_conversion(model)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_parts_of_one_memory_that_do_not_overlap_are_no_tie(device: str) -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 3, device=device), nn.Conv2d(4, 4, 3, device=device))
    flat = torch.randn(2 * 144, device=device)
    for n, conv in enumerate(model):
        conv.weight = nn.Parameter(flat[n * 144 :][:144].view(4, 4, 3, 3))
    assert plan_conversion(model).replaced == 2


def test_tied_weights_are_also_found_on_the_meta_device() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 3, device="meta"), nn.Conv2d(4, 4, 3, device="meta"))
    model[1].weight = model[0].weight
    with pytest.raises(ConversionError, match="0 and 1 share a parameter"):
        plan_conversion(model)


def test_without_the_search_a_hidden_convolution_would_stay_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the search guards against: nothing that is run shows it, since nothing can be run."""

    class Hidden(Two):
        def two_inputs(self, x: Tensor, y: Tensor) -> Tensor:
            return self.kept()(x) + y

        forward = two_inputs

    model = Hidden()
    model.kept = weakref.ref(model.first)  # type: ignore[assignment]
    with pytest.raises(ConversionError, match="first is also referenced in kept"):
        convert(model)
    monkeypatch.setattr(planning, "hidden_references", lambda *_: iter(()))
    with pytest.warns(UserWarning, match="not verified"):
        converted = convert(model).model
    x = torch.randn(1, 3, 5, 5)
    assert torch.equal(converted(x, 0), F.conv2d(x, model.first.weight, model.first.bias))
