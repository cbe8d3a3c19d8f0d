import pytest

from cruciform.errors import PlanError
from cruciform.plan import FilterGroup, LayerPlan, Stage, embedding_offset, group_padding
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

SPEC = ConvSpec(4, 8, 3, stride=2, padding=1, dilation=1)


@pytest.mark.parametrize(
    ("window", "kernel", "dilation", "offset"),
    [(3, 1, 1, 1), (3, 3, 1, 0), (4, 1, 1, 1), (4, 2, 1, 1), (4, 3, 1, 0), (5, 3, 1, 1), (5, 3, 2, 0), (3, 5, 1, -1)],
)
def test_a_kernel_is_embedded_at_the_center_rounded_down(window: int, kernel: int, dilation: int, offset: int) -> None:
    assert embedding_offset(window, kernel, dilation) == offset


def test_a_group_pads_less_where_its_kernel_is_shorter_and_cuts_off_where_it_must() -> None:
    assert group_padding(ConvSpec(1, 1, 3, padding=1), FilterGroup((3, 1), 1)) == ((1, 1), (0, 0))
    assert group_padding(ConvSpec(1, 1, 3), FilterGroup((3, 1), 1)) == ((0, 0), (-1, -1))
    assert group_padding(ConvSpec(1, 1, 4, padding="same"), FilterGroup((1, 4), 1)) == ((0, 0), (1, 2))
    assert group_padding(ConvSpec(1, 1, 5, padding=4, dilation=2), FilterGroup((3, 1), 1)) == ((2, 2), (0, 0))


def test_a_separable_plan_splits_the_stride_over_its_stages() -> None:
    plan = make_plan(ConvSpec(4, 8, (3, 5), stride=(2, 3), padding=(1, 2)), "sf")
    first, second = plan.stage_spec(0), plan.stage_spec(1)
    assert (first.kernel, first.stride, first.padding) == ((1, 5), (1, 3), ((0, 0), (2, 2)))
    assert (second.kernel, second.stride, second.padding) == ((3, 1), (2, 1), ((1, 1), (0, 0)))


def test_the_first_stage_owns_what_no_stage_filters_along() -> None:
    plan = LayerPlan(SPEC, (Stage((FilterGroup((1, 1), 5),)), Stage((FilterGroup((3, 1), 8),))))
    assert plan.owners == (1, 0)


def test_the_stages_name_what_follows_them() -> None:
    stages = (Stage((FilterGroup((1, 3), 8),), activation="relu"), Stage((FilterGroup((3, 1), 8),)))
    plan = LayerPlan(SPEC, stages)
    assert plan.activations("gelu") == ("relu", "gelu")
    assert plan.obstacle == "there is a non-linearity (relu) after stage 0"
    assert make_plan(SPEC, "sf").activations("relu") == (None, "relu")
    assert make_plan(SPEC, "lr").obstacle is None


def test_plans_are_shown_as_the_paper_writes_them() -> None:
    assert str(make_plan(SPEC, "lr-join")) == "[3×1: 4 ‖ 1×3: 4] → [1×1: 8]"
    assert str(FilterGroup((3, 3), 2, (2, 2))) == "3×3@2×2: 2"


def test_only_the_dense_plan_is_dense() -> None:
    assert make_plan(SPEC, "full").is_dense
    assert not make_plan(SPEC, "lr").is_dense


def test_biases_inside_are_cut_off_only_by_zero_padding_of_a_later_stage() -> None:
    assert make_plan(SPEC, "sf").border_biases == (0,)
    assert make_plan(SPEC, "lr-join").border_biases == ()
    assert make_plan(ConvSpec(4, 8, 3), "sf").border_biases == ()
    assert make_plan(ConvSpec(4, 8, 3), "cross:shapes=1xk,join=5x1").border_biases == (0,), "out of the kernel"
    assert make_plan(ConvSpec(4, 8, 3, padding=1, padding_mode="reflect"), "sf").border_biases == ()


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([], "at least one stage"),
        ([[((3, 3), 7)]], "the last stage has 7 filters; the layer needs 8"),
        ([[((3,), 8)]], "has rank 1, but the convolution has rank 2"),
        ([[((3, 3), 4), ((3,), 4)]], "have different ranks"),
        ([[((3, 1), 8)], [((3, 1), 8)]], "have kernels longer than 1 along axis 0"),
    ],
)
def test_impossible_plans_are_refused(stages: list[list[tuple[tuple[int, ...], int]]], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        LayerPlan(SPEC, tuple(Stage(tuple(FilterGroup(*group) for group in stage)) for stage in stages))


def test_other_impossible_plans() -> None:
    with pytest.raises(PlanError, match="at least one filter group"):
        Stage(())
    with pytest.raises(PlanError, match="positive integers"):
        FilterGroup((3, 0), 1)
    with pytest.raises(PlanError, match="positive integers"):
        FilterGroup((3, 3), 1, (1,))
    with pytest.raises(PlanError, match="the last stage has an activation; leave it out"):
        LayerPlan(SPEC, (Stage((FilterGroup((3, 3), 8),), activation="relu"),))
    with pytest.raises(PlanError, match="groups=2 can only be one stage of one filter group"):
        LayerPlan(ConvSpec(4, 8, 3, groups=2), (Stage((FilterGroup((3, 1), 4), FilterGroup((1, 3), 4))),))


def test_text_that_is_no_plan_is_refused_in_our_own_words() -> None:
    with pytest.raises(PlanError, match="a plan must be valid JSON:"):
        LayerPlan.from_json("[3×1: 4]")
    with pytest.raises(PlanError, match="needs exactly the keys"):
        LayerPlan.from_json("{}")
    data = make_plan(SPEC, "lr").to_dict()
    with pytest.raises(PlanError, match="plan format 2 is not supported; this version reads format 1"):
        LayerPlan.from_dict({**data, "format": 2})
