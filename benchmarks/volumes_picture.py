"""Draws docs/cross3.png: what a 3-D cross computes in place of a 3×3×3 layer.

python benchmarks/volumes_picture.py
"""

from pathlib import Path

from cruciform.plot.style import save_picture
from cruciform.plot.volume import draw_volume_plan
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

PICTURE = Path(__file__).parents[1] / "docs" / "cross3.png"


def main() -> None:
    plan = make_plan(ConvSpec(96, 96, (3, 3, 3), padding=1), "cross3")
    source = "A layer of 96 filters: three groups of a third each, their outputs side by side. Cubes are taps."
    save_picture(draw_volume_plan(plan, source=source), PICTURE)


if __name__ == "__main__":
    main()
