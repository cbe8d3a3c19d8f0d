"""Schemes to choose from for a trained kernel: chains and thin layers of several ranks, joins, crosses.

Ranks are whole blocks of filters, because engines compute 8 or 16 at a time, evenly spaced below the rank at which a
scheme has as many weights as the dense layer. They depend on the convolution alone, so that layers of one kind share
their measured times; what each is worth comes from the layer's own spectrum.
"""

from cruciform.errors import PlanError
from cruciform.plan import LayerPlan
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec

RANK_COUNTS = {"sf": 9, "thin": 5}
"""How many ranks of each family are tried."""
OTHERS = ("cross:width=0.5,join", "lr-join", "cross:width=0.5,full=0.25,join", "cross:full=0.25", "cross:full=0.5")
WIDE = 128  # channels from which a block has 16 filters, not 8
MOST = 0.92
"""Of the dense layer's weights: a candidate with more can't save time."""


def list_rank_candidates(spec: ConvSpec) -> list[str]:
    """Return the schemes to choose from for a convolution, besides the dense one; none where it has one tap.

    None for transposed ones either, since the fit to outputs is for windows of the input.
    """
    if spec.groups > 1 or spec.transposed or max(spec.kernel) == 1:
        return []
    others = [scheme for scheme in OTHERS if _fits(spec, scheme)]
    return [
        f"{family}:rank={rank}" for family, most in RANK_COUNTS.items() for rank in _ranks(spec, family, most)
    ] + others


def _ranks(spec: ConvSpec, family: str, most: int) -> list[int]:
    block = 16 if min(spec.in_channels, spec.out_channels) >= WIDE else 8
    found: list[int] = []
    while _fits(spec, f"{family}:rank={block * (len(found) + 1)}"):
        found.append(block * (len(found) + 1))
    count = min(most, len(found))
    # Evenly from the largest down: the last gap may be cut short, the cheapest is always there.
    return sorted({found[round((index + 1) * len(found) / count) - 1] for index in range(count)} | set(found[:1]))


def _fits(spec: ConvSpec, scheme: str) -> bool:
    try:
        plan = make_plan(spec, scheme)
    except PlanError:
        return False
    return count_weights(plan) <= MOST * count_weights(make_plan(spec, "full"))


def count_weights(plan: LayerPlan) -> int:
    """Return the weights of a plan, which are its MACs at each position where nothing is strided."""
    return sum(plan.weights(stage) for stage in range(len(plan.stages)))
