import subprocess
import sys

import pytest
import torch

from cruciform.errors import OptionError
from cruciform.training.runtime.runtime import pick_device

WORK = """
import torch
import torch.distributed as dist
from torch import nn
from cruciform.training.runtime.runtime import Distributed

for _ in range(60):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    runtime = Distributed(torch.device("cpu"))
    wrapped = runtime.wrap(nn.Linear(2, 2))
    wrapped(torch.ones(1, 2)).sum().backward()
    runtime.most(1, 2)
    dist.destroy_process_group()
    del wrapped
"""


@pytest.mark.slow
def test_a_network_may_outlive_its_group() -> None:
    """An error on its way up holds the wrapped network while the group is destroyed. Without care it hangs, soon."""
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr


def test_a_device_that_is_not_there_is_refused_in_a_sentence() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    missing = ["gpu"] if torch.cuda.is_available() else ["gpu", "cuda"]
    for name in missing:
        with pytest.raises(OptionError, match=f"the device '{name}' is not available: .*Use auto, cpu, cuda or cuda:1"):
            pick_device(name)
