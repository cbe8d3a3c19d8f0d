"""Real-ESRGAN x4plus compressed without training, beside the weight-space SVD at the same measured time.

PSNR and SSIM of 20 held-out photographs (64×64 crops of Imagenette's validation images) against the original's output,
at 60, 45 and 35 % of its measured ONNX Runtime time, one thread, batch 1, 32×32 inputs. Calibration: crops of training
photographs, no labels. Ranks of the rival are chosen by the same solver, by the energy of the kernels that they keep:
AIMET's scores would take one evaluation for every rank of each of 351 layers. What is finished is kept in
the cache folder, from where ``compress.py`` takes it into results/compress.json.

    CRUCIFORM_DATA=DIR python benchmarks/compress_esrgan.py                 all budgets; can be stopped and repeated
    CRUCIFORM_DATA=DIR python benchmarks/compress_esrgan.py --budget 35     one of them
    CRUCIFORM_DATA=DIR python benchmarks/compress_esrgan.py --refit         what was chosen before, fitted again
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from compress import PARTS, choose_svd, say
from compress_networks import ROOT, RUNS
from torch import Tensor, nn

from cruciform.budgets.network_time import time_network
from cruciform.budgets.survey import Valuation, survey_network
from cruciform.budgets.units.cost_unit import read_limits
from cruciform.compression.batching import batches_of
from cruciform.compression.compress import CompressionOptions, Compressor
from cruciform.compression.fitting.fit_network import fit_network_
from cruciform.compression.fitting.layer_moments import Sampling
from cruciform.compression.fitting.sensitivity import measure_sensitivity
from cruciform.compression.rank_candidates import list_rank_candidates
from cruciform.conversion.convert import convert
from cruciform.data.transforms.whitening import cache_folder
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.targets.target import TARGETS
from cruciform.spec import ConvSpec

sys.path.insert(0, str(ROOT / "examples" / "real_esrgan"))
from pictures import enlarge, find_photographs, psnr, read_crops, side_by_side, ssim
from rrdb_net import real_esrgan

FOLDER = RUNS / "esrgan"
BUDGETS = (60, 45, 35)
CALIBRATION, HELD_OUT = 128, 20
SIZE = (3, 32, 32)
BLOCK = 5  # a dense block of the network at once


@dataclass(frozen=True)
class SeparableOnly(Valuation):
    """Values the ranks of the rival by the energy that they keep of the trained kernels."""

    trained: bool = True

    def candidates_of(self, name: str, spec: ConvSpec) -> list[str]:
        """Return the ranks that ours chooses from, too."""
        return [one for one in list_rank_candidates(spec) if one.startswith("sf:")]


class Trial:
    """The original network, what it makes of held-out photographs, and smaller networks in its place."""

    def __init__(self, photographs: Path) -> None:
        self._photographs = photographs
        self.original = real_esrgan()
        self.held_out = read_crops(find_photographs(photographs / "val"), HELD_OUT, 64)
        self.wanted = enlarge(self.original, self.held_out)
        self.setting, self.costs = EngineSettings(TARGETS.get("onnxruntime"), SIZE), cache_folder() / "costs"

    @cached_property
    def compressor(self) -> Compressor:
        """The network, ready to be compressed to any budget."""
        started = time.monotonic()
        options = CompressionOptions(block=BLOCK, state=FOLDER / "state", on_progress=say)
        compressor = Compressor(self.original, self._crops(), self.setting, self.costs, options)
        say(f"prepared in {time.monotonic() - started:.0f} s")
        return compressor

    def compress(self, budget: int) -> dict[str, Any]:
        """Compress the network to a budget."""
        compressor, started = self.compressor, time.monotonic()
        ours = compressor.compress(read_limits({"time": f"{budget}%"}))
        seconds = time.monotonic() - started
        judged = self._judge(ours.conversion.model, f"{budget} % of the time")
        share = ours.seconds / ours.dense_seconds
        return {**judged, "share": share, "mapping": ours.plan.mapping, "seconds": seconds}

    def refit(self, budget: int, mapping: Mapping[str, str]) -> dict[str, Any]:
        """Fit a recorded choice again."""
        started = time.monotonic()
        crops = self._crops()
        batches = batches_of(self.original, crops)
        metrics = measure_sensitivity(self.original, list(mapping), batches)
        model = convert(self.original, mapping, init="fit", input_size=SIZE).model
        fit_network_(
            model, self.original, batches, sampling=Sampling(inputs=len(crops), block=BLOCK), metrics=metrics,
            on_progress=lambda fitted, total: say(f"fitted layer {len(fitted)} of {total}"),
        )  # fmt: skip
        seconds = time.monotonic() - started
        judged = self._judge(model, f"{budget} % of the time")
        return {**judged, "share": self.share_of(mapping), "mapping": dict(mapping), "fit_seconds": seconds}

    def separate(self, budget: int, share: float) -> dict[str, Any]:
        """Return what the rival is worth at a fraction of the original's time."""
        survey = survey_network(self.original, self.setting, SeparableOnly(), self.costs, on_progress=say)
        scores = {layer.name: {option.name: 0.0 for option in layer.options} for layer in survey.layers}
        found = choose_svd(share, self.original, survey, scores, self.setting)
        model = convert(self.original, found.plan.mapping, init="fit", input_size=SIZE).model
        judged = self._judge(model, f"SVD at {budget} %")
        return {**judged, "share": found.share, "mapping": found.plan.mapping, "ours_share": share}

    def share_of(self, mapping: Mapping[str, str]) -> float:
        """Return the time of a recorded choice on this machine, as a fraction of the original's."""
        chosen = convert(self.original, mapping, init="auto", input_size=SIZE).model.eval()
        times = time_network({"dense": (self.original, {}), "ours": (chosen, {})}, self.setting)
        return times["ours"].best / times["dense"].best

    def _crops(self) -> Tensor:
        return read_crops(find_photographs(self._photographs / "train"), CALIBRATION, SIZE[1])

    def _judge(self, model: nn.Module, title: str) -> dict[str, float]:
        """Compare with the original's outputs, and draw some of them."""
        made = enlarge(model, self.held_out)
        found = {"psnr": psnr(made, self.wanted), "ssim": ssim(made, self.wanted)}
        columns: dict[str, Tensor] = {"original": self.wanted, f"{title}: {found['psnr']:.1f} dB": made}
        side_by_side(self.held_out, columns, FOLDER / f"{title.replace(' ', '-')}.png", range(4))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Real-ESRGAN compressed without training.")
    parser.add_argument("--budget", type=int, action="append", choices=BUDGETS, help="may be repeated")
    parser.add_argument("--refit", action="store_true", help="fit what was chosen before again")
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    trial, rows = Trial(Path(os.environ["CRUCIFORM_DATA"]) / "imagenette128"), PARTS["esrgan"]
    for budget in given.budget or BUDGETS:
        found = rows.read().get(str(budget), {})
        if given.refit:
            found["ours"] = trial.refit(budget, found["ours"]["mapping"])
            say(f"{budget} %: {found['ours']}")
            rows.write(str(budget), found)
        if not found.get("ours"):
            found = {"ours": trial.compress(budget), "svd": None}
            say(f"{budget} %: {found['ours']}")
            rows.write(str(budget), found)
        if not found.get("svd"):  # beside what ours takes on this machine: it may have been compressed on another
            found["svd"] = trial.separate(budget, trial.share_of(found["ours"]["mapping"]))
            say(f"SVD: {found['svd']}")
            rows.write(str(budget), found)


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
