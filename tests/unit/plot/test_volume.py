from pathlib import Path

import pytest

from cruciform.plot.style import save_picture
from cruciform.plot.volume import draw_volume_plan
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("scheme", ["cross3", "planes", "cross:full=0.25", "axial"])
def test_a_window_is_drawn_for_the_dense_layer_each_group_and_all_of_them(scheme: str, tmp_path: Path) -> None:
    plan = make_plan(ConvSpec(8, 12, (3, 5, 3)), scheme)
    figure = draw_volume_plan(plan, source="a test")
    assert len(figure.axes) == len(plan.stages[0].groups) + 2
    save_picture(figure, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_the_shares_of_the_weights_are_told() -> None:
    figure = draw_volume_plan(make_plan(ConvSpec(8, 12, (3, 3, 3)), "cross3"), source="a test")
    told = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert told == ["100 % of the weights", *["3.7 % of the weights"] * 3, "11.1 % of the weights"]
