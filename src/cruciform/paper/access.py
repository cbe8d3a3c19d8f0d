"""Image-access maps (the paper's figure 1) from plans: which weight connects which pixels."""

from cruciform.plan import FilterGroup, embedding_offset
from cruciform.plot.connections import AccessMap
from cruciform.spec import Ints, join_sizes


def dense_access(size: int) -> AccessMap:
    """Return the map of a fully connected layer: every pair of pixels has a weight of its own."""
    pixels = size * size
    return AccessMap("fully connected", [[i * pixels + j for j in range(pixels)] for i in range(pixels)], pixels**2)


def group_access(group: FilterGroup, window: Ints, size: int) -> AccessMap:
    """Return the map of one filter of a group, in a layer that keeps the size of an image of one channel.

    Args:
        group: The group.
        window: Of the layer that it is in.
        size: Height and width of the image.
    """
    height, width = group.kernel
    top, left = (
        embedding_offset(extent, taps, 1) - extent // 2 for extent, taps in zip(window, group.kernel, strict=True)
    )
    rows: list[list[int | None]] = []
    for y in range(size):
        for x in range(size):
            row: list[int | None] = [None] * (size * size)
            for i in range(height):
                for j in range(width):
                    seen_y, seen_x = y + top + i, x + left + j
                    if 0 <= seen_y < size and 0 <= seen_x < size:
                        row[seen_y * size + seen_x] = i * width + j
            rows.append(row)
    return AccessMap(f"{join_sizes(group.kernel)} filter", rows, height * width)
