"""Shared by all tests: one torch thread each, and how many examples a law is tried on."""

import importlib.util
import os
import signal
import warnings

import pytest
import torch
from hypothesis import HealthCheck, settings

from cruciform.coverage.worker import load_torchvision

torch.set_num_threads(1)

# A shell starts what runs in the background with SIGINT ignored, and nohup with SIGHUP; tests send both.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

settings.register_profile(
    "cruciform",
    max_examples=int(os.environ.get("CRUCIFORM_EXAMPLES", "50")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("cruciform")


@pytest.fixture(scope="session")
def libraries() -> None:
    """timm, torchvision and MONAI, loadable; a CUDA build of torchvision lacks two operators beside CPU torch."""
    for library in ("timm", "torchvision", "monai"):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed: pip install 'cruciform[zoo,volumes]'")
    os.environ["HF_HUB_OFFLINE"] = "1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load_torchvision()
        import timm  # noqa: F401


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
