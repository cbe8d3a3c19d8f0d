"""The examples run, and end with what they are to show."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "convert_resnet": ("timm", "equal outputs after loading: True"),
    "plain_loop": ("torch", "loss: "),
    "in_timm": ("timm", "torch.Size([2, 10])"),
    "in_lightning": ("lightning", "loss after two epochs: "),
    "compress_real_esrgan": ("onnxruntime", "PSNR "),
    "in_hugging_face": ("huggingface_hub", "equal outputs after loading: True"),
}


WORDS = {"compress_real_esrgan": ("{}", "--quick", "--crops", "2", "--budget", "99%")}


def photographs(folder: Path) -> Path:
    """Write a few images of noise."""
    random = np.random.default_rng(0)
    for number in range(16):
        Image.fromarray(random.integers(0, 255, (64, 64, 3), np.uint8)).save(folder / f"{number}.png")
    return folder


def test_every_example_is_known_and_short() -> None:
    paths = list((ROOT / "examples").glob("*.py"))
    assert {path.stem for path in paths} == set(EXAMPLES)
    assert all(len(path.read_text("utf-8").splitlines()) < 60 for path in paths)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    needed, end = EXAMPLES[name]
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    words = [word.format(photographs(tmp_path)) for word in WORDS.get(name, ())]
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "shim")},
        cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(end), done.stdout
    assert "nan" not in done.stdout.splitlines()[-1]
