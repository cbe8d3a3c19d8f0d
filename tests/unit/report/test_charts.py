from xml.etree import ElementTree as ET

import pytest

from cruciform.report.charts import bar, colour, line_chart, nice_ticks, tiles_svg
from cruciform.report.html import Html, element, join
from cruciform.report.page import duration, short


def test_text_is_escaped_and_html_is_not() -> None:
    assert element("p", "<b>", Html("<i></i>"), None, 3) == "<p>&lt;b&gt;<i></i>3</p>"
    assert element("p", class_='"x', data_label="a") == '<p class="&quot;x" data-label="a"></p>'
    assert join("&", Html("&amp;")) == "&amp;&amp;"


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0.58, 0.93, [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        (3, 3, [2.6, 2.8, 3.0, 3.2, 3.4]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_ticks_are_round_and_enclose_the_values(low: float, high: float, ticks: list[float]) -> None:
    assert nice_ticks(low, high) == pytest.approx(ticks)


def test_a_weight_of_one_is_violet_of_minus_one_brown_and_zero_nearly_white() -> None:
    assert [colour(value) for value in (1.0, -1.0, 0.0, 9.0)] == ["#542788", "#b35806", "#f7f7f7", "#542788"]


def test_a_curve_stays_within_its_picture_and_leaves_out_what_is_no_number() -> None:
    curve = [(1.0, 0.2), (2.0, float("nan")), (3.0, 0.9)]
    chart = ET.fromstring(line_chart([("a <b>", curve)], x="epoch", y="right", percent=True))  # noqa: S314
    points = chart.find(".//polyline").attrib["points"].split()
    assert len(points) == 2
    for x, y in (map(float, point.split(",")) for point in points):
        assert 0 <= x <= 380
        assert 0 <= y <= 210
    assert "a <b>" in "".join(chart.itertext())
    assert line_chart([], x="x", y="y") == '<p class="quiet">nothing was logged</p>'


def test_a_single_point_is_seen_and_epochs_are_whole_numbers() -> None:
    chart = ET.fromstring(line_chart([("top 1", [(1.0, 0.44)])], x="epoch", y="right"))  # noqa: S314
    assert len(list(chart.iter("circle"))) == 1
    assert [text.text for text in chart.iter("text") if text.attrib.get("y") == "192"] == ["0", "1", "2"]


def test_a_tile_has_a_square_for_each_tap_that_there_is() -> None:
    picture = ET.fromstring(tiles_svg([[[None, 1.0, None]], [[0.5, 0.0, -1.0]]], columns=1, label="two"))  # noqa: S314
    squares = [one for one in picture.iter("rect") if "fill" in one.attrib]
    assert [one.attrib["fill"] for one in squares][0::3] == ["#542788", "#b35806"]
    assert len(squares) == 4


def test_bars_never_reach_beyond_their_ends() -> None:
    assert "width:100.00%" in bar(1.5)
    assert "width:0.00%" in bar(-1)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (312, "312"), (4608, "4.61 k"), (999_700, "1000 k"), (53_736_736, "53.7 M"), (7_508_438_696, "7.51 G")],
)
def test_counts_in_short(number: int, text: str) -> None:
    assert short(number) == text


def test_durations() -> None:
    assert [duration(seconds) for seconds in (5, 600, 7200)] == ["5 s", "10 min", "2.0 h"]
