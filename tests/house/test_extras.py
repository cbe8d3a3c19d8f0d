"""What the library can do with nothing but its own dependencies, and what it says where an extra is missing."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

# A command, and the extra that it needs; none where it must work without any.
COMMANDS = {
    "models": None,
    "profile vgg11_gmp_lr": None,
    "doctor cifar_fast_lr --batch 1": None,
    "convert nin -o nin-lr": None,
    "profile nin-lr": None,
    "report nin-lr -o report.html --rounds 0": None,
    "filters nin-lr": None,
    "scale --network nin --gpus 8": None,
    "paper tables": None,
    "recipes": "train",
    "runs": "train",
    "train nin_cifar10": "train",
    "evaluate nin-lr --recipe nin_cifar10": "train",
    "race nin_cifar10": "train",
    "shard verify shards": "train",
    "deploy nin -o deployed": "onnx",
    "budget nin --budget 60%": "budget",
    "doctor nin --plot picture.png": "plot",
    "convert timm:resnet18": "zoo",
}
HIDDEN = (  # pydantic comes with typer
    "PIL", "fsspec", "grain", "matplotlib", "monai", "onnx", "onnxruntime", "onnxscript", "openvino", "optuna",
    "pyarrow", "ray", "scipy", "tensorboard", "timm", "torchvision",
)  # fmt: skip
WORK = """
import json, sys
from pathlib import Path

hidden, commands = map(json.loads, sys.argv[1:])


class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


sys.meta_path[:] = map(Hiding, sys.meta_path)

from typer.testing import CliRunner
from cruciform.cli.main import app

ended = {}
for words in commands:
    result = CliRunner().invoke(app, words.split())
    ended[words] = f"{type(result.exception).__name__}: {result.exception}" if result.exception else ""
Path("ended.json").write_text(json.dumps(ended))
"""


ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
MODULES = {"pillow": "PIL"}


def modules(extra: str) -> set[str]:
    """The modules that an extra installs, by their names."""
    names = [re.split(r"[\[<>=]", wanted)[0] for wanted in EXTRAS[extra]]
    return {MODULES.get(name, name) for name in names}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return run_without(HIDDEN, list(COMMANDS), tmp_path_factory.mktemp("bare"))


def run_without(hidden: Sequence[str], commands: Sequence[str], folder: Path) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", WORK, json.dumps(hidden), json.dumps(commands)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads((folder / "ended.json").read_text())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_works_or_says_what_to_install(ended: dict[str, str], words: str) -> None:
    extra = COMMANDS[words]
    if extra is None:
        assert ended[words] == ""
    else:
        assert ended[words].startswith("MissingExtraError: ")
        assert f"pip install 'cruciform[{extra}]'" in ended[words]


@pytest.mark.slow
def test_a_shipped_network_predicts_images_with_the_extras_for_it_alone(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (40, 40), "red").save(tmp_path / "images" / "red.png")
    commands = [
        f"deploy {ROOT / 'models' / 'cifar_fast_cross'} -o deployed --search-seconds 1",
        "predict deployed images -o predictions.parquet",
    ]
    installed = modules("onnx") | modules("predict")
    assert installed < {*HIDDEN}
    hidden = [name for name in HIDDEN if name not in installed]
    assert run_without(hidden, commands, tmp_path) == dict.fromkeys(commands, "")


def test_every_hidden_package_is_one_of_an_extra() -> None:
    """Else it would be hidden for nothing."""
    of_extras = set().union(*map(modules, EXTRAS))
    assert [name for name in HIDDEN if name not in of_extras] == []
