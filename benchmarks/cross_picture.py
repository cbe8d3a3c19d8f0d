"""Draw docs/cross.svg: a layer of 3×3 filters, and the layer of 3×1 and 1×3 filters that replaces it.

python benchmarks/cross_picture.py
"""

from pathlib import Path

PICTURE = Path(__file__).parents[1] / "docs" / "cross.svg"
CELL = 26
DENSE, BASIS, EMPTY, INK = "#5b7c99", "#d9822b", "#eef1f4", "#4a4a4a"


def window(x: float, y: float, kept: set[tuple[int, int]], color: str) -> str:
    """Return a 3×3 window with its weights in color."""
    cells = [
        f'<rect x="{x + CELL * column}" y="{y + CELL * row}" width="{CELL - 2}" height="{CELL - 2}" rx="3" '
        f'fill="{color if (row, column) in kept else EMPTY}"/>'
        for row in range(3)
        for column in range(3)
    ]
    return "\n".join(cells)


def text(x: float, y: float, words: str, *, size: int = 15, bold: bool = False) -> str:
    """Return a centered line of text."""
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}"{weight} text-anchor="middle" fill="{INK}">{words}</text>'


def draw() -> str:
    """Return the picture."""
    everything = {(row, column) for row in range(3) for column in range(3)}
    half = CELL * 3 / 2 - 1
    parts = [
        text(110, 30, "d filters of 3×3", bold=True),
        window(110 - half, 52, everything, DENSE),
        text(110, 158, "9 weights per channel"),
        f'<path d="M215 90 h56 m-9 -8 l9 8 l-9 8" fill="none" stroke="{INK}" stroke-width="2.5"/>',
        text(244, 74, "convert", size=14),
        text(372, 30, "d/2 of 3×1", bold=True),
        window(372 - half, 52, {(row, 1) for row in range(3)}, BASIS),
        text(456, 98, "‖", size=26),
        text(540, 30, "d/2 of 1×3", bold=True),
        window(540 - half, 52, {(1, column) for column in range(3)}, BASIS),
        text(456, 158, "3 weights per channel: a third of the MACs and parameters"),
    ]
    body = "\n".join(parts)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 680 176" width="680" height="176" role="img" '
        'font-family="Helvetica, Arial, sans-serif">\n'
        "<title>A 3×3 layer becomes a cross of 3×1 and 1×3 filters, side by side</title>\n"
        f'<rect width="680" height="176" rx="8" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(), "utf-8")
