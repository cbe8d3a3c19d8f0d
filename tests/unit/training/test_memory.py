"""In processes of their own: what a C library is told holds for all of the process, to its end."""

import subprocess
import sys

import pytest

STEPS = """
import resource, torch
from cruciform.machine.memory import keep_freed_memory

if {keep}:
    assert keep_freed_memory()
torch.set_num_threads(1)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    a = torch.ones(48 * 2**18)  # 48 MiB, as the maps of a layer for a batch are
    return float((a + a)[-1])

for _ in range(20):  # until the holes between what is kept fit
    step()
before = faults()
step()
print(faults() - before)
"""


def new_pages(*, keep: bool) -> int:
    """Returns how many pages the last of some equal steps asked the system for."""
    done = subprocess.run(
        [sys.executable, "-c", STEPS.format(keep=keep)], capture_output=True, text=True, check=True, timeout=300
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it is glibc that is told")
def test_a_step_uses_the_pages_of_the_steps_before_it() -> None:
    assert new_pages(keep=True) < 2
    assert new_pages(keep=False) > 20, "there is nothing to keep: the setting could go"
