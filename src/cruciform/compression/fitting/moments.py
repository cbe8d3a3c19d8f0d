"""Second moments of a layer over calibration inputs: all that a fit to its outputs needs, streamed in float64.

Symbols: ``x̂`` a patch of p values that the compressed network delivers, ``y`` the d outputs of the original layer,
``C = E[x̂ x̂ᵀ]``, ``R = E[y x̂ᵀ]``, ``S = E[y yᵀ]``. Memory: p² + d·p + d² + at most 4·p·chunk values of 8 bytes, however
many inputs; a fit needs three matrices of p² values at once: under 2 GB for a 512→512 3×3 layer and for a 256→256 3×3×3
layer.

Sums of products take most of the time of a compression. So patches wait until there are enough of them to be multiplied
at full speed, and of C, which is symmetric, only blocks on and above the diagonal are summed up.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cruciform.errors import ConversionError

CHUNK = 2048  # patches that are converted to float64 at once
BLOCK = 512  # rows of C that are summed up at once
ROUNDING_SHARE = 1e-12  # an output that varies by less than this fraction of E[y²] is constant: the rest is rounding


@dataclass(frozen=True)
class Moments:
    """Means and second moments of a layer's patches and outputs.

    Attributes:
        count: How many patches.
        input_mean: E[x̂], (p,).
        output_mean: E[y], (d,).
        inputs: E[x̂ x̂ᵀ], (p, p).
        cross: E[y x̂ᵀ], (d, p).
        outputs: E[y yᵀ], (d, d).
    """

    count: int
    input_mean: Tensor
    output_mean: Tensor
    inputs: Tensor
    cross: Tensor
    outputs: Tensor

    def joined_(self, other: "Moments") -> "Moments":
        """Return the moments of these inputs and of others; the tensors of both end here."""
        n = self.count + other.count
        own = self.input_mean, self.output_mean, self.inputs, self.cross, self.outputs
        more = other.input_mean, other.output_mean, other.inputs, other.cross, other.outputs
        for mine, theirs in zip(own, more, strict=True):
            mine.mul_(self.count / n).add_(theirs, alpha=other.count / n)
        return Moments(n, *own)

    def of_outputs(self, some: slice) -> "Moments":
        """Return the moments of some of the outputs, with the same tensors."""
        y, outputs = self.output_mean[some], self.outputs[some, some]
        return Moments(self.count, self.input_mean, y, self.inputs, self.cross[some], outputs)

    def centered(self) -> "Moments":
        """Return the moments about the means: those of a layer whose bias takes up the means."""
        x, y = self.input_mean, self.output_mean
        spread = torch.addr(self.outputs, y, y, alpha=-1)
        constant = spread.diagonal() <= ROUNDING_SHARE * self.outputs.diagonal()
        spread[constant], spread[:, constant] = 0.0, 0.0
        return Moments(
            self.count,
            torch.zeros_like(x),
            torch.zeros_like(y),
            torch.addr(self.inputs, x, x, alpha=-1),
            torch.addr(self.cross, y, x, alpha=-1),
            spread,
        )


class MomentSums:
    """Sums of products of patches and outputs, batch by batch."""

    def __init__(self, patch: int, outputs: int) -> None:
        self._count = 0
        self._x, self._y = torch.zeros(patch, dtype=torch.float64), torch.zeros(outputs, dtype=torch.float64)
        self._xx = torch.zeros(patch, patch, dtype=torch.float64)
        self._yx = torch.zeros(outputs, patch, dtype=torch.float64)
        self._yy = torch.zeros(outputs, outputs, dtype=torch.float64)
        self._waiting: list[tuple[Tensor, Tensor]] = []

    def add(self, patches: Tensor, outputs: Tensor) -> None:
        """Add patches, (n, p), and the outputs that the original layer has there, (n, d)."""
        if len(patches) != len(outputs):
            raise ConversionError(f"{len(patches)} patches and {len(outputs)} outputs are not of the same positions")
        for rows, values in zip(patches.split(CHUNK), outputs.split(CHUNK), strict=True):
            self._waiting.append((rows.detach().cpu(), values.detach().cpu()))
            if sum(len(each) for each, _ in self._waiting) >= CHUNK:
                self._sum_up()

    def _sum_up(self) -> None:
        """Add what waits to the sums."""
        if not self._waiting:
            return
        x, y = (torch.cat(parts).double() for parts in zip(*self._waiting, strict=True))
        self._waiting.clear()
        if not bool(torch.isfinite(x).all() and torch.isfinite(y).all()):
            raise ConversionError("calibration inputs give NaN or Inf in this layer; nothing can be fitted to them")
        self._count += len(x)
        self._x += x.sum(0)
        self._y += y.sum(0)
        for rows in self._blocks():
            self._xx[rows, rows.start :].addmm_(x[:, rows].T, x[:, rows.start :])
        self._yx.addmm_(y.T, x)
        self._yy.addmm_(y.T, y)

    def _blocks(self) -> Iterator[slice]:
        return (slice(first, first + BLOCK) for first in range(0, len(self._x), BLOCK))

    def moments(self) -> Moments:
        """Return the means over all that was added; the sums become them, and end here."""
        self._sum_up()
        if not self._count:
            raise ConversionError("no calibration input reached this layer; nothing can be fitted to its outputs")
        for rows in self._blocks():
            self._xx[rows.stop :, rows] = self._xx[rows, rows.stop :].T
        n, self._count = self._count, 0
        return Moments(n, self._x.div_(n), self._y.div_(n), self._xx.div_(n), self._yx.div_(n), self._yy.div_(n))
