"""Shared by all tests: one torch thread each, and how many examples a law is tried on."""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)

settings.register_profile(
    "cruciform",
    max_examples=int(os.environ.get("CRUCIFORM_EXAMPLES", "50")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("cruciform")


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
