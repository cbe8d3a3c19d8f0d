"""What a plan is fitted to: second moments of a layer, its trained kernel, and how much errors of its outputs count.

The objective is ``E[eᵀ G e] + λ tr((V − W)ᵀ G (V − W))`` with ``e = y − V x̂``. The ridge λ draws to the trained kernel
W and not to zero, so a plan that can represent W gets exactly W when the inputs are the original's, also where inputs
have no full rank. Of what the inputs of the compressed network would move it to, only a fraction may be wanted
(``correction``). With ``G = UᵀU`` all is written for the mixed kernel ``U V``, where G is the identity.
"""

from functools import cached_property
from math import prod

import torch
from torch import Tensor

from cruciform.compression.fitting.moments import ROUNDING_SHARE, Moments
from cruciform.compression.fitting.stage_algebra import StageAlgebra
from cruciform.conversion.fit import unfold_kernel
from cruciform.errors import ConversionError
from cruciform.plan import LayerPlan

RIDGE = 1e-3
"""λ as a fraction of the mean of C's diagonal."""
DAMPING = 0.3
"""What is added to the diagonal of G, as a fraction of its mean: few inputs tell little about what outputs count."""


class OutputProblem:
    """One layer to fit plans to.

    Args:
        moments: Of the patches that the new layer reads, and of the outputs that the original has there, its bias
            included.
        weight: The trained kernel, (d, c, window).
        centered: Whether the means are taken up by a bias of the last stage, or by a norm after the layer.
        metric: G, (d, d), positive semidefinite; None: errors of all outputs count alike.
        ridge: λ, as a fraction of the mean of C's diagonal.
        fractions: Of the correction of earlier layers' errors, what is wanted for each output, (d,); None: all of it.
        wanted_mean: The means that the outputs are to have, (d,); None: the original's.
    """

    def __init__(
        self,
        moments: Moments,
        weight: Tensor,
        *,
        centered: bool,
        metric: Tensor | None = None,
        ridge: float = RIDGE,
        fractions: Tensor | None = None,
        wanted_mean: Tensor | None = None,
    ) -> None:
        expected = (weight.shape[0], prod(weight.shape[1:]))
        if tuple(moments.cross.shape) != expected:
            raise ConversionError(
                f"the moments are of {tuple(moments.cross.shape)} outputs and patch values, the kernel has {expected}"
            )
        about = moments.centered() if centered else moments
        self.weight = weight.detach()
        self.input_mean = moments.input_mean
        self.output_mean = moments.output_mean if wanted_mean is None else wanted_mean
        self.root = _root(metric, len(weight))
        # Of inputs that hardly vary nothing but rounding is left about their mean; the ridge is larger than that.
        spread, whole = (float(one.inputs.diagonal().mean()) for one in (about, moments))
        self.strength = max(ridge * spread, ROUNDING_SHARE * whole) or ridge
        w = self.weight.cpu().double().reshape(expected)
        wanted = about.cross
        if fractions is not None:
            plain = w @ about.inputs
            wanted = plain + fractions[:, None] * (about.cross - plain)
        # A large matrix: no more copies than needed.
        self.c = about.inputs if about is not moments else about.inputs.clone()
        self.c.diagonal().add_(self.strength)
        self.plain_target = wanted + self.strength * w
        self.cross = self.root @ about.cross
        self.target = self.root @ self.plain_target
        self.energy = float(((self.root @ about.outputs) * self.root).sum())
        self._directions: dict[tuple[int, ...], Tensor] = {}
        self._within: dict[bytes, Tensor] = {}

    @cached_property
    def best(self) -> Tensor:
        """The mixed kernel that minimizes the objective without a plan, (d, c, window)."""
        solved: Tensor = torch.cholesky_solve(self.target.T, torch.linalg.cholesky(self.c)).T
        return solved.reshape(self.weight.shape)

    def best_within(self, taps: Tensor) -> Tensor:
        """Return the plain kernel, (d, p), that reproduces each output best by some of a patch's values alone.

        Args:
            taps: Which values, (p,).
        """
        key = taps.numpy().tobytes()
        if key not in self._within:
            kernel = torch.zeros_like(self.plain_target)
            kernel[:, taps] = torch.linalg.solve(self.c[taps][:, taps], self.plain_target[:, taps].T).T
            self._within[key] = kernel
        return self._within[key]

    def explained_within(self, taps: Tensor) -> Tensor:
        """Return how far ``best_within`` lowers the objective of each output, (d,), counted by the diagonal of G."""
        weights = self.root.square().sum(0)
        return weights * (self.best_within(taps) * self.plain_target).sum(1)

    def objective(self, mixed: Tensor) -> float:
        """Return the objective of a mixed kernel without its constant: ⟨V C, V⟩ − 2 ⟨V, R⟩."""
        v = mixed.reshape(self.target.shape)
        return float(((v @ self.c) * v).sum() - 2 * (v * self.target).sum())

    def error(self, mixed: Tensor) -> float:
        """Return E[eᵀ G e] of a mixed kernel."""
        v = mixed.reshape(self.target.shape)
        own = ((v @ self.c) * v).sum() - self.strength * v.square().sum()
        return max(0.0, float(self.energy - 2 * (v * self.cross).sum() + own))

    def whitened_start(self, algebra: StageAlgebra) -> list[Tensor] | None:
        """Return the kernels of two stages of one group each, from the spectrum of the best kernel in the metric of C.

        The inputs of the first stage are taken as alike for all taps of the second. Where that stage is 1×1 this is the
        exact optimum. None for other plans.
        """
        plan = algebra.plan
        if algebra.count != 2 or len(plan.stages[0].groups) > 1:
            return None
        matrix = unfold_kernel(plan, self.best, 1)
        filters = plan.stages[0].filters
        vectors = self._leading(plan, matrix, algebra)[:, :filters]
        if vectors.shape[1] < filters:
            vectors = torch.cat([vectors, vectors.new_zeros(len(vectors), filters - vectors.shape[1])], 1)
        first, last = vectors.T @ matrix, vectors.reshape(len(self.weight), -1, filters).movedim(2, 1)
        shapes = [algebra.kernel_shape(stage) for stage in range(2)]
        return [first.reshape(shapes[0]) * algebra.masks[0], last.reshape(shapes[1]) * algebra.masks[1]]

    def _leading(self, plan: LayerPlan, matrix: Tensor, algebra: StageAlgebra) -> Tensor:
        """Return the directions of the outputs by falling energy; the same for plans of any rank."""
        key = tuple(plan.owners)
        if key not in self._directions:
            inputs = algebra.mean_block(self.c, [], 0)
            self._directions[key] = torch.linalg.eigh(matrix @ inputs @ matrix.T).eigenvectors.flip(1)
        return self._directions[key]


def _root(metric: Tensor | None, outputs: int) -> Tensor:
    """Return U with G = UᵀU."""
    one = torch.eye(outputs, dtype=torch.float64)
    if metric is None:
        return one
    given = metric.detach().cpu().double()
    mean = float(given.diagonal().mean())
    root: Tensor = torch.linalg.cholesky(given + (DAMPING * mean if mean > 0 else 1.0) * one, upper=True)
    return root
