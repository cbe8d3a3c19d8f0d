from xml.etree import ElementTree as ET

import pytest

from cruciform.reports.charts import Axis, bar, color, line_chart, nice_ticks, power_of_ten, spectrum_svg, tiles_svg
from cruciform.reports.html import Html, element, join
from cruciform.reports.page import duration, short


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
    assert [color(value) for value in (1.0, -1.0, 0.0, 9.0)] == ["#542788", "#b35806", "#f7f7f7", "#542788"]


def test_a_curve_stays_within_its_picture_and_leaves_out_what_is_no_number() -> None:
    curve = [(1.0, 0.2), (2.0, float("nan")), (3.0, 0.9)]
    accuracy = Axis("top-1 accuracy", write="{:.0%}".format)
    chart = ET.fromstring(line_chart("Accuracy", [("a <b>", curve), ("c", [])], x=Axis("epoch"), y=accuracy))  # noqa: S314
    _, _, width, height = map(float, chart.find("svg").attrib["viewBox"].split())
    points = chart.find(".//polyline").attrib["points"].split()
    assert len(points) == 2
    for x, y in (map(float, point.split(",")) for point in points):
        assert 0 <= x <= width
        assert 0 <= y <= height
    said = list(chart.itertext())
    assert {"Accuracy", "a <b>", "epoch", "top-1 accuracy", "20%", "100%"} <= set(said)
    nothing = line_chart("Loss", [], x=Axis("x"), y=Axis("y"))
    assert nothing == '<p class="quiet">Loss: nothing was logged</p>'


def test_a_single_point_is_seen_and_epochs_are_whole_numbers() -> None:
    chart = ET.fromstring(line_chart("", [("", [(1.0, 0.44)])], x=Axis("epoch", whole=True), y=Axis("right")))  # noqa: S314
    assert len(list(chart.iter("circle"))) == 1
    said = [text.text for text in chart.iter("text")]
    assert [text for text in said if text in ("0", "1", "2")] == ["0", "1", "2"]


def test_an_axis_of_names_has_them_in_place_of_numbers_within_the_picture() -> None:
    names = [f"blocks.block{number}.convs.0" for number in range(1, 5)]
    curve = [(float(number), 10.0**number) for number in range(1, 5)]
    chart = ET.fromstring(  # noqa: S314
        line_chart("Energy", [("", curve)], x=Axis("block", names=names), y=Axis("energy"), wide=True)
    )
    texts = {text.text: text for text in chart.iter("text")}
    assert set(names) <= set(texts)
    assert "1" not in texts
    longest = max(map(len, names)) * 5.6
    assert all(float(texts[name].attrib["x"]) > 0.8 * longest for name in names)  # what is written aslant begins there


def test_of_many_names_along_an_axis_some_are_left_out_and_all_points_are_drawn() -> None:
    names = [f"layer{number}" for number in range(100)]
    chart = ET.fromstring(  # noqa: S314
        line_chart("", [("", [(n + 1.0, n) for n in range(100)])], x=Axis("block", names=names), y=Axis(""), wide=True)
    )
    shown = [text.text for text in chart.iter("text") if (text.text or "").startswith("layer")]
    assert shown == names[::3]
    assert len(list(chart.iter("circle"))) == 100


def test_a_spectrum_has_axes_with_names_and_numbers_and_its_rank_in_words() -> None:
    picture = ET.fromstring(spectrum_svg([1.0, 0.5, 0.25, 0.125], 2.8))  # noqa: S314
    said = {text.text for text in picture.iter("text")}
    assert {"index of the singular value", "σ / largest σ", "effective rank 2.8", "0", "0.5", "1", "4"} <= said
    (mark,) = [line for line in picture.iter("line") if line.attrib["class"] == "mark"]
    points = [float(point.split(",")[0]) for point in picture.find("polyline").attrib["points"].split()]
    assert points[1] < float(mark.attrib["x1"]) < points[2]
    assert spectrum_svg([1.0], 1.0) == ""


def test_a_logarithmic_axis_is_written_in_powers_of_ten() -> None:
    assert [power_of_ten(exponent) for exponent in (-3.0, 0.0, 1.0, 12.0)] == ["10⁻³", "1", "10¹", "10¹²"]


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


def test_a_bar_has_the_one_that_it_is_compared_with_beside_it_also_where_that_is_shorter() -> None:
    pair = ET.fromstring(bar(0.8, of=0.5))  # noqa: S314
    assert [(one.attrib["class"], one.attrib["style"]) for one in pair] == [
        ("one", "width:80.00%"), ("of", "width:50.00%"),
    ]  # fmt: skip
    assert pair.attrib["class"] == "bar pair"  # the style has both below one another


@pytest.mark.parametrize(("low", "high"), [(2.3025850929940455, 2.302585092994046), (1e-14, 2e-14), (0.0, 0.0)])
def test_a_flat_line_has_an_axis(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low
    assert ticks[-1] >= high
    assert len(set(ticks)) == len(ticks) >= 2
