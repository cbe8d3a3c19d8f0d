"""Transposed convolutions: chains of 1-D filters, and exact sub-pixel forms, beside the engine's own operation.

    python benchmarks/transposed_forms.py        writes results/transposed-forms.json

Forms of the layers that U-Nets, decoders and generators have, each between two pointwise convolutions as in a budget,
timed in interleaved rounds on one thread, CPU time, the shortest round counts. ``one piece``: a convolution to strideʳ
times the channels, then depth to space. ``by phase``: a convolution for every position within a stride, interleaved;
as many MACs as the transposed convolution. ``sf``: our plan, with half as many channels between its
filters as the layer has at its end, 8 at least.
"""

import argparse
import json
import tempfile
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cruciform.deployment.search.build import Build, EngineSettings, build_engine, noise
from cruciform.deployment.search.clock import time_engines
from cruciform.deployment.targets.target import TARGETS
from cruciform.measure.record import record_result
from cruciform.nn.composite import CompositeConv
from cruciform.nn.inspect import PLAIN_CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS, kernel_of
from cruciform.plan import LayerPlan
from cruciform.schemes import full, make_plan
from cruciform.spec import ConvSpec

RESULT = Path(__file__).parents[1] / "results" / "transposed-forms.json"
TARGETS_TIMED = ("onnxruntime", "openvino")
OWN, ONE_PIECE, BY_PHASE, CHAIN = "own", "one_piece", "by_phase", "sf"


class Case(NamedTuple):
    """A layer: rank, channels, kernel, and the extent of its input; it doubles the resolution."""

    rank: int
    c: int
    d: int
    kernel: int
    extent: int

    @property
    def name(self) -> str:
        return f"{self.rank}d_k{self.kernel}_{self.c}_{self.d}_at_{self.extent}"

    @property
    def spec(self) -> ConvSpec:
        return ConvSpec(
            self.c, self.d, (self.kernel,) * self.rank, stride=2, padding=(self.kernel - 1) // 2,
            transposed=True, output_padding=self.kernel % 2,
        )  # fmt: skip


CASES = (
    Case(3, 64, 16, 3, 16), Case(3, 192, 32, 3, 8), Case(3, 32, 2, 3, 32),
    Case(3, 64, 32, 2, 16), Case(3, 128, 64, 2, 8),
    Case(2, 128, 64, 2, 56), Case(2, 128, 64, 3, 56), Case(2, 128, 64, 4, 56), Case(2, 256, 128, 4, 28),
)  # fmt: skip


class SubPixel(nn.Module):
    """The equal ordinary convolution of a transposed one, in one piece or one for every phase.

    Args:
        conv: With stride 2 and groups=1.
        in_one_piece: Whether all phases share a window, padded with zeros.
    """

    def __init__(self, conv: nn.Module, *, in_one_piece: bool) -> None:
        super().__init__()
        kernel, bias = kernel_of(conv).detach(), conv.bias.detach()
        self.rank, self.d = kernel.ndim - 2, kernel.shape[0]
        plain, pad = PLAIN_CONVOLUTIONS[self.rank - 1], conv.padding[0]
        # Of each phase along an axis: which input, relative to the output's own, each tap reads.
        reads = [
            sorted(((phase + pad - tap) // 2, tap) for tap in range(kernel.shape[2]) if (phase + pad - tap) % 2 == 0)
            for phase in (0, 1)
        ]
        low, high = min(row[0][0] for row in reads), max(row[-1][0] for row in reads)
        self.convs, self.pads, pieces = nn.ModuleList(), [], []
        for phases in product((0, 1), repeat=self.rank):
            first = [low if in_one_piece else reads[phase][0][0] for phase in phases]
            sizes = [high - low + 1 if in_one_piece else len(reads[phase]) for phase in phases]
            piece = kernel.new_zeros(*kernel.shape[:2], *sizes)
            for taps in product(*(reads[phase] for phase in phases)):
                place = tuple(offset - start for (offset, _), start in zip(taps, first, strict=True))
                piece[(..., *place)] = kernel[(..., *(tap for _, tap in taps))]
            pieces.append(piece)
            self.pads.append(
                [side for a, n in zip(reversed(first), reversed(sizes), strict=True) for side in (-a, a + n - 1)]
            )
        if in_one_piece:
            pieces, self.pads = [torch.stack(pieces, 1).flatten(0, 1)], self.pads[:1]
            bias = bias.repeat_interleave(2**self.rank)
        for piece in pieces:
            made = plain(piece.shape[1], piece.shape[0], tuple(piece.shape[2:]))
            made.weight.data, made.bias.data = piece, bias.clone()
            self.convs.append(made)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve, then put the phases beside each other."""
        parts = [conv(F.pad(x, pads)) for conv, pads in zip(self.convs, self.pads, strict=True)]
        y = parts[0] if len(parts) == 1 else torch.stack(parts, 2)
        y = y.reshape(x.shape[0], self.d, *[2] * self.rank, *x.shape[2:])
        order = [axis for n in range(self.rank) for axis in (2 + self.rank + n, 2 + n)]
        return y.permute(0, 1, *order).reshape(x.shape[0], self.d, *(2 * n for n in x.shape[2:]))


def forms_of(case: Case) -> dict[str, nn.Module]:
    """Return the layer in all forms; all but the chain compute the same, which is checked."""
    torch.manual_seed(0)
    spec = case.spec
    conv = TRANSPOSED_CONVOLUTIONS[case.rank - 1](case.c, case.d, case.kernel, 2, spec.padding[0][0], case.kernel % 2)
    forms = {OWN: conv, ONE_PIECE: SubPixel(conv, in_one_piece=True), BY_PHASE: SubPixel(conv, in_one_piece=False)}
    x = torch.randn(1, case.c, *[5] * case.rank)
    for form in forms.values():
        torch.testing.assert_close(form(x), conv(x), rtol=1e-4, atol=1e-4)
    return {**forms, CHAIN: CompositeConv(chain_of(case))}


def chain_of(case: Case) -> LayerPlan:
    """Return the chain that is timed: with half as many channels between its filters as the layer has at its end."""
    return make_plan(case.spec, f"sf:rank={max(8, case.d // 2)}")


def measure(case: Case, target: str, rounds: int) -> dict[str, float]:
    """Time all forms in one engine; return milliseconds."""
    size = (case.c, *[case.extent] * case.rank)
    setting, plain = EngineSettings(TARGETS.get(target), size), PLAIN_CONVOLUTIONS[case.rank - 1]
    with tempfile.TemporaryDirectory() as folder:
        engines = {}
        for name, form in forms_of(case).items():
            network = nn.Sequential(plain(case.c, case.c, 1), nn.ReLU(), form, nn.ReLU(), plain(case.d, 16, 1)).eval()
            place = Path(folder) / name
            place.mkdir()
            engines[name] = build_engine(network, Build({}), setting, place)
        times = time_engines(engines, noise(1, size), rounds=rounds, threads=1)
    return {name: 1000 * timing.best for name, timing in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Forms of transposed convolutions, timed.")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    details, summary = [], {}
    for case in CASES:
        size = (case.extent,) * case.rank
        macs = chain_of(case).macs_from_input(size) / full(case.spec).macs_from_input(size)
        for target in TARGETS_TIMED:
            times = measure(case, target, given.rounds)
            details.append(
                {"layer": case.name, "target": target, "plan": str(chain_of(case)), "sf_macs": macs, **times}
            )
            shares = {name: round(ms / times[OWN], 3) for name, ms in times.items() if name != OWN}
            summary |= {f"{target}_{case.name}_{name}": share for name, share in shares.items()}
            print(f"{target}, {case.name}: {times[OWN]:.2f} ms; {shares}; MACs of sf {macs:.2f}", flush=True)
    for target in TARGETS_TIMED:
        for form in (ONE_PIECE, BY_PHASE, CHAIN):
            found = [row[form] / row[OWN] for row in details if row["target"] == target]
            summary |= {f"{target}_{form}_least": round(min(found), 3), f"{target}_{form}_most": round(max(found), 3)}
    record_result(
        RESULT, summary=summary, details=details, command="python benchmarks/transposed_forms.py", n=given.rounds,
        packages=("onnxruntime", "openvino"),
    )  # fmt: skip
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
