"""The sweep of ``benchmarks/engine_sweep.py``: it sees what it is to see, and a part of it finds nothing unguarded."""

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="forks, and protects pages")]


@pytest.mark.timeout(900)
def test_no_combination_of_a_part_of_the_sweep_is_left_unguarded() -> None:
    command = [sys.executable, str(BENCHMARKS / "engine_sweep.py"), "--every", "71", "--no-record"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def overread(x: Tensor, *others: object) -> Tensor:
    ctypes.string_at(x.data_ptr() + x.untyped_storage().nbytes(), 4096)
    return F.conv2d(x, *others)


def noise(x: Tensor, *others: object) -> Tensor:
    y = F.conv2d(x, *others)
    return y + 0.01 * torch.randn_like(y).detach() if x.dtype == torch.float32 else y


def unread(x: Tensor, *others: object) -> Tensor:
    x.register_hook(lambda gradient: gradient + 1) if x.requires_grad and x.dtype == torch.float32 else None
    return F.conv2d(x, *others)


@pytest.mark.parametrize(
    ("engine", "verdict"),
    [(overread, "SIGSEGV"), (noise, "wrong: the output"), (unread, "wrong: the gradient of the input")],
)
def test_an_engine_that_goes_wrong_is_seen(
    engine: Callable[..., Tensor], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import engine_cases

    monkeypatch.setattr(engine_cases, "FUNCTIONAL_CONVOLUTIONS", {2: engine})
    group = engine_cases.Group((3, 1), ((1, 1), (1, 0), (1, 1)), 2, "float32")
    findings = engine_cases.sweep_torch(group)
    found = [
        finding for finding in findings if verdict != "wrong: the gradient of the input" or ", grad," in finding.what
    ]
    assert len(found) in (6, 12)
    assert all(finding.raw.startswith(verdict) for finding in found)
    assert all(
        finding.guarded == "ok" for finding in findings
    )  # the layer calls torch, not the engine put in its place
