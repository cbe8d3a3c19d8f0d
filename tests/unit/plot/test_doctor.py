from pathlib import Path
from typing import Any

import pytest

from cruciform.measure.gradients import Diagnosis, MeasuredBlock
from cruciform.plot import doctor


def drawn(monkeypatch: pytest.MonkeyPatch, names: list[str], *, trained: bool = False) -> Any:
    """Returns the axes of a picture in place of writing it."""
    figures: list[Any] = []
    monkeypatch.setattr(doctor, "save_picture", lambda figure, path: figures.append(figure))
    blocks = tuple(MeasuredBlock(name, 1.0, 1.0, 1.0, on_path=True) for name in names)
    doctor.draw_diagnosis(Diagnosis(blocks, 1.0, 0.1, 10.0, len(names) - 1, "", trained), Path("x.png"), title="x")
    return figures[0].axes[0]


def test_blocks_are_known_by_name_and_not_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = drawn(monkeypatch, ["net.block1.convs.0", "net.block1.convs.1", "net.block2.convs.0"])
    shown = [label.get_text() for label in axes.get_xticklabels()]
    assert shown == ["block1.convs.0", "block1.convs.1", "block2.convs.0"]


def test_of_many_blocks_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = drawn(monkeypatch, [f"layer{number}" for number in range(90)])
    assert [label.get_text() for label in axes.get_xticklabels()] == [f"layer{number}" for number in range(0, 90, 3)]


@pytest.mark.parametrize("trained", [False, True])
def test_what_is_allowed_is_shown_of_starting_points_only(monkeypatch: pytest.MonkeyPatch, trained: bool) -> None:
    axes = drawn(monkeypatch, ["a", "b"], trained=trained)
    bands = [text for text in axes.get_legend_handles_labels()[1] if text.startswith("trainable")]
    assert bool(bands) is not trained
    assert axes.get_title() == ("x\nno verdict" if trained else "x\ntrainable")
