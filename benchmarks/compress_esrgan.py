"""Real-ESRGAN x4plus compressed without training, beside the weight-space SVD at the same measured time.

PSNR and SSIM of 20 held-out photographs (64×64 crops of Imagenette's validation images) against the original's output,
at 60, 45 and 35 % of its measured ONNX Runtime time, one thread, batch 1, 32×32 inputs. Calibration: crops of training
photographs, no labels. Ranks of the rival are chosen by the same solver, by the energy of the kernels that they keep:
AIMET's scores would take one evaluation for every rank of each of 351 layers. What is finished is kept in
the cache folder, from where ``compress.py`` takes it into results/compress.json.

    CRUCIFORM_DATA=DIR python benchmarks/compress_esrgan.py          all budgets; can be stopped and repeated
"""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from compress import PARTS, say, svd_at
from compress_networks import ROOT, RUNS
from torch import Tensor, nn

from cruciform.budgets.units.cost_unit import read_limits
from cruciform.compression.compress import CompressionOptions, Compressor
from cruciform.data.transforms.whitening import cache_folder
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.targets.target import TARGETS
from cruciform.schemes import DENSE

sys.path.insert(0, str(ROOT / "examples" / "real_esrgan"))
from pictures import enlarge, find_photographs, psnr, read_crops, side_by_side, ssim
from rrdb_net import real_esrgan

FOLDER = RUNS / "esrgan"
BUDGETS = (60, 45, 35)
CALIBRATION, HELD_OUT = 128, 20
SIZE = (3, 32, 32)
BLOCK = 15  # a block of the network at once


def judge(model: nn.Module, images: Tensor, wanted: Tensor) -> tuple[Tensor, dict[str, float]]:
    made = enlarge(model, images)
    return made, {"psnr": psnr(made, wanted), "ssim": ssim(made, wanted)}


def main() -> None:
    photographs = Path(os.environ["CRUCIFORM_DATA"]) / "imagenette128"
    original = real_esrgan()
    held_out = read_crops(find_photographs(photographs / "val"), HELD_OUT, 64)
    wanted = enlarge(original, held_out)
    options = CompressionOptions(block=BLOCK, state=FOLDER / "state", on_progress=say)
    setting = EngineSettings(TARGETS.get("onnxruntime"), SIZE)
    started = time.monotonic()
    crops = read_crops(find_photographs(photographs / "train"), CALIBRATION, SIZE[1])
    compressor = Compressor(original, crops, setting, cache_folder() / "costs", options)
    say(f"prepared in {time.monotonic() - started:.0f} s")
    columns = {"original": wanted}
    for budget in BUDGETS:
        if PARTS["esrgan"].read().get(str(budget), {}).get("svd"):
            continue  # a row without its rival is not finished
        started = time.monotonic()
        ours = compressor.compress(read_limits({"time": f"{budget}%"}))
        seconds = time.monotonic() - started
        made, row = judge(ours.conversion.model, held_out, wanted)
        share = ours.seconds / ours.dense_seconds
        say(f"{budget} %: {row} at {share:.3f} of the time, in {seconds:.0f} s")
        found = {
            "ours": {**row, "share": share, "mapping": ours.plan.mapping, "seconds": seconds},
            "svd": None,
        }
        PARTS["esrgan"].write(str(budget), found)
        svd, svd_share, _ = svd_at(share, original, compressor, no_scores(compressor), setting)
        svd_made, svd_row = judge(svd, held_out, wanted)
        columns |= {f"{budget} % of the time: {row['psnr']:.1f} dB": made, f"SVD: {svd_row['psnr']:.1f} dB": svd_made}
        found["svd"] = {**svd_row, "share": svd_share}
        say(f"SVD: {svd_row} at {svd_share:.3f}")
        PARTS["esrgan"].write(str(budget), found)
        side_by_side(held_out, columns, FOLDER / f"pictures-{budget}.png", range(4))


def no_scores(compressor: Compressor) -> Mapping[str, Mapping[str, float]]:
    """Return a score of 0 for every rank: what a kernel keeps of its energy decides."""
    return {
        layer.name: {option.name: 0.0 for option in layer.options if option.name.startswith(("sf:", DENSE))}
        for layer in compressor.survey.layers
    }


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
