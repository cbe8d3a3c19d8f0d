"""The examples run, and end with what they are to show."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "convert_resnet": ("timm", "equal outputs after loading: True"),
    "plain_loop": ("torch", "loss: "),
    "in_timm": ("timm", "torch.Size([2, 10])"),
    "in_lightning": ("lightning", "loss after two epochs: "),
    "in_hugging_face": ("huggingface_hub", "equal outputs after loading: True"),
}


def test_every_example_is_known_and_short() -> None:
    paths = list((ROOT / "examples").glob("*.py"))
    assert {path.stem for path in paths} == set(EXAMPLES)
    assert all(len(path.read_text("utf-8").splitlines()) < 60 for path in paths)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str) -> None:
    needed, end = EXAMPLES[name]
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests" / "shim")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(end), done.stdout
    assert "nan" not in done.stdout.splitlines()[-1]
