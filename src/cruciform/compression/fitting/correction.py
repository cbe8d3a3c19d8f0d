"""How much of the errors of earlier layers a layer corrects.

Fitted to the original's outputs from what the compressed network delivers, a kernel moves from the trained W to ``V``,
and undoes some of what the layers before it got wrong. Not all of that is good:

- With few inputs part of it is noise. V is found on each half of the inputs, and of ``V − W`` the fraction k is kept
  that lowers the error most on the other half, whose moments are C' and R'; for each output alone:
  ``k = ⟨V − W, R' − W C'⟩ / ⟨(V − W) C', V − W⟩``, between 0 and 1.
- In residual networks errors also travel past the layer. A branch that computes what it did without them no longer
  corrects them, as it would by itself. So the network is run with all, half and nothing of the correction, and what
  brings its outputs nearest to the original's is kept (``fit_network``).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cruciform.compression.fitting.moments import Moments
from cruciform.compression.fitting.output_problem import RIDGE


@dataclass(frozen=True)
class Correction:
    """What a layer is fitted to, between what the original computes there and what its kernel makes of the inputs.

    Attributes:
        kept: The fraction of the move of the kernel, of every output, (d,).
        share: Of that, and of the change of the means, the fraction that is kept; 0: none.
        move: V − W, (d, p).
        input_mean: E[x̂], (p,).
        output_mean: E[y], (d,).
        plain_mean: E[W x̂], with the bias, (d,).
    """

    kept: Tensor
    share: float
    move: Tensor
    input_mean: Tensor
    output_mean: Tensor
    plain_mean: Tensor

    def at(self, share: float) -> "Correction":
        """Return the same with another share."""
        return replace(self, share=share)

    def of_outputs(self, some: slice) -> "Correction":
        """Return that of some of the outputs."""
        own = {name: getattr(self, name)[some] for name in ("kept", "move", "output_mean", "plain_mean")}
        return replace(self, **own)

    @property
    def fractions(self) -> Tensor:
        """The fraction of the move that is wanted, of every output."""
        return self.share * self.kept

    @property
    def wanted_mean(self) -> Tensor:
        """The means that the outputs are to have."""
        return torch.lerp(self.plain_mean, self.output_mean, self.share)

    def kernel(self, weight: Tensor) -> Tensor:
        """Return the kernel without a plan."""
        return weight + (self.fractions[:, None] * self.move).reshape(weight.shape).to(weight)

    def bias(self, weight: Tensor) -> Tensor:
        """Return what goes with it."""
        return self.wanted_mean - self.kernel(weight).detach().cpu().double().flatten(1) @ self.input_mean


def find_correction(
    halves: tuple[Moments, Moments], weight: Tensor, bias: Tensor | None, *, centered: bool
) -> tuple[Correction, Moments]:
    """Return the whole correction that holds, and the moments of both halves, whose tensors end here.

    Args:
        halves: Moments of two halves of the inputs.
        weight: The trained kernel, (d, c, window).
        bias: What goes with it.
        centered: As for ``OutputProblem``.
    """
    w = weight.detach().cpu().double().flatten(1)
    explained, spent = torch.zeros(len(w), dtype=torch.float64), torch.zeros(len(w), dtype=torch.float64)
    for fitted, other in (halves, halves[::-1]):
        move = _move(fitted, w, centered=centered)
        explained += (move * _left_over(other, w, centered=centered)).sum(1)
        spent += ((move @ other.inputs) * move).sum(1)
        if centered:
            spent -= (move @ other.input_mean).square()
    kept = torch.where(spent > 0, explained / spent.clamp_min(1e-300), torch.ones_like(spent)).clamp(0, 1)
    whole = halves[0].joined_(halves[1])
    move = _move(whole, w, centered=centered)
    plain = w @ whole.input_mean + (0.0 if bias is None else bias.detach().cpu().double())
    return Correction(kept, 1.0, move, whole.input_mean, whole.output_mean, plain), whole


def _move(moments: Moments, w: Tensor, *, centered: bool) -> Tensor:
    """Return V − W of the best kernel without a plan."""
    left = _left_over(moments, w, centered=centered)
    # A large matrix: changed in place and back, rather than copied.
    c, x = moments.inputs, moments.input_mean
    if centered:
        c.addr_(x, x, alpha=-1)
    ridge = RIDGE * float(c.diagonal().mean()) or 1.0
    c.diagonal().add_(ridge)
    root = torch.linalg.cholesky(c)
    c.diagonal().sub_(ridge)
    if centered:
        c.addr_(x, x)
    move: Tensor = torch.cholesky_solve(left.T, root).T
    return move


def _left_over(moments: Moments, w: Tensor, *, centered: bool) -> Tensor:
    """Return R − W C: what the trained kernel leaves to be explained."""
    left = moments.cross - w @ moments.inputs
    if centered:
        left -= torch.outer(moments.output_mean - w @ moments.input_mean, moments.input_mean)
    return left
