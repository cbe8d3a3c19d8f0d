"""Every command and every expression of docs/one-page.md is run as it is printed."""

import ast
import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

import cruciform
from cruciform.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "one-page.md").read_text("utf-8")
ROW = re.compile(r"^\| (.+?) \| (–|`.+?`) \| (`.*`|) ?\|$", re.MULTILINE)
ROWS = [(wish, command.strip("`–"), code.strip("`")) for wish, command, code in ROW.findall(PAGE)]
# These train, time or start processes, which takes more than a few seconds.
SLOW = (
    "budget",
    "compress",
    "coverage",
    "train",
    "distill",
    "race",
    "sweep",
    "deploy",
    "bench",
    "report",
    "predict",
    "open_artifact",
    "paper",
)
# These take minutes.
SOAK = ("bench",)
TINY = """
from torch import nn


def make():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )
"""
RECIPE = """
epochs = 1
batch_size = 16
model = {name = "nin_c3_lr", options = {dropout = 0.0}}
data = {kind = "cifar10", path = "DATA", threads = 1}
optimizer = {kind = "sgd", lr = 0.005}
log = {steps = 1, tensorboard = false}
"""


def marks_of(command: str, code: str) -> list[pytest.MarkDecorator]:
    """Returns the marks of a line that runs something that takes its time."""
    verbs = {*command.split()[1:2], *re.findall(r"(\w+)\(", code)}
    return [mark for mark, slow in ((pytest.mark.slow, SLOW), (pytest.mark.soak, SOAK)) if verbs & {*slow}]


LINES = [pytest.param(command, code, id=wish, marks=marks_of(command, code)) for wish, command, code in ROWS]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the files that the page names."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "tiny.py").write_text(TINY)
    numbers = np.random.default_rng(0)
    (folder / "data").mkdir()
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        records = numbers.integers(0, 256, (8, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        (folder / "data" / f"{name}.bin").write_bytes(records.tobytes())
    (folder / "recipe.toml").write_text(RECIPE.replace("DATA", str(folder / "data")))
    for kind in ("cat", "dog"):
        (folder / "images" / kind).mkdir(parents=True)
        for number in range(3):
            pixels = numbers.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "images" / kind / f"{number}.png")
    sys.path.insert(0, str(folder))
    with chdir(folder):
        yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("tiny", None)


@pytest.fixture(scope="module")
def weights(workspace: Path) -> Path:
    from tiny import make  # type: ignore[import-not-found]

    save_file(make().state_dict(), workspace / "w.safetensors")
    return workspace


@pytest.fixture
def prepared(weights: Path, request: pytest.FixtureRequest) -> Path:
    """The folder, with a run and an artifact where the row names them."""
    command, code = request.node.callspec.params["command"], request.node.callspec.params["code"]
    if "load(" in code and not (weights / "saved").exists():
        eval('save(network, "saved", table, base=opened)', names())  # noqa: S307
    if "runs" in command + code and not (weights / "runs" / "done").exists():
        cruciform.train("recipe.toml", "runs/done")
    if '"artifact"' in code and not (weights / "artifact").exists():
        cruciform.train("recipe.toml", "runs/done")
        cruciform.deploy("runs/done", "artifact", options=cruciform.DeployOptions(search_seconds=2))
    if '"shards/train"' in code and not (weights / "shards" / "train").exists():
        cruciform.write_shards("images", "shards/train")
    return weights


@cache
def names() -> dict[str, Any]:
    import cruciform.coverage.examine
    import cruciform.measure.filters
    import cruciform.paper.tables
    import cruciform.scale.model
    from cruciform.scale.assumptions import Assumptions
    from cruciform.scale.model import TrainingCost, TrainingJob

    public = {name: getattr(cruciform, name) for name in cruciform.__all__}
    batch = np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32)
    opened = cruciform.open_network("nin")
    network, table = cruciform.convert(opened, "lr")
    ours = {"Assumptions": Assumptions, "TrainingCost": TrainingCost, "TrainingJob": TrainingJob, "batch": batch}
    return {**public, **ours, "opened": opened, "network": network, "table": table, "cruciform": cruciform}


@pytest.mark.parametrize(("command", "code"), LINES)
def test_a_line_of_the_page_runs_as_it_is_printed(
    command: str, code: str, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cruciform.deployment.bench.bench.MOST_DRIFT", 99.0)  # tests run on busy machines
    if command:
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
    assert eval(code, {**names()}) is not None  # noqa: S307


@pytest.mark.parametrize(("wish", "command", "code"), ROWS, ids=[row[0] for row in ROWS])
def test_a_line_of_the_page_is_a_command_and_a_call_that_exist(wish: str, command: str, code: str) -> None:
    assert code, f"{wish}: the Python column is empty"
    assert_call(code)
    if command:
        assert_command(shlex.split(command)[1:])


def assert_command(words: list[str]) -> None:
    """Check that there is a command that takes these flags."""
    found: Any = typer.main.get_command(app)
    while hasattr(found, "commands"):
        found = found.commands[words.pop(0)]
    context = found.context_class(found, info_name="command")
    found.make_parser(context).parse_args(args=words)  # raises NoSuchOption


def assert_call(code: str) -> None:
    """Check that a public function takes the arguments that it is called with."""
    call = ast.parse(code, mode="eval").body
    known = names()
    for node in ast.walk(call):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = {"list": list, **known}[node.func.id]
            if any(isinstance(argument, ast.Starred) for argument in node.args):
                continue
            inspect.signature(called).bind(*node.args, **{one.arg: one.value for one in node.keywords if one.arg})


def test_every_command_is_on_the_page() -> None:
    group = typer.main.get_command(app)
    shown = {command.split()[1] for _, command, _ in ROWS if command}
    assert set(group.commands) <= shown  # type: ignore[attr-defined]


def test_every_public_function_is_on_the_page() -> None:
    used = " ".join(code for _, _, code in ROWS)
    functions = {name for name in cruciform.__all__ if inspect.isfunction(getattr(cruciform, name))}
    elsewhere = {"convert_", "cross", "model_card", "distillation_losses"}  # variants, in the Python reference
    assert {name for name in functions - elsewhere if not re.search(rf"\b{name}\(", used)} == set()


def test_the_page_has_many_lines_and_an_expression_in_each() -> None:
    tables = PAGE.split("## Files")[0]
    lines = [line for line in tables.splitlines() if line.startswith("| ") and "| command |" not in line]
    assert len(ROWS) == len(lines) >= 30


def test_a_call_or_a_flag_that_nothing_takes_is_found() -> None:
    with pytest.raises(TypeError):
        assert_call('profile("nin", nonsense=1)')
    with pytest.raises(KeyError):
        assert_call("nonsense()")
    with pytest.raises(Exception, match="No such option: --nonsense"):
        assert_command(["profile", "nin", "--nonsense"])
    with pytest.raises(KeyError):
        assert_command(["nonsense"])
