import copy
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cruciform.conversion import where
from cruciform.conversion.convert import convert, convert_, plan_conversion
from cruciform.conversion.dense import collapse, expand
from cruciform.errors import ConversionError, NotLinearError, PlanError, SpecError, UnknownNameError
from cruciform.measure.macs import profile
from cruciform.models.zoo import create_model
from cruciform.nn.composite import CompositeConv
from cruciform.nn.initialize import initialize_


class Small(nn.Module):
    """One of each: first, a shared convolution, grouped, depthwise, 1×1, a line, transposed, last."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.shared = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.again = nn.Sequential(self.shared, nn.ReLU())
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.line = nn.Conv2d(8, 8, (1, 3), padding=(0, 1))
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.last = nn.Conv2d(8, 4, 5, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(self.shared(self.first(x)))
        return self.last(self.up(self.line(self.pointwise(self.depthwise(self.grouped(x))))))


SIZE = (3, 12, 12)


def test_every_convolution_is_reported_with_what_became_of_it() -> None:
    report = convert(Small(), "lr", input_size=SIZE).report
    assert {row.names[0]: (row.action, row.reason) for row in report.layers} == {
        "first": ("replaced", ""),
        "shared": ("replaced", ""),
        "grouped": ("skipped", "grouped (groups=2): already sparse"),
        "depthwise": ("skipped", "depthwise (groups=8): already sparse"),
        "pointwise": ("skipped", "1×1: nothing to save"),
        "line": ("skipped", "1×3: already a 1-D filter"),
        "up": (
            "skipped",
            (
                "a transposed convolution, in whose output these filters would leave holes ([2×1: 4]: 1 of 2 positions "
                "along axis 1); filters in sequence leave none: write the scheme as 'lr or sf'"
            ),
        ),
        "last": ("replaced", ""),
    }


def test_the_report_promises_what_the_meter_then_counts() -> None:
    model = Small()
    converted, report = convert(model, "lr-join", input_size=SIZE)
    before, after = profile(model, SIZE), profile(converted, SIZE)
    assert (report.params_before, report.macs_before) == (before.params, before.macs)
    assert (report.params_after, report.macs_after) == (after.params, after.macs)
    assert before.outputs == after.outputs
    assert json.loads(json.dumps(report.to_dict()))["macs_after"] == after.macs
    assert "8 convolutions: 3 replaced, 0 kept, 5 skipped" in report.summary()


@pytest.mark.parametrize(
    ("init", "norm", "used"),
    [
        ("auto", False, "paper-completed"),
        ("auto", True, "pytorch"),
        ("per-group", True, "per-group"),
        ("fit", True, "fit"),
    ],
)
def test_the_report_says_how_new_layers_start(init: str, norm: bool, used: str) -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3), *([nn.BatchNorm2d(8)] if norm else []))
    assert plan_conversion(model).init is None
    assert convert(model, init=init).report.to_dict()["init"] == used


def test_shared_conv_stays_shared() -> None:
    converted, report = convert(Small(), "lr")
    assert converted.shared is converted.again[0]
    assert isinstance(converted.shared, CompositeConv)
    assert next(row for row in report.layers if row.names[0] == "shared").names == ("shared", "again.0")


def test_the_copy_is_converted_and_the_original_left_alone() -> None:
    model = Small()
    state = copy.deepcopy(model.state_dict())
    converted = convert(model, "lr").model
    assert converted is not model
    assert isinstance(model.first, nn.Conv2d)
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


def test_in_place_and_dry_run() -> None:
    model = Small()
    report = plan_conversion(model, "lr")
    assert report.replaced == 3
    assert isinstance(model.first, nn.Conv2d)
    assert convert_(model, "lr").model is model
    assert isinstance(model.first, CompositeConv)


def test_converting_twice_is_converting_once() -> None:
    once = convert(Small(), "lr-join").model
    twice, report = convert(once, "lr")
    assert report.replaced == 0
    assert {row.reason for row in report.layers} >= {"already made of basis filters"}
    assert list(twice.state_dict()) == list(once.state_dict())


def test_a_bare_convolution_is_replaced_itself() -> None:
    converted, report = convert_(nn.Conv2d(4, 8, 3), "lr")
    assert isinstance(converted, CompositeConv)
    assert report.layers[0].names == ("",)


def test_device_type_mode_and_frozen_parameters_are_kept() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3)).to(torch.bfloat16).eval()
    model[0].weight.requires_grad_(False)
    layer = convert(model, "lr").model[0]
    assert layer.weight_0_0.dtype == torch.bfloat16
    assert not layer.training
    assert not layer.weight_0_1.requires_grad
    assert layer.bias_0_0.requires_grad
    with torch.device("meta"):
        assert convert(nn.Conv2d(3, 4, 3), "lr").model.weight_0_0.is_meta


@pytest.mark.parametrize(
    ("rule", "replaced"),
    [
        (where.named("first", "l*"), ["first", "last"]),
        (where.kernel(5), ["last"]),
        (where.channels(8), ["shared"]),
        (~where.first(), ["shared", "last"]),
        (~(where.first() | where.last()), ["shared"]),
        (where.share(0.2) & ~where.first(), ["shared"]),
    ],
    ids=lambda value: getattr(value, "text", ""),
)
def test_rules_choose(rule: where.Where, replaced: list[str]) -> None:
    report = plan_conversion(Small(), "lr", where=rule, input_size=SIZE)
    assert [row.names[0] for row in report.layers if row.action == "replaced"] == replaced
    kept = [row for row in report.layers if row.action == "kept"]
    assert all(row.reason == f"excluded by where: {rule.text}" for row in kept)


def test_schemes_by_name_and_protection() -> None:
    report = plan_conversion(Small(), {"first": "lr-join", "shared": "full", "*": "sf"}, protect=["last"])
    rows = {row.names[0]: (row.action, str(row.plan or row.reason)) for row in report.layers}
    assert rows["first"] == ("replaced", "[3×1: 4 ‖ 1×3: 4] → [1×1: 8]")
    assert rows["shared"] == ("kept", "the scheme keeps it dense")
    assert rows["last"] == ("kept", "protected")
    partial = plan_conversion(Small(), {"first": "lr"})
    assert "no scheme pattern matches its name" in {row.reason for row in partial.layers}


def test_constraint_accepted_and_ignored() -> None:
    """A peer's budget option did nothing. Here a pattern that matches nothing is refused."""
    with pytest.raises(ConversionError, match="the pattern 'frist' matches no convolution. Did you mean 'first'"):
        plan_conversion(Small(), "lr", protect=["frist"])
    with pytest.raises(ConversionError, match="the pattern 'layer1' matches no convolution"):
        plan_conversion(Small(), {"layer1": "lr"})
    with pytest.raises(ConversionError, match="needs input_size="):
        plan_conversion(Small(), "lr", where=where.share(0.1))
    for slip in ("cross:fulll=0.25", "cross:full=2", {"*": "cross:full=2"}):
        with pytest.raises(PlanError, match="full"):
            plan_conversion(create_model("nin"), slip)
    with pytest.raises(UnknownNameError, match="unknown scheme 'lr-jion'"):
        plan_conversion(Small(), "lr-jion")
    with pytest.raises(UnknownNameError, match=r"unknown initialization 'fti'. Did you mean 'fit'.* auto, fit\."):
        convert(Small(), "lr", init="fti")


@pytest.mark.parametrize(
    ("rules", "pattern", "why"),
    [
        (
            {"protect": ["pointwise"]},
            "'pointwise' of protect",
            r"skipped anyway \(pointwise: 1×1: nothing to save",
        ),
        ({"protect": ["first", "gr*"]}, "'gr*' of protect", r"skipped anyway \(grouped: grouped"),
        ({"scheme": {"up": "lr", "*": "lr"}}, "'up' of the scheme", r"\(up: a transposed convolution, in whose"),
        (
            {"scheme": {"*": "lr", "first": "full"}},
            "'first' of the scheme",
            "earlier patterns match the same convolutions",
        ),
    ],
)
def test_a_pattern_that_changes_nothing_is_named(rules: dict[str, Any], pattern: str, why: str) -> None:
    report = plan_conversion(Small(), **rules)
    (warning,) = report.warnings
    assert warning.startswith(f"the pattern {pattern} changes nothing, since ")
    assert re.search(why, warning)
    assert warning in str(report)
    assert convert(Small(), **rules).report.to_dict()["warnings"] == [warning]


@pytest.mark.parametrize(
    "rules",
    [
        {"protect": ["first", "*"]},
        {"protect": ["f*"], "scheme": {"first": "sf", "*": "lr"}},
        {"scheme": {"first": "lr", "shared": "lr", "last": "lr", "*": "full"}},
        {"scheme": {"l*": "lr", "again.0": "lr"}},
    ],
)
def test_a_pattern_that_decides_about_something_is_not(rules: dict[str, Any]) -> None:
    assert plan_conversion(Small(), **rules).warnings == ()


def test_a_depthwise_network_says_that_it_does_not_pay() -> None:
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.Conv2d(32, 32, 3, groups=32), nn.Conv2d(32, 256, 1))
    summary = plan_conversion(model, "lr", input_size=(3, 9, 9)).summary()
    assert "of the MACs are in convolutions that can't be converted" in summary


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself
def test_wrappers_are_refused_with_what_to_do() -> None:
    with pytest.raises(ConversionError, match="convert model.module before you wrap it"):
        convert(nn.DataParallel(Small()), "lr")
    with pytest.raises(ConversionError, match="convert the network before torch.compile"):
        convert(torch.compile(Small()), "lr")


def test_parametrised_and_hooked_convolutions_are_refused_with_what_to_do() -> None:
    normed = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3)))
    with pytest.raises(ConversionError, match="0 can't be converted: its weight is parametrized .* or protect it"):
        convert(normed, "lr")
    assert convert(normed, "lr", protect=["0"]).report.replaced == 0
    hooked = Small()
    hooked.first.register_forward_hook(lambda module, args, output: None)
    with pytest.raises(ConversionError, match="first can't be converted: it has hooks"):
        convert(hooked, "lr")


def test_a_convolution_kept_in_a_plain_list_is_refused_and_not_left_in_use() -> None:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3)
            self.order = [self.conv]

        def forward(self, x: Tensor) -> Tensor:
            return self.order[0](x)

    with pytest.raises(ConversionError, match="conv is also referenced in order"):
        convert(Hidden(), "lr")


@pytest.mark.parametrize(
    "hide",
    [
        lambda conv: {"x": [conv]},
        lambda conv: conv.forward,
        lambda conv: partial(conv.forward),
        lambda conv: {frozenset({conv})},
    ],
)
def test_a_convolution_is_found_however_deep_it_is_kept(hide: Callable[[nn.Module], object]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 3, 3))
    model.kept = hide(model[0])
    with pytest.raises(ConversionError, match="0 is also referenced in kept"):
        convert(model, "lr")


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_counts_are_those_of_the_input_before_it_is_padded(mode: Literal["zeros", "reflect"]) -> None:
    model = nn.Sequential(*(nn.Conv2d(4, 4, 3, padding=1, stride=2, padding_mode=mode) for _ in range(2)))
    converted, report = convert(model, "lr", input_size=(4, 33, 33))
    assert report.macs_after == profile(converted, (4, 33, 33)).macs
    # 17² outputs, then 9²; halves of 1×3 and 3×1 filters
    assert profile(model, (4, 33, 33)).macs == 3 * profile(converted, (4, 33, 33)).macs == (17**2 + 9**2) * 4 * 36


def test_a_report_is_printed_for_people() -> None:
    report = plan_conversion(nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 1, 3), nn.Conv2d(1, 4, 1)), "lr")
    header, line, *shown = str(report).splitlines()
    assert header.split() == "layer convolution becomes parameters MACs % of MACs".split()
    assert set(line) <= {"-", " "}
    assert [" ".join(row.split()) for row in shown[:3]] == [
        "0 3×3, 4 → 4 [3×1: 2 ‖ 1×3: 2] 148 → 52 – –",
        "1 3×3, 4 → 1 [3×1: 1] 37 → 13 – –",
        "2 1×1, 1 → 4 skipped: 1×1: nothing to save 8 – –",
    ]
    assert shown[3:] == [
        "3 convolutions: 2 replaced, 0 kept, 1 skipped; parameters 193 → 73 (37.8%)",
        "1: none of its 1 filters extends along axis 1; protect it to keep it dense",
    ]


def test_axes_that_no_filter_looks_along_are_told() -> None:
    report = plan_conversion(nn.Sequential(nn.Conv3d(4, 4, 3), nn.Conv3d(4, 2, 3)), "cross3")
    assert report.warnings == ("1: none of its 2 filters extends along axis 2; protect it to keep it dense",)
    assert report.replaced == 2


def test_a_lazy_layer_is_refused_with_what_to_do() -> None:
    model = nn.Sequential(nn.LazyConv2d(4, 3))
    for work in (plan_conversion, initialize_, lambda model: profile(model, (3, 8, 8))):
        with pytest.raises(SpecError, match="0 is a lazy layer whose channels are unknown; run the network once first"):
            work(model)
    model(torch.zeros(1, 3, 8, 8))
    assert convert(model, "lr").report.replaced == 1


def test_channels_may_be_whole_numbers_of_numpy() -> None:
    assert convert(nn.Sequential(nn.Conv2d(3, np.int64(8), 3)), "lr").report.replaced == 1


def test_tied_weights_are_refused_and_not_untied_in_silence() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3))
    model[1].weight = model[0].weight
    with pytest.raises(ConversionError, match="0 and 1 share a parameter"):
        convert(model, "lr")
    assert convert(model, "lr", protect=["0", "1"]).report.replaced == 0


def test_an_unknown_subclass_is_left_alone_and_named() -> None:
    class Odd(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(x, self.weight.abs())

    report = plan_conversion(nn.Sequential(Odd(3, 3, 3)), "lr")
    assert report.layers[0].reason.endswith("Odd overrides forward")


@pytest.mark.parametrize("variant", ["sf", "lr", "lr_join"])
def test_converting_the_base_gives_the_counts_of_the_variant(variant: str) -> None:
    with torch.device("meta"):
        base, named = create_model("vgg11_gmp"), create_model(f"vgg11_gmp_{variant}")
    converted = convert(base, variant.replace("_", "-")).model
    first, second = (profile(model, (3, 224, 224)) for model in (converted, named))
    assert (first.params, first.macs, first.macs_paper) == (second.params, second.macs, second.macs_paper)


def test_collapse_and_expand_are_exact_both_ways() -> None:
    model = Small().eval()
    low = convert(model, {"first": "lr-join", "shared": "lr", "last": "lr-join-wfull"}).model
    dense = collapse(low)
    x = torch.randn(2, *SIZE)
    assert isinstance(dense.first, nn.Conv2d)
    assert dense.shared is dense.again[0]
    torch.testing.assert_close(dense(x), low(x), rtol=1e-4, atol=1e-5)
    again = expand(dense, {"first": "lr-join", "shared": "lr", "last": "lr-join-wfull"})
    torch.testing.assert_close(again.model(x), low(x), rtol=1e-4, atol=1e-5)


def test_expanding_what_can_not_be_represented_is_refused() -> None:
    with pytest.raises(ConversionError, match="3 kernels can't be represented exactly"):
        expand(Small(), "lr")


def test_collapse_names_the_layer_that_has_no_single_kernel() -> None:
    model = convert(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1)), "sf").model
    with torch.no_grad():
        model[0].bias_0_0.fill_(1)
    with pytest.raises(NotLinearError, match="layer '0': .* cuts off at the border"):
        collapse(model)


def test_collapse_does_not_lose_hooks() -> None:
    low = convert(nn.Sequential(nn.Conv2d(3, 4, 3)), "lr").model
    low[0].register_forward_hook(lambda module, args, output: output)
    with pytest.raises(ConversionError, match="layer '0' can't be collapsed: it has hooks"):
        collapse(low)


def test_a_name_with_brackets_is_protected_as_it_is_written() -> None:
    model = nn.Sequential(nn.ModuleDict({"stem[0]": nn.Conv2d(3, 4, 3)}), nn.Conv2d(4, 4, 3))
    report = plan_conversion(model, "lr", protect=["0.stem[0]"])
    assert [row.plan is None for row in report.layers] == [True, False]


def test_unequal_padding_survives_the_collapse() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 4, padding="same"))
    low = convert(model, "lr").model
    x = torch.randn(1, 3, 9, 9)
    torch.testing.assert_close(collapse(low)(x), low(x))
