"""Place labels beside points so that they cover neither each other nor a point.

Not done with adjustText, which moves labels iteratively: a search over fixed positions gives the same figure on every
run, and can penalize a label that seems to belong to another point.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from cruciform.plot.style import FONT_SIZE, GREY, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIRECTIONS = 16
DISTANCES = (4.0, 9.0, 15.0, 23.0, 33.0, 46.0, 60.0)  # points of type
COVERED = 20.0  # what covering a square point costs; a distance costs its square
MISLED = 4000.0  # what it costs to seem another point's name
MARK = 3.5  # half the side of a mark
LEADER = 9.0  # from this distance on, a line leads to the point


class Box(NamedTuple):
    """A rectangle, in any unit."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: "Box") -> float:
        """Return the area that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0.0, width) * max(0.0, height)

    def distance(self, point: tuple[float, float]) -> float:
        """Return how far a point is from the rectangle."""
        return math.dist(point, self.nearest(point))

    def nearest(self, point: tuple[float, float]) -> tuple[float, float]:
        """Return the point of the rectangle that is nearest to another."""
        return min(max(point[0], self.left), self.right), min(max(point[1], self.bottom), self.top)

    def outside(self, room: "Box") -> float:
        """Return the area that sticks out of a room."""
        return (self.right - self.left) * (self.top - self.bottom) - self.overlap(room)


class LabelPlace(NamedTuple):
    """Where a name goes.

    Attributes:
        box: What it covers.
        distance: From its point.
    """

    box: Box
    distance: float


def choose_places(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    room: Box,
    *,
    taken: Sequence[Box] = (),
    unit: float = 1.0,
) -> list[LabelPlace]:
    """Return a place for each name: the nearest one to its point that is free, or the one that covers least.

    Args:
        points: What is named.
        sizes: Width and height of each name.
        room: Where names may stand.
        taken: What must not be covered, the points included.
        unit: The length of a point of type.
    """
    candidates = []
    for index, (point, size) in enumerate(zip(points, sizes, strict=True)):
        others = [other for n, other in enumerate(points) if n != index]
        priced = [
            (_cost(place, point, room, taken, others=others, unit=unit), place)
            for place in _candidates(point, size, unit)
        ]
        candidates.append(sorted(priced, key=lambda pair: pair[0]))
    best: tuple[float, dict[int, LabelPlace]] = (math.inf, {})
    # Who chooses first decides much: several orders are tried. Then all choose again, knowing the others.
    for axis, sign in ((0, 1), (0, -1), (1, 1), (1, -1)):
        order = sorted(range(len(points)), key=lambda n: (sign * points[n][axis], n))
        places: dict[int, LabelPlace] = {}
        total = 0.0
        for turn in range(2):
            total = 0.0
            for index in order:
                boxes = [place.box for n, place in places.items() if n != index]
                cost, places[index] = _cheapest(candidates[index], boxes, unit)
                total += cost * turn
        if total < best[0]:
            best = (total, places)
    return [best[1][index] for index in range(len(points))]


def _cost(
    place: LabelPlace,
    point: tuple[float, float],
    room: Box,
    taken: Sequence[Box],
    *,
    others: Sequence[tuple[float, float]],
    unit: float,
) -> float:
    """Return what a place costs, whatever the places of other names."""
    covered = sum(map(place.box.overlap, taken)) + 3 * place.box.outside(room)
    misleading = _misleading(place.box, point, others, reach=MARK * unit)
    return COVERED * covered / unit**2 + MISLED * misleading + place.distance**2


def _cheapest(
    priced: Sequence[tuple[float, LabelPlace]], boxes: Sequence[Box], unit: float
) -> tuple[float, LabelPlace]:
    """Return the place that costs least with other names in their places, from a list that rises."""
    least, chosen = math.inf, priced[0][1]
    for price, place in priced:
        if price >= least:
            break
        cost = price + COVERED * sum(map(place.box.overlap, boxes)) / unit**2
        if cost < least:
            least, chosen = cost, place
    return least, chosen


def _misleading(box: Box, point: tuple[float, float], others: Sequence[tuple[float, float]], *, reach: float) -> bool:
    """Return whether a name would seem to belong to another point: one that is nearer, or on the way to its own."""
    own, end = box.distance(point), box.nearest(point)
    for other in others:
        if box.distance(other) < own - reach / 2:
            return True
        length = math.dist(point, end)
        share = sum((a - b) * (c - b) for a, b, c in zip(other, point, end, strict=True)) / max(length, 1e-9) ** 2
        foot = [b + min(1.0, max(0.0, share)) * (c - b) for b, c in zip(point, end, strict=True)]
        if math.dist(other, foot) < reach and math.dist(other, point) > 1e-9 and share > 0:
            return True
    return False


def _candidates(point: tuple[float, float], size: tuple[float, float], unit: float) -> list[LabelPlace]:
    found = []
    for distance in DISTANCES:
        for step in range(DIRECTIONS):
            angle = 2 * math.pi * step / DIRECTIONS
            x, y = math.cos(angle), math.sin(angle)
            # The box touches the circle around the point from outside.
            center_x = point[0] + x * (distance * unit + size[0] / 2)
            center_y = point[1] + y * (distance * unit + size[1] / 2)
            box = Box(
                center_x - size[0] / 2, center_y - size[1] / 2, center_x + size[0] / 2, center_y + size[1] / 2
            )  # fmt: skip
            found.append(LabelPlace(box, distance))
    return found


def label_points(
    axes: "Axes",
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    *,
    others: Sequence[tuple[float, float]] = (),
    size: float = FONT_SIZE,
) -> None:
    """Write names beside points, in the coordinates of the axes; call it when all else is drawn and scaled.

    Args:
        axes: Where to.
        points: What is named.
        names: Their names.
        others: More points that must not be covered.
        size: Of the letters.
    """
    figure = axes.get_figure(root=True)
    if figure is None or not points:
        return
    figure.draw_without_rendering()  # settles the layout, so that places are final
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    unit = figure.dpi / 72
    texts = [axes.text(0, 0, name, fontsize=size, color=INK, va="center", ha="center") for name in names]
    boxes = [text.get_window_extent(renderer) for text in texts]
    frame = axes.get_window_extent(renderer)
    pixels = [tuple(map(float, axes.transData.transform(point))) for point in (*points, *others)]
    radius = MARK * unit
    marks = [Box(x - radius, y - radius, x + radius, y + radius) for x, y in pixels]
    places = choose_places(
        [(x, y) for x, y in pixels[: len(points)]],
        [(box.width + unit, box.height) for box in boxes],
        Box(frame.x0, frame.y0, frame.x1, frame.y1),
        taken=marks,
        unit=unit,
    )
    back = axes.transData.inverted()
    for text, place, point, pixel in zip(texts, places, points, pixels, strict=False):
        box = place.box
        center = back.transform(((box.left + box.right) / 2, (box.bottom + box.top) / 2))
        text.set_position((float(center[0]), float(center[1])))
        if place.distance >= LEADER:
            edge = back.transform(box.nearest((float(pixel[0]), float(pixel[1]))))
            axes.plot([point[0], float(edge[0])], [point[1], float(edge[1])], color=GREY, linewidth=0.5, zorder=1)
