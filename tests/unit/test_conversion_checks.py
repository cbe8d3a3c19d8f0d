"""What a conversion is held to once it is done, and what is refused before."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cruciform import convert, create_model, profile
from cruciform.conversion.convert import plan_conversion
from cruciform.conversion.verification import count_again
from cruciform.errors import ConversionError, CountError, CruciformError

SIZE = (3, 12, 12)


class Functional(nn.Module):
    """Convolves by a function, with a parameter of its own and, where asked, with the weights of a convolution."""

    def __init__(self, *, looks: bool) -> None:
        super().__init__()
        self.looks = looks
        self.first = nn.Conv2d(3, 8, 3)
        self.kernel = nn.Parameter(torch.zeros(8, 8, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(x, self.first.weight, self.first.bias) if self.looks else self.first(x)
        return F.conv2d(x, self.kernel)


def test_convolutions_that_no_module_holds_are_named() -> None:
    report = convert(Functional(looks=False), input_size=SIZE).report
    (warning,) = report.warnings
    assert warning == (
        "not converted, since only modules are: the functional convolutions in the network itself (Functional)"
    )
    assert warning in str(report)
    assert report.to_dict()["warnings"] == [warning]
    assert convert(nn.Sequential(nn.Conv2d(3, 8, 3)), input_size=SIZE).report.warnings == ()


def test_a_network_that_looks_into_its_convolutions_is_refused_by_the_name_of_the_layer() -> None:
    with pytest.raises(ConversionError, match=r"reads the attribute 'weight' of first.*protect=\['first'\]"):
        convert(Functional(looks=True), input_size=SIZE)
    assert convert(Functional(looks=True), protect=["first"], input_size=SIZE).report.replaced == 0


def test_the_report_is_held_against_a_count_of_what_was_made() -> None:
    network = create_model("nin")
    conversion = convert(network, input_size=(3, 32, 32))
    assert conversion.report.counted_after == profile(conversion.model, (3, 32, 32))
    dearer = replace(conversion.report.layers[0], macs_after=1)
    forged = replace(conversion.report, layers=(dearer, *conversion.report.layers[1:]))
    with pytest.raises(CountError, match="the conversion table has"):
        count_again(conversion.model, forged)
    with pytest.raises(ConversionError, match="changed the output shapes"):
        count_again(create_model("nin", num_classes=3), conversion.report)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"input_size": 224}, r"as \(3, 224, 224\); got 224"),
        ({"input_size": torch.zeros(1, 3, 8, 8)}, r"got a tensor of \(1, 3, 8, 8\)"),
        ({"input_size": "3x8x8"}, "got '3x8x8'"),
        ({"input_size": (3, 8.0, 8)}, r"got \(3, 8.0, 8\)"),
        ({"scheme": None}, "a scheme is a name such as 'lr', or a function"),
        ({"scheme": {"*": 3}}, "got 3"),
        ({"scheme": lambda spec: spec}, "must return a LayerPlan; got ConvSpec"),
        ({"protect": "0"}, r"protect must be a list of patterns: protect=\['0'\]"),
        ({"activation": nn.GELU()}, "unknown activation GELU"),
        ({"init": None}, "unknown initialization None"),
        ({"model": 18}, "int is not a network: give a torch module, or a reference to one"),
        ({"model": "resnet18"}, "unknown network 'resnet18'. Did you mean 'timm:resnet18'"),
    ],
)
def test_what_is_no_such_thing_is_told_in_a_sentence(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(CruciformError, match=why):
        convert(**{"model": nn.Sequential(nn.Conv2d(3, 8, 3)), **arguments})


def test_a_size_may_come_from_anywhere() -> None:
    report = plan_conversion(nn.Conv2d(3, 8, 3), input_size=torch.zeros(2, 3, 8, 8).shape[1:])
    assert report.input_size == (3, 8, 8)
