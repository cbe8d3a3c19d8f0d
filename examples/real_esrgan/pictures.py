"""Photographs cut into crops, how near two images are, and a picture of several side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn
from torch.nn.functional import conv2d, interpolate

SCALE, MARGIN, LABEL = 4, 6, 16
WINDOW, SIGMA = 11, 1.5  # of SSIM, as its authors chose them
C1, C2 = 0.01**2, 0.03**2
SUFFIXES = {".jpg", ".jpeg", ".png"}


def find_photographs(folder: Path) -> list[Path]:
    """Return the photographs of a folder and of those in it, in order."""
    return [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES]


def read_crops(paths: Sequence[Path], count: int, size: int) -> Tensor:
    """Return square crops of evenly spaced photographs, one of each, RGB from 0 to 1."""
    if len(paths) < count:
        raise SystemExit(f"there are {len(paths)} photographs; {count} are needed")
    random = np.random.default_rng(0)
    crops = []
    for number in range(count):
        pixels = np.asarray(Image.open(paths[number * len(paths) // count]).convert("RGB"))
        top, left = (int(random.integers(extent - size + 1)) for extent in pixels.shape[:2])
        crops.append(pixels[top : top + size, left : left + size].copy())
    return torch.from_numpy(np.stack(crops)).movedim(-1, 1).float() / 255


@torch.no_grad()
def enlarge(model: nn.Module, images: Tensor) -> Tensor:
    """Return what a network makes of images, one at a time, from 0 to 1."""
    return torch.cat([model.eval()(image[None]).clamp(0, 1) for image in images])


def psnr(images: Tensor, wanted: Tensor) -> float:
    """Return the peak signal-to-noise ratio in dB, the mean over images."""
    return float(-10 * (images - wanted).square().flatten(1).mean(1).log10().mean())


def ssim(images: Tensor, wanted: Tensor) -> float:
    """Return the structural similarity of the luminance, the mean over images."""
    luminance = torch.tensor([0.299, 0.587, 0.114]).reshape(1, 3, 1, 1)
    x, y = ((one * luminance).sum(1, keepdim=True) for one in (images, wanted))
    line = torch.exp(-((torch.arange(WINDOW) - WINDOW // 2) ** 2) / (2 * SIGMA**2))
    window = torch.outer(line, line)[None, None] / line.sum() ** 2
    mx, my, xx, yy, xy = (conv2d(one, window) for one in (x, y, x * x, y * y, x * y))
    vx, vy, cov = xx - mx**2, yy - my**2, xy - mx * my
    similar = (2 * mx * my + C1) * (2 * cov + C2) / ((mx**2 + my**2 + C1) * (vx + vy + C2))
    return float(similar.mean())


def side_by_side(inputs: Tensor, columns: Mapping[str, Tensor], path: Path, rows: Sequence[int]) -> None:
    """Draw some images: what went in, and one column for each of several results."""
    pictures = {"input": interpolate(inputs, scale_factor=SCALE, mode="nearest"), **columns}
    side = inputs.shape[-1] * SCALE
    sheet = Image.new("RGB", (len(pictures) * (side + MARGIN), LABEL + len(rows) * (side + MARGIN)), "white")
    draw = ImageDraw.Draw(sheet)
    for column, (label, images) in enumerate(pictures.items()):
        draw.text((column * (side + MARGIN) + 2, 2), label, fill="black")
        for place, row in enumerate(rows):
            pixels = (images[row].movedim(0, -1).numpy() * 255).round().astype(np.uint8)
            sheet.paste(Image.fromarray(pixels), (column * (side + MARGIN), LABEL + place * (side + MARGIN)))
    sheet.save(path)
