import pytest

from cruciform.errors import PlanError, UnknownNameError
from cruciform.schemes import cross, find_scheme, make_plan
from cruciform.spec import ConvSpec

SQUARE = ConvSpec(64, 64, 3, padding=1)
VOLUME = ConvSpec(64, 9, (3, 3, 3), padding=1)


@pytest.mark.parametrize(
    ("spec", "scheme", "plan"),
    [
        (SQUARE, "full", "[3×3: 64]"),
        (SQUARE, "sf", "[1×3: 64] → [3×1: 64]"),
        (SQUARE, "lr", "[3×1: 32 ‖ 1×3: 32]"),
        (SQUARE, "lr-join", "[3×1: 32 ‖ 1×3: 32] → [1×1: 64]"),
        (SQUARE, "lr-join-wfull", "[3×1: 24 ‖ 1×3: 24 ‖ 3×3: 16] → [1×1: 64]"),
        (VOLUME, "lr", "[3×1×1: 3 ‖ 1×3×1: 3 ‖ 1×1×3: 3]"),
        (VOLUME, "sf", "[1×1×3: 9] → [1×3×1: 9] → [3×1×1: 9]"),
        (VOLUME, "cross3", "[3×1×1: 3 ‖ 1×3×1: 3 ‖ 1×1×3: 3]"),
        (VOLUME, "planes", "[1×3×3: 3 ‖ 3×1×3: 3 ‖ 3×3×1: 3]"),
        (VOLUME, "axial", "[3×3×1: 9] → [1×1×3: 9]"),
        (VOLUME, "cross:shapes=planes,full=0.34,join", "[1×3×3: 2 ‖ 3×1×3: 2 ‖ 3×3×1: 2 ‖ 3×3×3: 3] → [1×1×1: 9]"),
        (SQUARE, "planes", "[1×3: 32 ‖ 3×1: 32]"),
        (SQUARE, "axial", "[3×1: 64] → [1×3: 64]"),
        (ConvSpec(4, 9, (1, 3, 3)), "planes", "[1×1×3: 5 ‖ 1×3×1: 4]"),
        (ConvSpec(4, 9, (3, 3, 1)), "axial", "[3×1×1: 9] → [1×3×1: 9]"),
        (ConvSpec(4, 9, (5,)), "axial", "[5: 9]"),
        (ConvSpec(4, 9, (1, 3, 3)), "lr", "[1×3×1: 5 ‖ 1×1×3: 4]"),
        (ConvSpec(4, 9, (5,)), "lr-join-wfull", "[5: 9] → [1: 9]"),
        (ConvSpec(4, 1, 3), "lr", "[3×1: 1]"),
        (ConvSpec(4, 8, 1), "lr", "[1×1: 8]"),
    ],
)
def test_plans_by_name(spec: ConvSpec, scheme: str, plan: str) -> None:
    assert str(make_plan(spec, scheme)) == plan


def test_the_named_schemes_are_members_of_the_cross_family() -> None:
    assert make_plan(SQUARE, "full") == make_plan(SQUARE, cross(full=1))
    assert make_plan(SQUARE, "sf") == make_plan(SQUARE, cross(shapes=["1xk"], join="kx1"))
    assert make_plan(SQUARE, "lr") == make_plan(SQUARE, cross(shapes=["kx1", "1xk"]))
    assert make_plan(SQUARE, "lr-join") == make_plan(SQUARE, cross(join="1x1"))


@pytest.mark.parametrize(
    ("filters", "scheme", "plan"),
    [
        (64, "cross:block=16", "[3×1×1: 32 ‖ 1×3×1: 16 ‖ 1×1×3: 16]"),
        (128, "cross:block=16", "[3×1×1: 48 ‖ 1×3×1: 48 ‖ 1×1×3: 32]"),
        (50, "cross:block=16", "[3×1×1: 18 ‖ 1×3×1: 16 ‖ 1×1×3: 16]"),
        (47, "cross:block=16", "[3×1×1: 16 ‖ 1×3×1: 16 ‖ 1×1×3: 15]"),  # too few for a block along each axis
        (64, "cross:block=16,full=0.3", "[3×1×1: 16 ‖ 1×3×1: 16 ‖ 1×1×3: 16 ‖ 3×3×3: 16]"),
        (64, "cross:block=16,full=0.5", "[3×1×1: 11 ‖ 1×3×1: 11 ‖ 1×1×3: 10 ‖ 3×3×3: 32]"),
        (64, "cross:block=16,full=1", "[3×3×3: 64]"),
    ],
)
def test_filters_are_shared_out_in_blocks_where_there_are_enough(filters: int, scheme: str, plan: str) -> None:
    assert str(make_plan(ConvSpec(8, filters, (3, 3, 3)), scheme)) == plan


@pytest.mark.parametrize("block", [0, -16])
def test_a_block_has_a_filter_at_least(block: int) -> None:
    with pytest.raises(PlanError, match=f"block must be at least 1; got {block}"):
        cross(block=block)


def test_shapes_may_be_given() -> None:
    plan = make_plan(ConvSpec(4, 8, 5), cross(shapes=["1x5", "2x2", "3@2", "k"]))
    assert str(plan) == "[1×5: 2 ‖ 2×2: 2 ‖ 3×3@2×2: 2 ‖ 5×5: 2]"
    assert str(make_plan(ConvSpec(4, 8, 5), cross(shapes=["1x3@1x2"]))) == "[1×3@1×2: 8]"


@pytest.mark.parametrize("shape", ["3x", "3x3x3", "kxq", "", "3x3@", "-1x3", "0"])
def test_a_shape_that_can_not_be_read_is_refused_with_examples(shape: str) -> None:
    if shape == "3x3@":
        return  # an empty dilation is none
    with pytest.raises(PlanError, match=r"'3x3@2'|positive integers"):
        make_plan(SQUARE, cross(shapes=[shape]))


def test_the_low_dimensional_embedding_of_the_paper() -> None:
    plan = make_plan(ConvSpec(3, 32, 3), cross(width=3.5, full=1 / 7, join=True))
    assert str(plan) == "[3×1: 48 ‖ 1×3: 48 ‖ 3×3: 16] → [1×1: 32]"


def test_impossible_schemes_are_refused() -> None:
    with pytest.raises(PlanError, match="width=2 needs join=True"):
        cross(width=2)
    with pytest.raises(PlanError, match="width must be positive"):
        cross(width=0, join=True)
    with pytest.raises(PlanError, match=r"full in \[0, 1\]"):
        cross(full=1.5)
    with pytest.raises(PlanError, match="leaves no basis filter"):
        cross(shapes=[])
    with pytest.raises(PlanError, match="groups=1, not groups=2"):
        make_plan(ConvSpec(4, 4, 3, groups=2), "lr")
    with pytest.raises(PlanError, match="have kernels longer than 1 along axis 0"):
        make_plan(SQUARE, cross(join="kx1"))


@pytest.mark.parametrize(
    "text", ["cross:join=False", "cross:shapes=kx1+1xq", "cross:shapes=kx1+kx1x1", "cross:shapes=0xk+kx1"]
)
def test_a_slip_in_a_shape_is_found_before_any_layer_is_asked(text: str) -> None:
    with pytest.raises(PlanError, match="no kernel of rank 1 to 3 can have"):
        find_scheme(text)


def test_planes_may_be_joined() -> None:
    assert str(make_plan(VOLUME, "cross:shapes=planes,join=1")).endswith("→ [1×1×1: 9]")


def test_an_unknown_scheme_names_the_close_ones() -> None:
    with pytest.raises(UnknownNameError, match="unknown scheme 'lr-jion'. Did you mean 'lr-join'"):
        make_plan(SQUARE, "lr-jion")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("cross:full=0.25", cross(full=0.25)),
        ("cross:width=0.5,join", cross(width=0.5, join=True)),
        ("cross:shapes=kx1+2x2,join=kxk", None),
        ("cross:shapes=kx1+2x2", cross(shapes=("kx1", "2x2"))),
        ("lr", cross()),
    ],
)
def test_a_member_of_the_family_can_be_written_as_text(text: str, same: object) -> None:
    spec = ConvSpec(8, 16, 3, padding=1)
    if same is None:
        with pytest.raises(PlanError, match="have kernels longer than 1 along axis"):
            make_plan(spec, text)
    else:
        assert make_plan(spec, text) == same(spec)


@pytest.mark.parametrize("text", ["cross:half", "cross:full=much", "cross:", "cross:join;full=0.5", "cross:block=2.5"])
def test_options_that_cross_has_not_are_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(PlanError, match="write width=0.5, full=0.25, block=16, join"):
        make_plan(ConvSpec(8, 16, 3), text)


@pytest.mark.parametrize(
    ("text", "filters"), [("sf:rank=50%", 32), ("sf:rank=30%", 16), ("sf:rank=1%", 1), ("sf:rank=30", 30)]
)
def test_a_rank_may_be_a_percentage_in_whole_blocks(text: str, filters: int) -> None:
    assert make_plan(ConvSpec(16, 64, 3), text).stages[0].filters == filters
    assert make_plan(ConvSpec(16, 64, 3), text.replace("sf", "thin")).stages[0].filters == filters


@pytest.mark.parametrize("text", ["sf:rank=0", "thin:rank=0%", "sf:rank=half", "sf:rank=50%%", "thin:rank=nan%"])
def test_a_rank_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match=r"at least 1, or a percentage above 0%|write 'sf:rank=64' or 'sf:rank=50%'"):
        make_plan(ConvSpec(16, 64, 3), text)
