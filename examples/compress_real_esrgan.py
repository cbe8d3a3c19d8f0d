"""Compress Real-ESRGAN x4plus, a slow network on every CPU, from a few photographs: no labels, no training.

python examples/compress_real_esrgan.py PHOTOS --budget 60%     needs: pip install 'cruciform[onnx,budget]' pillow

Takes an hour or two on two cores, can be stopped and repeated; writes esrgan/compression.html and pictures.png.
"""

import argparse
import sys
from pathlib import Path

import cruciform

sys.path.insert(0, str(Path(__file__).parent / "real_esrgan"))
from pictures import enlarge, find_photographs, psnr, read_crops, side_by_side, ssim
from rrdb_net import RrdbNet, real_esrgan

DENSE_BLOCK = 5
"""Layers fitted at once: fewer are more exact, and take longer."""
QUICK = ("first", "blocks.*", "up1", "up2", "sharpen", "last")  # which keep dense, if it is to be quick


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description="Compress Real-ESRGAN x4plus.")
    parser.add_argument("photographs", type=Path, help="a folder; half of them calibrate, half are looked at")
    parser.add_argument("--budget", default="60%", help="of the original's time")
    parser.add_argument("--crops", type=int, default=48, help="calibration crops of 32×32")
    parser.add_argument("--quick", action="store_true", help="one layer of a shallow network, to see that it runs")
    parser.add_argument("-o", "--output", type=Path, default=Path("esrgan"))
    given = parser.parse_args()

    original = real_esrgan()
    if given.quick:
        original, whole = RrdbNet(blocks=1).eval(), original
        original.load_state_dict({name: whole.state_dict()[name] for name in original.state_dict()})
    photographs = find_photographs(given.photographs)
    looked_at = read_crops(photographs[1::2], 8, 64)
    wanted = enlarge(original, looked_at)
    found = cruciform.compress(
        original,
        read_crops(photographs[::2], given.crops, 32),
        {"macs": given.budget} if given.quick else given.budget,
        options=cruciform.CompressOptions(
            block=DENSE_BLOCK, protect=QUICK if given.quick else (), state=f"{given.output}.state", on_progress=print
        ),
    )
    found.save(given.output)
    made = enlarge(found.model, looked_at)
    side_by_side(looked_at, {"original": wanted, given.budget: made}, given.output / "pictures.png", range(4))
    print(f"PSNR {psnr(made, wanted):.1f} dB, SSIM {ssim(made, wanted):.3f} against the original's output")


if __name__ == "__main__":
    main()
