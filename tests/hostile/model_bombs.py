"""Model directories and runs that ask for networks of any size in a few bytes: refused before they cost anything."""

import hashlib
import json
import os
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import networks
import numpy as np
import torch
from kind import Silent, Trial, hostile
from safetensors.numpy import save_file

from cruciform.models.zoo import create_model
from cruciform.store.directory import CARD, WEIGHTS, load, load_with, saved_input_size
from cruciform.store.run_marker import RUN_RECIPE
from cruciform.training.engine.learner import Learner
from cruciform.training.engine.trained_run import trained_network
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.run.checkpoint import Checkpoints
from cruciform.training.run.progress import Progress
from cruciform.training.runtime.runtime import SingleProcess

NUMBERS = (0, -1, 255, 1_000, 8_192, 8_193, 100_000, 1_000_000, 2**31, 2**63, 10**300, 1e308, float("inf"),
           float("nan"), "1000000", "r1000000", [10**6] * 3, [10**6] * 4, [8_192] * 4, [[8_192] * 4] * 4, [8] * 100_000,
           [[8] * 1_500], {"depth": 10**6}, True, None)  # fmt: skip
ZOO = tuple(
    (name, option)
    for name, options in {
        "cifar_fast": "widths schemes num_classes in_channels input_size scale",
        "vgg11": "widths hidden input_size stride num_classes",
        "googlenet": "num_classes in_channels input_size pool_padding",
        "nin": "blocks num_classes in_channels input_size",
    }.items()
    for option in options.split()
)
MONAI = (
    ("monai:RegUNet-3d", "depth"),
    ("monai:RegUNet-2d", "num_channel_initial"),
    ("monai:UNet-3d", "channels"),
    ("monai:UNet-2d", "num_res_units"),
    ("monai:DenseNet121-3d", "block_config"),
    ("monai:DenseNet121-2d", "growth_rate"),
    ("monai:SegResNet-3d", "blocks_down"),
    ("monai:SwinUNETR-3d", "depths"),  # computes while it is built
    ("monai:SwinUNETR-3d", "window_size"),
    ("monai:SwinUNETR-3d", "feature_size"),
    ("monai:UNETR-3d", "img_size"),
    ("monai:ResNet18-3d", "num_classes"),
)
Asked = tuple[str, dict[str, Any]]
OURS: list[Asked] = [(name, {option: value}) for name, option in ZOO for value in NUMBERS]
OURS += [(name, {}) for name in ("vgg11", "googlenet")]  # large as they are
THEIRS: list[Asked] = [(name, {option: value}) for name, option in MONAI for value in NUMBERS]
THEIRS += [(name, {}) for name in ("monai:UNETR-3d", "monai:SwinUNETR-3d", "monai:DenseNet264-3d")]
LIBRARY = "monai.networks.nets"


def rewrite(folder: Path, **changes: Any) -> None:
    card = folder / CARD
    card.write_text(json.dumps({**json.loads(card.read_text()), **changes}))


def ask_card(trial: Trial, asked: Asked) -> None:
    """Asks a library for too much, with the weights of a small network, or with none that claim large extents."""
    reference, options = asked
    shutil.copytree(trial.seeds / "model", trial.scratch)
    if trial.number % 2:
        save_file({"x": np.zeros((10**6, 0), np.int8), "y": np.zeros(3, np.int8)}, trial.scratch / WEIGHTS)
    checksum = hashlib.sha256((trial.scratch / WEIGHTS).read_bytes()).hexdigest()
    base = {"reference": reference, "options": options}
    rewrite(trial.scratch, base=base, layers={}, weights={"sha256": checksum})
    read = trial.random.choice((load, partial(load_with, options={"num_classes": 3})))
    read(trial.scratch)
    raise Silent(f"{reference} with {options!r:.60} was built for weights that are not its own")


@hostile("model bombs", 2 * len(OURS), networks.prepare_directory)
def attack_card(trial: Trial) -> None:
    ask_card(trial, OURS[trial.number // 2])


SIZES = ([3, 10**6, 10**6], [10**9] * 4, [1] * 10**5, [3, 0, 0], [-3, 2, 2], [3, 1e9, 1], [True], "3x3", {}, 3, [[3]])


@hostile("model input sizes", len(SIZES), networks.prepare_directory)
def attack_size(trial: Trial) -> None:
    shutil.copytree(trial.seeds / "model", trial.scratch)
    rewrite(trial.scratch, input_size=SIZES[trial.number])
    size = saved_input_size(trial.scratch)
    if size is not None and not (len(size) < 10**6 and 0 < np.prod([float(extent) for extent in size]) < 2**29):
        raise Silent(f"an input of {size!r:.60} was taken")


@hostile("large cards", 4, networks.prepare_directory)
def attack_large(trial: Trial) -> None:
    """Files of up to a terabyte that take no room on the disk."""
    shutil.copytree(trial.seeds / "model", trial.scratch)
    name = (CARD, WEIGHTS)[trial.number % 2]
    with (trial.scratch / name).open("r+b" if trial.number < 2 else "wb") as file:
        os.truncate(file.fileno(), 2**40 if name == CARD else 2**31)  # a trial may map 3 GB
    load(trial.scratch)
    raise Silent(f"{name} was read, large as it is")


def prepare_run(folder: Path) -> None:
    """Writes a run of a small network as training does, with one checkpoint."""
    changes = ["model.options.widths=[4, 4, 4]", "precision=fp32"]
    recipe = load_recipe("cifar_fast_lr_cifar10", changes)
    model = create_model("cifar_fast_lr", widths=[4, 4, 4])
    learner = Learner(recipe, model, SingleProcess(torch.device("cpu")), classes=10)
    tensors, values = learner.state()
    data = {"classes": 10, "input_size": [3, 32, 32], "samples": 4}
    (folder / "run").mkdir()
    parts = {"progress": asdict(Progress(step=1)), "learner": values, "data": data}
    Checkpoints(folder / "run" / "checkpoints").save(1, tensors, parts, never_finite=learner.never_finite)
    (folder / "run" / RUN_RECIPE).write_text(recipe.model_dump_json())
    trained_network(folder / "run")  # or every refusal below would be for want of something else


def ask_run(trial: Trial, asked: Asked) -> None:
    """The same in the recipe of a run: it may be somebody else's, too."""
    reference, options = asked
    shutil.copytree(trial.seeds / "run", trial.scratch)
    path = trial.scratch / RUN_RECIPE
    recipe = json.loads(path.read_text())
    recipe["model"] = {"name": reference, "options": options}
    path.write_text(json.dumps(recipe))
    trained_network(trial.scratch)
    raise Silent(f"{reference} with {options!r:.60} was built for weights that are not its own")


@hostile("run bombs", len(OURS), prepare_run)
def attack_run(trial: Trial) -> None:
    ask_run(trial, OURS[trial.number])


@hostile("library bombs", len(THEIRS), networks.prepare_directory, library=LIBRARY)
def attack_library(trial: Trial) -> None:
    ask_card(trial, THEIRS[trial.number])


@hostile("library bombs in runs", len(THEIRS), prepare_run, library=LIBRARY)
def attack_library_in_run(trial: Trial) -> None:
    ask_run(trial, THEIRS[trial.number])
