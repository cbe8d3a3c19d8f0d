"""Additions of another package: a data set, an optimizer, an objective, a backend; one file and an entry point each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DATASET = '''
import numpy as np
from cruciform.data.samples.source import ArraySource, Opening, dataset

@dataset("stripes", fixed_size=True, recognizes=lambda path: path.endswith(".stripes"))
def open_stripes(opening: Opening) -> ArraySource:
    """Make horizontal and vertical stripes."""
    count = 64 if opening.split == "train" else 16
    images = np.zeros((count, 8, 8, 1), np.uint8)
    images[::2, ::2] = 255
    images[1::2, :, ::2] = 255
    return ArraySource(images, np.arange(count) % 2, ("horizontal", "vertical"))
'''
OPTIMIZER = '''
from typing import Any, Literal
import torch
from cruciform.training.optimizers.optimizer_table import OPTIMIZERS, OptimizerTable

@OPTIMIZERS.register("rmsprop")
class RmsProp(OptimizerTable):
    """RMSprop."""

    kind: Literal["rmsprop"] = "rmsprop"
    alpha: float = 0.99

    def make(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Return ``torch.optim.RMSprop``."""
        return torch.optim.RMSprop(groups, alpha=self.alpha)
'''
OBJECTIVE = '''
from typing import Literal
import torch.nn.functional as F
from torch import Tensor
from cruciform.training.objectives.objective import OBJECTIVES, Objective

@OBJECTIVES.register("focal")
class Focal(Objective):
    """Focal loss (Lin et al., 2017)."""

    kind: Literal["focal"] = "focal"
    gamma: float = 2.0

    def sample_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the focal loss of each sample."""
        losses = F.cross_entropy(logits, labels, reduction="none")
        return (1 - (-losses).exp()) ** self.gamma * losses
'''
BACKEND = '''
from cruciform.training.backends.backend import BACKENDS, Job

@BACKENDS.register("noisy")
def run_noisily(job: Job) -> bool:
    """Train as the backend local does, and print something."""
    from dataclasses import replace
    from cruciform.training.backends.backend import ONE_PROCESS
    print("noise")
    return BACKENDS.get("local")(replace(job, processes=ONE_PROCESS))
'''
ADDITIONS = {
    "their_dataset": ("cruciform.datasets", "stripes", DATASET),
    "their_optimizer": ("cruciform.optimizers", "rmsprop", OPTIMIZER),
    "their_objective": ("cruciform.objectives", "focal", OBJECTIVE),
    "their_backend": ("cruciform.backends", "noisy", BACKEND),
}
RECIPE = """
epochs = 3
batch_size = 16
model = { name = "nin", options = { in_channels = 1 } }
data = { kind = "stripes", path = "some.stripes" }
optimizer = { kind = "rmsprop", lr = 0.01, alpha = 0.9 }
loss = { kind = "focal", gamma = 1.5, mixup = 0.1 }
log = { tensorboard = false }
"""
WORK = """
import json, sys
import torch
from torch import nn
import cruciform
from cruciform.data.open_dataset import recognize_dataset

torch.set_num_threads(1)
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
trained = cruciform.train("recipe.toml", "run", model=network, device="cpu")
(status,) = cruciform.list_runs(".")
report = cruciform.evaluate(trained, recipe="recipe.toml", device="cpu")
same = cruciform.evaluate(trained, recipe="recipe.toml", device="cpu").evaluation == report.evaluation
print(json.dumps({
    "state": status.state, "top1": status.top1, "evaluated": report.evaluation.top1, "same": same,
    "kind": recognize_dataset("x.stripes"), "loss": json.load(open("run/recipe.json"))["loss"],
    "optimizer": json.load(open("run/recipe.json"))["optimizer"]["alpha"],
}))
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A package as pip installs it: a module for each addition, and metadata with entry points."""
    folder = tmp_path / "site"
    metadata = folder / "theirs-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    lines = []
    for module, (group, name, text) in ADDITIONS.items():
        (folder / f"{module}.py").write_text(text)
        lines.append(f"[{group}]\n{name} = {module}\n")
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return folder


def run(code: str, plugin: Path) -> "subprocess.CompletedProcess[str]":
    start = f"import sys; sys.path.insert(0, {str(plugin)!r})\n"
    command = [sys.executable, "-W", "error::cruciform.errors.PluginWarning", "-c", start + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=plugin.parent)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_additions_of_another_package_train_a_network(plugin: Path) -> None:
    found = json.loads(run(WORK, plugin).stdout)
    assert found["state"] == "done"
    assert found["top1"] == found["evaluated"] == 1.0
    assert found["same"]
    assert found["kind"] == "stripes"
    assert found["loss"] == {"kind": "focal", "gamma": 1.5, "mixup": 0.1, "aux_loss_weight": 0.3}
    assert found["optimizer"] == 0.9


def test_their_keys_are_checked_like_ours(plugin: Path) -> None:
    """Errors list them: an unknown kind, and an unknown key of theirs."""
    code = """
from cruciform import load_recipe
from cruciform.errors import RecipeError
for change in ("optimizer.kind=rmsprp", "optimizer.alhpa=1", "loss.kind=focl", "data.kind=stipes", "data.size=8"):
    try:
        load_recipe("recipe.toml", [change])
    except RecipeError as error:
        print(error)
"""
    lines = run(code, plugin).stdout.splitlines()
    assert "Did you mean 'rmsprop'" in lines[0]
    assert "there is no key 'optimizer.alhpa'. Did you mean 'alpha'" in lines[1]
    assert "Did you mean 'focal'" in lines[2]
    assert "Did you mean 'stripes'" in lines[3]
    assert "the images of stripes have a fixed size" in lines[4]


@pytest.mark.slow
def test_a_backend_of_another_package_runs(plugin: Path) -> None:
    code = """
import json
from cruciform import Processes, train_distributed
from cruciform.training.recipe.cookbook import load_recipe
recipe = load_recipe("recipe.toml", ["model.name=nin_c3", "data.kind=cifar10"])
try:
    train_distributed(recipe, "other", processes=Processes(backend="noisy", device="cpu"))
except Exception as error:
    print(type(error).__name__)
"""
    assert run(code, plugin).stdout.split() == ["noise", "DataError"]


@pytest.mark.parametrize(
    ("package", "name"),
    [("data.sets", "cifar10"), ("training.optimizers", "sgd"), ("training.objectives", "cross_entropy")],
)
def test_ours_are_one_file_each_and_named_nowhere_else(package: str, name: str) -> None:
    """Where a file registers itself, no other file imports it; the default objective is the exception."""
    source = Path(__file__).parents[2] / "src" / "cruciform"
    module = f"cruciform.{package}.{name}"
    imports = [path for path in source.rglob("*.py") if f"from {module} import" in path.read_text("utf-8")]
    allowed = {"cross_entropy": ["recipe.py"]}
    assert [path.name for path in imports] == allowed.get(name, [])
