"""Plans are data: they survive JSON, refuse what is not a plan, and give the same weights for the same seed."""

import json

import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import one_group_plans, plans, specs

from cruciform.errors import CruciformError
from cruciform.nn.composite import CompositeConv
from cruciform.nn.init_rules import RULES
from cruciform.nn.initialize import initialize_
from cruciform.plan import LayerPlan
from cruciform.spec import ConvSpec

any_plan = plans() | one_group_plans()
scalars = st.none() | st.booleans() | st.integers(-2, 5) | st.floats() | st.text(max_size=3)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
)


@given(any_plan)
def test_a_plan_survives_json(plan: LayerPlan) -> None:
    again = LayerPlan.from_json(plan.to_json())
    assert again == plan
    assert again.owners == plan.owners
    assert hash(again) == hash(plan)


@given(specs(grouped=True))
def test_a_spec_survives_json(spec: ConvSpec) -> None:
    assert ConvSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@given(any_plan, st.data())
def test_a_damaged_plan_is_a_plan_or_our_own_error(plan: LayerPlan, data: st.DataObject) -> None:
    damaged = plan.to_dict()
    where = data.draw(st.sampled_from(("format", "spec", "stages", "kernel", "groups", "bias", "filters")))
    value = data.draw(anything)
    if where in damaged:
        damaged[where] = value
    elif where in ("groups", "bias"):
        damaged["stages"][0][where] = value
    elif where == "filters":
        damaged["stages"][0]["groups"][0][where] = value
    else:
        damaged["spec"][where] = value
    try:
        LayerPlan.from_json(json.dumps(damaged))
    except CruciformError as error:
        assert str(error)  # noqa: PT017


@given(any_plan, st.integers(0, 2**31), st.sampled_from(RULES.names()))
def test_the_same_seed_gives_the_same_weights(plan: LayerPlan, seed: int, rule: str) -> None:
    first, second = (
        initialize_(CompositeConv(plan), rule, generator=torch.Generator().manual_seed(seed)).state_dict()
        for _ in range(2)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


@given(any_plan, st.sampled_from(RULES.names()))
def test_every_rule_gives_every_group_a_finite_scale(plan: LayerPlan, rule: str) -> None:
    from cruciform.nn.init_rules import Surroundings

    draws = RULES.get(rule)(plan, Surroundings())
    assert [len(stage) for stage in draws] == [len(stage.groups) for stage in plan.stages]
    assert all(0 < draw.scale < float("inf") for stage in draws for draw in stage)
