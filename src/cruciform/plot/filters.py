"""Filters as plots: basis filters, equivalent kernels, spectra, and the energy of every group."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cruciform.measure.filters import LayerFilters
from cruciform.measure.tiles import Tile, basis_tiles, energy_tile, join_tile, kernel_tiles
from cruciform.plot.style import BLUE, FONT_SIZE, GREY, INK, PAGE_WIDTH, add_source, empty_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

SHOWN = 16  # tiles of each kind
WRITTEN = 5  # taps side by side, above which there is no room for their shares
LINE = 8  # basis filters side by side
COLOR_MAP = "PuOr"  # white at zero; safe for color-blind readers


def draw_filters(layers: Sequence[LayerFilters], *, source: str) -> "Figure":
    """Draw a row for each layer."""
    figure = empty_figure(PAGE_WIDTH * 1.3, 0.9 + 1.35 * len(layers))
    grid = figure.subplots(len(layers), 4, squeeze=False, width_ratios=(2.2, 1.1, 1.1, 1.2))
    for row, layer in zip(grid, layers, strict=True):
        groups = basis_tiles(layer, SHOWN)
        show_tiles(row[0], _lines([tiles for _, tiles in groups], 2 if len(groups) < 3 else 1), columns=LINE)
        row[0].set_ylabel(_short(layer.name), fontsize=FONT_SIZE, rotation=0, ha="right", va="center")
        row[0].set_title(f"basis: {layer.plan}", fontsize=FONT_SIZE, loc="left")
        show_tiles(row[1], kernel_tiles(layer, SHOWN), columns=4)
        row[1].set_title(
            "kernels" if layer.kernel is not None else "no equivalent kernel", fontsize=FONT_SIZE, loc="left"
        )
        _draw_spectrum(row[2], layer)
        _draw_energy(row[3], layer)
    grid[-1][2].set_xlabel("index of the singular value", fontsize=FONT_SIZE)
    grid[-1][3].set_xlabel("energy (%)", fontsize=FONT_SIZE)
    add_source(figure, source)
    return figure


def draw_cross(layer: LayerFilters, *, source: str) -> "Figure":
    """Draw one layer as the paper does: each group of basis filters, and the equivalent kernels."""
    groups = basis_tiles(layer, 25)
    kernels, join = kernel_tiles(layer, 25), join_tile(layer, 25)
    figure = empty_figure(PAGE_WIDTH, 2.5 if not join else 2.35)
    found = figure.subplots(1, len(groups) + 2 + bool(join), squeeze=False)[0]
    for axes, (shape, tiles) in zip(found, groups, strict=False):
        show_tiles(axes, tiles, columns=5)
        axes.set_title(
            f"{shape} basis filters" if len(groups) < 3 and not join else f"{shape} basis", fontsize=FONT_SIZE + 1
        )
    if join:
        _show_join(found[len(groups)], join, layer)
    show_tiles(found[-2], kernels, columns=5)
    found[-2].set_title("kernels" if join else "kernels of the layer (no join)", fontsize=FONT_SIZE + 1)
    energy = energy_tile(layer)
    picture = found[-1].imshow(energy, cmap="Blues", vmin=0)
    for i, row in enumerate(energy if len(energy[0]) <= WRITTEN else ()):
        for j, share in enumerate(row):
            dark = (share or 0) > 0.6 * max(value or 0 for line in energy for value in line)
            found[-1].text(j, i, f"{share or 0:.0%}", fontsize=FONT_SIZE, ha="center", va="center",
                           color="white" if dark else INK)  # fmt: skip
    picture.set_clim(0, max(value or 0 for line in energy for value in line))
    found[-1].set_xticks([])
    found[-1].set_yticks([])
    found[-1].set_title("energy per tap", fontsize=FONT_SIZE + 1)
    bar = figure.colorbar(_scale(), ax=list(found), orientation="horizontal", aspect=60, shrink=0.5, pad=0.03)
    bar.set_ticks([-1, 0, 1], labels=["−1", "0", "1"])
    bar.set_label("weight / max abs weight", fontsize=FONT_SIZE)
    bar.ax.tick_params(labelsize=FONT_SIZE)
    add_source(figure, source)
    return figure


def _show_join(axes: "Axes", join: Tile, layer: LayerFilters) -> None:
    """Draw the weights by which kernels are made of basis filters, with a line between groups."""
    axes.imshow([[value or 0.0 for value in row] for row in join], cmap=COLOR_MAP, vmin=-1, vmax=1, aspect="auto",
                interpolation="nearest")  # fmt: skip
    axes.set_box_aspect(1)
    axes.set_title("join", fontsize=FONT_SIZE + 1)
    axes.set_yticks([])
    axes.set_ylabel("kernel", fontsize=FONT_SIZE)
    edges, start = [], 0
    for group in layer.plan.stages[0].groups:
        edges.append(start + group.filters / 2 - 0.5)
        start += group.filters
        axes.axvline(start - 0.5, color=INK, linewidth=0.6)
    axes.set_xticks(edges, [one.shape for one in layer.groups if one.stage == 0], fontsize=FONT_SIZE)
    axes.tick_params(length=0)


def show_tiles(axes: "Axes", tiles: Sequence[Tile | None], *, columns: int) -> None:
    """Draw tiles in rows, with gaps between them; None is an empty place."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    if not tiles:
        return
    picture = mosaic(tiles, columns=columns)
    axes.imshow(picture, cmap=COLOR_MAP, vmin=-1, vmax=1, interpolation="nearest")
    axes.set_xlim(-0.8, len(picture[0]) - 0.2)  # with some room, or the frames at the rim are cut off
    axes.set_ylim(len(picture) - 0.2, -0.8)
    from matplotlib.patches import Rectangle

    for x, y, height, width in _frames(tiles, columns):
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), width, height, fill=False, edgecolor=GREY, linewidth=0.4))


def mosaic(tiles: Sequence[Tile | None], *, columns: int) -> list[list[float]]:
    """Return one picture of many, a gap of one between them; not a number where there is nothing."""
    height, width = _largest(tiles)
    lines = -(-len(tiles) // columns)
    nothing = float("nan")
    picture = [[nothing] * ((width + 1) * columns - 1) for _ in range((height + 1) * lines - 1)]
    for index, tile in enumerate(tiles):
        top, left = (index // columns) * (height + 1), (index % columns) * (width + 1)
        for i, row in enumerate(tile or ()):
            for j, value in enumerate(row):
                if value is not None:
                    picture[top + i][left + j] = value
    return picture


def _lines(groups: Sequence[Sequence[Tile]], lines: int) -> list[Tile | None]:
    """Return the tiles of groups, so many lines of each, and empty places where a line is not full."""
    found: list[Tile | None] = []
    for tiles in groups:
        shown = tiles[: LINE * lines]
        found += [*shown, *[None] * (-len(shown) % LINE)]
    return found


def _largest(tiles: Sequence[Tile | None]) -> tuple[int, int]:
    there = [tile for tile in tiles if tile]
    return max(len(tile) for tile in there), max(len(tile[0]) for tile in there)


def _frames(tiles: Sequence[Tile | None], columns: int) -> list[tuple[int, int, int, int]]:
    height, width = _largest(tiles)
    places = [(index % columns, index // columns) for index, tile in enumerate(tiles) if tile]
    return [(x * (width + 1), y * (height + 1), height, width) for x, y in places]


def _draw_spectrum(axes: "Axes", layer: LayerFilters) -> None:
    axes.tick_params(labelsize=FONT_SIZE)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(0, 1.05)
    if layer.effective_rank is None:
        axes.set_title("no spectrum", fontsize=FONT_SIZE, loc="left")
        return
    axes.plot(range(1, len(layer.spectrum) + 1), layer.spectrum, color=BLUE, linewidth=1)
    axes.axvline(layer.effective_rank, color=GREY, linestyle="--", linewidth=0.8)
    axes.set_title(
        f"effective rank {layer.effective_rank:.0f} of {len(layer.spectrum)}", fontsize=FONT_SIZE, loc="left"
    )
    axes.set_ylabel("σ / largest σ", fontsize=FONT_SIZE)


def _draw_energy(axes: "Axes", layer: LayerFilters) -> None:
    groups = [one for one in layer.groups if one.stage == 0 and one.energy is not None]
    places = range(len(groups))
    axes.barh(places, [100 * (one.energy or 0) for one in groups], 0.6, color=BLUE)
    for place, one in zip(places, groups, strict=True):
        axes.annotate(f"{one.energy:.0%}", (100 * (one.energy or 0), place), textcoords="offset points", xytext=(2, 0),
                      va="center", fontsize=FONT_SIZE)  # fmt: skip
    axes.set_yticks(list(places), [one.shape for one in groups], fontsize=FONT_SIZE)
    axes.set_ylim(max(2, len(groups)) - 0.4, -0.6)  # a lone bar need not be a block
    axes.set_xlim(0, 125)
    axes.set_xticks([0, 50, 100])
    axes.tick_params(labelsize=FONT_SIZE)
    axes.spines[["top", "right"]].set_visible(False)
    rank = "" if layer.spatial_rank is None else f"spatial rank {layer.spatial_rank:.2f}"
    axes.set_title(rank, fontsize=FONT_SIZE, loc="left")


def _scale() -> "ScalarMappable":
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(Normalize(-1, 1), COLOR_MAP)


def _short(name: str) -> str:
    """Break a dotted name into lines, so that it takes little width."""
    return name.replace(".", ".\n")
