"""Charts as HTML and SVG without scripts: bars, lines and filters.

Written by hand rather than as Jinja2 templates: they are computed geometry with hardly any markup, and ``html.element``
escapes every text by type, which the type checker sees.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cruciform.measure.tiles import Tile
from cruciform.reports.html import Html, element

GAP = 0.9  # between two filters, in taps
NEGATIVE, ZERO, POSITIVE = (179, 88, 6), (247, 247, 247), (84, 39, 136)  # the ends of ColorBrewer's PuOr
LETTER = 5.6  # the mean width of a letter, in the units of a chart
MOST_NAMES = 40  # tick labels along an axis; of more, some are skipped

Line = tuple[str, Sequence[tuple[float, float]]]
Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """An axis of a chart.

    Attributes:
        label: Its label, with the unit.
        write: Formats a value; three digits where left out.
        names: Tick labels at 1, 2, 3, … instead of numbers, rotated.
        whole: Whether ticks are integers.
    """

    label: str
    write: Callable[[float], str] = "{:g}".format
    names: Sequence[str] = ()
    whole: bool = False

    def ticks(self, values: Sequence[float]) -> list[float]:
        """Return ticks that enclose all values."""
        if self.names:
            return [float(number) for number in range(1, len(self.names) + 1)]
        return nice_ticks(min(values), max(values), least=1 if self.whole else 0)


@dataclass(frozen=True)
class _Frame:
    """The area inside the axes of a chart, in the units of the picture."""

    size: Point
    margins: tuple[float, float, float, float]  # left, right, top, bottom
    ticks_x: Sequence[float]
    ticks_y: Sequence[float]

    def place(self, point: Point) -> Point:
        """Return the position of a point."""
        left, right, top, bottom = self.margins
        room = 0.5 if len(self.ticks_x) < 2 else 0.0
        span = (self.ticks_x[-1] - self.ticks_x[0]) or 1.0
        across = room + (point[0] - self.ticks_x[0]) / span
        up = (point[1] - self.ticks_y[0]) / (self.ticks_y[-1] - self.ticks_y[0])
        return (
            left + across * (self.size[0] - left - right),
            self.size[1] - bottom - up * (self.size[1] - top - bottom),
        )

    def draw(self, x: Axis, y: Axis) -> list[Html]:
        """Return the grid, the ticks and the names of both axes."""
        (width, height), (left, right, top, bottom) = self.size, self.margins
        parts = []
        for value in self.ticks_y:
            _, at = self.place((self.ticks_x[0], value))
            parts.append(element("line", x1=_n(left), x2=_n(width - right), y1=_n(at), y2=_n(at), class_="grid"))
            parts.append(element("text", y.write(value), x=_n(left - 5), y=_n(at + 3.5), text_anchor="end"))
        every = -(-len(x.names) // MOST_NAMES) or 1
        for number, value in enumerate(self.ticks_x):
            at, _ = self.place((value, self.ticks_y[0]))
            foot = height - bottom + 14
            if not x.names:
                parts.append(element("text", x.write(value), x=_n(at), y=_n(foot), text_anchor="middle"))
            elif number % every == 0:
                turn = f"rotate(-35 {_n(at)} {_n(foot - 4)})"
                text = x.names[number]
                parts.append(element("text", text, x=_n(at), y=_n(foot - 4), text_anchor="end", transform=turn))
        center, middle = (left + width - right) / 2, (top + height - bottom) / 2
        beside = left - 16 - LETTER * max(len(y.write(value)) for value in self.ticks_y)
        turned = f"rotate(-90 {_n(beside)} {_n(middle)})"
        shared = {"text_anchor": "middle", "class_": "axis"}
        parts.append(element("text", x.label, x=_n(center), y=_n(height - 4), **shared))
        parts.append(element("text", y.label, x=_n(beside), y=_n(middle), transform=turned, **shared))
        return parts


def bar(share: float, *, of: float | None = None, kind: str = "one") -> Html:
    """Return a bar from 0 to 1 and, below it, a paler one to compare it with."""
    own = element("i", class_=kind, style=f"width:{_percent(share)}")
    if of is None:
        return element("div", own, class_="bar")
    return element("div", own, element("i", class_="of", style=f"width:{_percent(of)}"), class_="bar pair")


def line_chart(title: str, lines: Sequence[Line], *, x: Axis, y: Axis, wide: bool = False) -> Html:
    """Return curves with axes and a legend.

    Args:
        title: What it shows.
        lines: The name and the points of each.
        x: The horizontal axis.
        y: The vertical axis.
        wide: Whether it takes the whole width of a page.
    """
    points = [point for _, curve in lines for point in curve if all(map(math.isfinite, point))]
    if not points:
        return element("p", f"{title}: nothing was logged", class_="quiet")
    ticks_x, ticks_y = x.ticks([px for px, _ in points]), y.ticks([py for _, py in points])
    longest = LETTER * max(map(len, x.names), default=0)
    left = 32 + LETTER * max(len(y.write(value)) for value in ticks_y)
    # A name that is written aslant begins below and to the left of its tick.
    margins = (max(left, 0.82 * longest + 8) if x.names else left, 14, 10, 38 + 0.6 * longest if x.names else 38)
    width, height = (800, 240 + 0.6 * longest) if wide else (400, 230 + 0.6 * longest)
    frame = _Frame((width, height), margins, ticks_x, ticks_y)
    parts = frame.draw(x, y)
    for number, (_, curve) in enumerate(lines):
        parts += _curve(frame, curve, number, dots=bool(x.names))
    legend = [element("span", name, class_=f"key c{number}") for number, (name, _) in enumerate(lines)]
    label = f"{title}: {y.label} against {x.label}"
    chart = element("svg", parts, viewBox=f"0 0 {_n(width)} {_n(height)}", role="img", aria_label=label)
    return element(
        "figure", element("b", title), element("figcaption", legend) if len(lines) > 1 else None, chart, class_="chart"
    )


def _curve(frame: _Frame, curve: Sequence[Point], number: int, *, dots: bool) -> list[Html]:
    places = [frame.place(point) for point in curve if all(map(math.isfinite, point))]
    path = " ".join(f"{_n(a)},{_n(b)}" for a, b in places)
    marks = places if dots or len(places) == 1 else []  # no line goes through one point
    return [
        element("polyline", points=path, class_=f"curve c{number}"),
        *(element("circle", cx=_n(a), cy=_n(b), r=2.4, class_=f"curve dot c{number}") for a, b in marks),
    ]


def tiles_svg(tiles: Sequence[Tile], *, columns: int, label: str) -> Html:
    """Return filters side by side as SVG: brown below zero, violet above."""
    if not tiles:
        return Html("")
    height, width = len(tiles[0]), len(tiles[0][0])
    lines = -(-len(tiles) // columns)
    parts: list[Html] = []
    for index, tile in enumerate(tiles):
        left, top = (index % columns) * (width + GAP), (index // columns) * (height + GAP)
        parts.append(element("rect", x=_n(left), y=_n(top), width=width, height=height, class_="frame"))
        parts += [
            element("rect", x=_n(left + j), y=_n(top + i), width=1, height=1, fill=color(value))
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
    """Return the curve of singular values as SVG, with the effective rank dashed."""
    if len(values) < 2:
        return Html("")
    count = len(values)
    ticks = [1.0, *(tick for tick in nice_ticks(1, count, most=5, least=1) if 1 < tick < 0.9 * count), float(count)]
    frame = _Frame((330, 130), (46, 12, 8, 36), ticks, (0.0, 0.5, 1.0))
    (at, top), (_, foot) = frame.place((max(1.0, min(rank, count)), 1.0)), frame.place((1.0, 0.0))
    parts = frame.draw(Axis("index of the singular value"), Axis("σ / largest σ"))
    parts.append(element("line", x1=_n(at), x2=_n(at), y1=_n(top), y2=_n(foot), class_="mark"))
    end = at > 0.5 * 330
    shown = f"effective rank {rank:.1f}"
    parts.append(
        element("text", shown, x=_n(at - 4 if end else at + 4), y=_n(top + 10), text_anchor="end" if end else "start")
    )
    parts += _curve(frame, [(float(n), value) for n, value in enumerate(values, 1)], 0, dots=False)
    return element("svg", parts, viewBox="0 0 330 130", class_="spectrum", role="img", aria_label="singular values")


def color(value: float) -> str:
    """Return the color of a weight from −1 to 1."""
    end = POSITIVE if value > 0 else NEGATIVE
    share = min(1.0, abs(value))
    return "#" + "".join(f"{round(zero + share * (full - zero)):02x}" for zero, full in zip(ZERO, end, strict=True))


def nice_ticks(low: float, high: float, *, most: int = 6, least: float = 0) -> list[float]:
    """Return at least two round numbers that enclose a range.

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


def power_of_ten(exponent: float) -> str:
    """Return ``10⁻³`` for −3: how a logarithmic axis is written."""
    digits = str.maketrans("-0123456789.", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹˙")
    return "1" if exponent == 0 else "10" + f"{exponent:g}".translate(digits)


def definition(pairs: Sequence[tuple[str, str]], *, kind: str = "figures") -> Html:
    """Return a definition list: figures side by side, or a card."""
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in pairs]
    return element("dl", rows, class_=kind)


def _percent(share: float) -> str:
    return f"{100 * min(1.0, max(0.0, share)):.2f}%"


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
