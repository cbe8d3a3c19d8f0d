"""Charts as HTML and SVG, without a script: bars, lines and filters. Colours come from the page's style."""

import math
from collections.abc import Sequence

from cruciform.measure.tiles import Tile
from cruciform.report.html import Html, element, join

WIDTH, HEIGHT = 380, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 12, 34
GAP = 0.9  # between two filters, in taps
NEGATIVE, ZERO, POSITIVE = (179, 88, 6), (247, 247, 247), (84, 39, 136)  # the ends of ColorBrewer's PuOr

Line = tuple[str, Sequence[tuple[float, float]]]


def bar(share: float, *, of: float | None = None, kind: str = "one") -> Html:
    """Returns a bar from 0 to 1, and in a paler colour the one that it is compared with."""
    behind = element("i", class_="of", style=f"width:{_percent(of)}") if of is not None else None
    return element("div", behind, element("i", class_=kind, style=f"width:{_percent(share)}"), class_="bar")


def line_chart(lines: Sequence[Line], *, x: str, y: str, percent: bool = False) -> Html:
    """Returns curves with axes and a legend.

    Args:
        lines: The name and the points of each.
        x: What the horizontal axis counts, in whole numbers.
        y: What the vertical axis is.
        percent: Whether values are shares, to be written as per cent.
    """
    points = [point for _, curve in lines for point in curve if all(map(math.isfinite, point))]
    if not points:
        return element("p", "nothing was logged", class_="quiet")
    ticks_x = nice_ticks(min(px for px, _ in points), max(px for px, _ in points), least=1)
    ticks_y = nice_ticks(min(py for _, py in points), max(py for _, py in points))

    def place(point: tuple[float, float]) -> tuple[float, float]:
        across = (point[0] - ticks_x[0]) / (ticks_x[-1] - ticks_x[0])
        up = (point[1] - ticks_y[0]) / (ticks_y[-1] - ticks_y[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts: list[Html] = []
    for value in ticks_y:
        _, height = place((ticks_x[0], value))
        parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=_n(height), y2=_n(height), class_="grid"))
        text = f"{100 * value:g} %" if percent else f"{value:g}"
        parts.append(element("text", text, x=LEFT - 5, y=_n(height + 3.5), text_anchor="end"))
    for value in ticks_x:
        across, _ = place((value, ticks_y[0]))
        parts.append(element("text", f"{value:g}", x=_n(across), y=HEIGHT - BOTTOM + 16, text_anchor="middle"))
    parts.append(element("text", x, x=_n((LEFT + WIDTH - RIGHT) / 2), y=HEIGHT - 4, text_anchor="middle"))
    for number, (_, curve) in enumerate(lines):
        places = [place(point) for point in curve if all(map(math.isfinite, point))]
        path = " ".join(f"{_n(a)},{_n(b)}" for a, b in places)
        parts.append(element("polyline", points=path, class_=f"curve c{number}"))
        if len(places) == 1:  # no line goes through one point
            parts.append(element("circle", cx=_n(places[0][0]), cy=_n(places[0][1]), r=2, class_=f"curve c{number}"))
    legend = element(
        "figcaption", [element("span", name, class_=f"key c{number}") for number, (name, _) in enumerate(lines)]
    )
    chart = element("svg", parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"{y} against {x}")
    return element("figure", element("b", y), legend, chart, class_="chart")


def tiles_svg(tiles: Sequence[Tile], *, columns: int, label: str) -> Html:
    """Returns filters side by side: brown below zero, violet above; a filter's empty taps are left open."""
    if not tiles:
        return Html("")
    height, width = len(tiles[0]), len(tiles[0][0])
    lines = -(-len(tiles) // columns)
    parts: list[Html] = []
    for index, tile in enumerate(tiles):
        left, top = (index % columns) * (width + GAP), (index // columns) * (height + GAP)
        parts.append(element("rect", x=_n(left), y=_n(top), width=width, height=height, class_="frame"))
        parts += [
            element("rect", x=_n(left + j), y=_n(top + i), width=1, height=1, fill=colour(value))
            for i, row in enumerate(tile)
            for j, value in enumerate(row)
            if value is not None
        ]
    across, down = min(columns, len(tiles)) * (width + GAP) - GAP, lines * (height + GAP) - GAP
    return element(
        "svg", parts, viewBox=f"-0.1 -0.1 {_n(across + 0.2)} {_n(down + 0.2)}", class_="tiles", role="img",
        aria_label=label, width=_n(8 * across), height=_n(8 * down),
    )  # fmt: skip


def spectrum_svg(values: Sequence[float], rank: float) -> Html:
    """Returns a falling curve of singular values and, as a dashed line, the effective rank."""
    if len(values) < 2:
        return Html("")
    last = len(values) - 1
    points = " ".join(f"{_n(100 * n / last)},{_n(40 - 38 * value)}" for n, value in enumerate(values))
    at = _n(100 * min(1.0, max(0.0, (rank - 1) / last)))
    return element(
        "svg",
        element("line", x1=at, x2=at, y1=0, y2=40, class_="mark"),
        element("polyline", points=points, class_="curve c0"),
        viewBox="0 0 100 40", class_="spectrum", preserveAspectRatio="none", role="img", aria_label="singular values",
    )  # fmt: skip


def colour(value: float) -> str:
    """Returns the colour of a weight from −1 to 1."""
    end = POSITIVE if value > 0 else NEGATIVE
    share = min(1.0, abs(value))
    return "#" + "".join(f"{round(zero + share * (full - zero)):02x}" for zero, full in zip(ZERO, end, strict=True))


def nice_ticks(low: float, high: float, *, most: int = 6, least: float = 0) -> list[float]:
    """Returns round numbers from at most the lowest to at least the highest value, two at the least.

    Args:
        low: The lowest value.
        high: The highest.
        most: About how many.
        least: How far apart two are at the least.
    """
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # the same but for rounding
        low, high = low - (abs(low) or 1) * 0.1, high + (abs(high) or 1) * 0.1
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    step = max(step, least)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = 2 - math.floor(math.log10(step))
    return [round(n * step, digits) for n in range(first, last + 1)]


def definition(pairs: Sequence[tuple[str, str]]) -> Html:
    """Returns names and what they are."""
    return element("dl", [join(element("div", element("dt", name), element("dd", value))) for name, value in pairs])


def _percent(share: float) -> str:
    return f"{100 * min(1.0, max(0.0, share)):.2f}%"


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
