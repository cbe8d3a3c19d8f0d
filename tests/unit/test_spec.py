import pytest

from cruciform.errors import ShapeError, SpecError
from cruciform.spec import ConvSpec, join_sizes


def test_one_number_stands_for_all_axes_and_means_two_dimensions() -> None:
    spec = ConvSpec(3, 8, 3, stride=2, padding=1)
    assert (spec.kernel, spec.stride, spec.padding, spec.dilation) == ((3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1))
    assert ConvSpec(3, 8, (3,)).rank == 1
    assert ConvSpec(3, 8, 3, stride=(1, 2, 1)).kernel == (3, 3, 3)


@pytest.mark.parametrize(
    ("kernel", "dilation", "padding"),
    [(3, 1, (1, 1)), (4, 1, (1, 2)), (3, 2, (2, 2)), (4, 3, (4, 5)), (1, 5, (0, 0))],
)
def test_same_padding_is_split_as_in_torch(kernel: int, dilation: int, padding: tuple[int, int]) -> None:
    assert ConvSpec(1, 1, (kernel,), padding="same", dilation=dilation).padding == (padding,)


def test_output_sizes_by_hand() -> None:
    assert ConvSpec(3, 64, 7, stride=2, padding=3).output_size((224, 225)) == (112, 113)
    assert ConvSpec(1, 1, (3,), dilation=2).output_size((5,)) == (1,)
    assert ConvSpec(1, 1, (2, 3), padding=((0, 1), (2, 0))).output_size((4, 4)) == (4, 4)


def test_macs_in_both_ways_of_counting() -> None:
    spec = ConvSpec(3, 64, 3, padding=1)
    assert spec.macs((224, 224)) == 9 * 3 * 64 * 224 * 224
    assert spec.macs((224, 224), count="paper") == 9 * 3 * 64 * 224 * 224 + 64
    assert ConvSpec(3, 64, 3, bias=False).macs((2, 2), count="paper") == 9 * 3 * 64 * 4
    assert ConvSpec(4, 8, 3, groups=2).params == 9 * 2 * 8 + 8


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kernel": 0}, "kernel=0 must be positive integers"),
        ({"kernel": (3, 3, 3, 3)}, "rank 4"),
        ({"kernel": "3"}, "kernel='3' must be one integer"),
        ({"kernel": (3, True)}, "positive integers"),
        ({"stride": (1, 2, 3)}, "must be one integer, or 3|must be one integer, or 2"),
        ({"stride": 1.5}, "stride=1.5"),
        ({"padding": "full"}, "'same' or 'valid'"),
        ({"padding": "same", "stride": 2}, "padding='same' needs stride 1"),
        ({"padding": -1}, "integers of at least 0"),
        ({"padding": ((1, 2, 3), (0, 0))}, "pairs"),
        ({"groups": 2}, "groups=2 must divide"),
        ({"groups": 0}, "positive integers"),
        ({"in_channels": 0}, "positive integers"),
        ({"bias": 1}, "bias must be True or False"),
        ({"padding_mode": "mirror"}, "not one of zeros, reflect"),
    ],
)
def test_impossible_convolutions_are_refused_with_the_reason(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ConvSpec(**{"in_channels": 3, "out_channels": 8, "kernel": (3, 3), **wrong})


def test_sizes_are_refused_with_what_to_give() -> None:
    spec = ConvSpec(1, 1, 5)
    with pytest.raises(ShapeError, match="4×9 is smaller than the kernel, 5×5, .* it must be at least 5×5"):
        spec.output_size((4, 9))
    with pytest.raises(ShapeError, match="a 2-D convolution needs 2 spatial sizes; got 9"):
        spec.output_size((9,))
    with pytest.raises(SpecError, match="count='flops' is not one of mul_add, paper"):
        spec.macs((1, 1), count="flops")


def test_unknown_and_missing_keys_are_named() -> None:
    data = ConvSpec(1, 2, 3).to_dict()
    with pytest.raises(SpecError, match=r"unknown: \['size'\], missing: \['stride'\]"):
        ConvSpec.from_dict({("size" if key == "stride" else key): value for key, value in data.items()})
    with pytest.raises(SpecError, match="must be a mapping, not list"):
        ConvSpec.from_dict([])


def test_sizes_are_written_as_people_write_them() -> None:
    assert join_sizes((3, 1)) == "3×1"
