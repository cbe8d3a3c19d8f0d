import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cruciform.deployment.search.layer_forms import build_form
from cruciform.deployment.targets.executorch import ExecuTorch
from cruciform.errors import DeployError, MissingExtraError

PARTITIONER = "executorch.backends.xnnpack.partition.xnnpack_partitioner"


def write(target: ExecuTorch, model: nn.Module, size: tuple[int, ...], folder: Path, *, batch: int) -> None:
    target.write(build_form(model.eval(), {}, size), size, folder, batch=batch)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, PARTITIONER, None)
    with pytest.raises(MissingExtraError, match="pip install 'cruciform\\[executorch\\]'"):
        ExecuTorch().load(tmp_path, threads=1)


@pytest.mark.slow
def test_engines_are_not_imported_before_they_are_used() -> None:
    code = (
        "import sys, cruciform.deployment.targets.target; "
        "print([m for m in ('executorch', 'torch._inductor', 'openvino', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_other_numbers_of_images_run_in_pieces(tmp_path: Path) -> None:
    model, target = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten()), ExecuTorch()
    write(target, model, (3, 8, 8), tmp_path, batch=4)
    run = target.load(tmp_path, threads=1)
    images = np.random.default_rng(0).random((11, 3, 8, 8), np.float32)
    for number in (1, 4, 11):
        with torch.no_grad():
            expected = model(torch.from_numpy(images[:number])).numpy()
        np.testing.assert_allclose(run(images[:number]), expected, atol=1e-5)


@pytest.mark.slow
def test_threads_do_not_change_under_an_engine_at_work(tmp_path: Path) -> None:
    model, target = nn.Conv2d(3, 4, 3), ExecuTorch()
    write(target, model, (3, 8, 8), tmp_path, batch=1)
    run = target.load(tmp_path, threads=1)
    with pytest.raises(DeployError, match="one thread pool per process, here of 1, which can't be resized to 2"):
        target.load(tmp_path, threads=2)
    del run
    gc.collect()
    target.load(tmp_path, threads=2)(np.zeros((1, 3, 8, 8), np.float32))


@pytest.mark.slow
def test_what_it_has_no_code_for_is_refused_at_loading(tmp_path: Path) -> None:
    target = ExecuTorch()
    write(target, nn.Conv3d(1, 2, 3), (1, 6, 6, 6), tmp_path, batch=1)
    with pytest.raises(DeployError, match="can't run this network: .*choose another target"):
        target.load(tmp_path, threads=1)
