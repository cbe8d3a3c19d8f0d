"""Plan, module and dispatcher must count the same."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import inputs, one_group_plans, plans, specs
from torch.utils.flop_counter import FlopCounterMode

from cruciform.measure.macs import profile
from cruciform.nn.composite import CompositeConv
from cruciform.plan import LayerPlan
from cruciform.schemes import full
from cruciform.spec import ConvSpec

any_plan = plans() | one_group_plans()


def on_meta(plan: LayerPlan) -> CompositeConv:
    return CompositeConv(plan, device="meta")


@given(any_plan)
def test_parameters_of_plan_and_module_are_equal(plan: LayerPlan) -> None:
    assert plan.params == sum(p.numel() for p in on_meta(plan).parameters())


@given(st.data(), any_plan)
def test_macs_of_plan_and_dispatcher_are_equal(data: st.DataObject, plan: LayerPlan) -> None:
    x = data.draw(inputs(plan))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        on_meta(plan)(x.float().to("meta"))
    assert counter.get_total_flops() == 2 * x.shape[0] * plan.macs_from_input(x.shape[2:])


@given(st.data(), any_plan)
def test_the_meter_agrees_with_the_plan(data: st.DataObject, plan: LayerPlan) -> None:
    size = data.draw(inputs(plan)).shape[1:]
    counted = profile(on_meta(plan), size)
    assert (counted.params, counted.macs) == (plan.params, plan.macs_from_input(size[1:]))
    assert counted.macs_paper == plan.macs_from_input(size[1:], count="paper")


@given(st.data(), any_plan)
def test_macs_by_output_size_never_exceed_those_by_input_size(data: st.DataObject, plan: LayerPlan) -> None:
    size = data.draw(inputs(plan)).shape[2:]
    by_output, by_input = plan.macs(plan.spec.output_size(size)), plan.macs_from_input(size)
    assert by_output <= by_input
    if len(plan.stages) == 1:
        assert by_output == by_input


@given(st.data(), any_plan)
def test_groups_add_up_to_the_plan(data: st.DataObject, plan: LayerPlan) -> None:
    size = data.draw(inputs(plan)).shape[2:]
    for count in ("mul_add", "paper"):
        groups = plan.group_macs(size, count=count)
        assert sum(map(sum, groups)) == plan.macs_from_input(size, count=count)


@given(any_plan)
def test_the_fan_out_is_the_mean_of_the_weights(plan: LayerPlan) -> None:
    for index in range(len(plan.stages)):
        assert plan.fan_out(index) * plan.in_channels(index) == plan.weights(index)


@given(st.data(), specs(grouped=True))
def test_the_full_plan_costs_what_the_convolution_costs(data: st.DataObject, spec: ConvSpec) -> None:
    plan = full(spec)
    size = data.draw(inputs(plan)).shape[2:]
    assert plan.params == spec.params
    assert plan.macs_from_input(size) == spec.macs(spec.output_size(size))


@given(specs(grouped=True), st.integers(1, 9))
def test_the_smallest_input_has_the_asked_output(spec: ConvSpec, n: int) -> None:
    asked = (n,) * spec.rank
    got = spec.output_size(spec.input_size(asked))
    # An input can't be smaller than one position, which much padding may make larger than asked.
    assert all(g == n or (g > n and s == 1) for g, s in zip(got, spec.input_size(asked), strict=True))
