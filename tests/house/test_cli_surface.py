"""Every command: help with an example, JSON for machines. The flags are frozen here, so that a change is a decision."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import cruciform.cli
from cruciform.cli.main import app
from cruciform.cli.shared.renamed_flags import RENAMED_FLAGS
from cruciform.errors import OptionError

FLAGS = {
    "models": {"--json"},
    "profile": {"--input", "--training", "--json", "--csv"},
    "convert": {
        "--output",
        "--scheme",
        "--init",
        "--protect",
        "--channels",
        "--keep-first",
        "--weights",
        "--input",
        "--json",
    },
    "coverage": {"--library", "--scheme", "--sample", "--journal", "--result", "--table", "--json"},
    "budget": {
        "--output",
        "--budget",
        "--macs",
        "--params",
        "--bytes",
        "--target",
        "--batch",
        "--threads",
        "--rounds",
        "--candidate",
        "--importance",
        "--protect",
        "--weights",
        "--input",
        "--json",
    },
    "compress": {
        "--output",
        "--data",
        "--budget",
        "--target",
        "--batch",
        "--threads",
        "--rounds",
        "--images",
        "--block",
        "--protect",
        "--evaluate",
        "--finetune",
        "--int8",
        "--weights",
        "--input",
        "--json",
    },
    "bench": {
        "--suite",
        "--target",
        "--batch",
        "--threads",
        "--rounds",
        "--search-seconds",
        "--result",
        "--plot",
        "--json",
    },
    "deploy": {
        "--output",
        "--target",
        "--batch",
        "--threads",
        "--rounds",
        "--search-seconds",
        "--weights",
        "--input",
        "--json",
    },
    "evaluate": {"--recipe", "--data", "--set", "--device", "--plot", "--json"},
    "predict": {
        "--output",
        "--top",
        "--batch",
        "--part",
        "--threads",
        "--trust",
        "--ray",
        "--workers",
        "--weights",
        "--input",
        "--json",
    },
    "race": {"--seeds", "--set", "--runs", "--result", "--plot", "--backend", "--workers", "--device", "--json"},
    "filters": {"--output", "--layer", "--weights", "--input", "--json"},
    "recipes": {"--json"},
    "report": {"--output", "--rounds", "--deployment", "--weights", "--input", "--json"},
    "runs": {"--json"},
    "scale": {"--network", "--images", "--gpus", "--link", "--assume", "--input", "--json"},
    "shard write": {"--size", "--short-side", "--shuffle", "--threads", "--json"},
    "shard verify": {"--threads", "--json"},
    "sweep": {"--search", "--set", "--trials", "--runs", "--ray", "--workers", "--device", "--json"},
    "train": {"--set", "--run", "--resume", "--backend", "--workers", "--min-workers", "--device", "--json"},
    "doctor": {"--init", "--weights", "--input", "--images", "--batch", "--seed", "--plot", "--json"},
    "paper tables": {"--check", "--format", "--json"},
    "paper timings": {"--target", "--batch", "--rounds", "--result", "--size", "--json"},
    "paper figures": {"--output", "--only", "--model", "--input", "--format", "--results", "--json"},
}


def commands() -> dict[str, Any]:
    found: dict[str, Any] = {}

    def walk(command: Any, name: str) -> None:
        for part, child in getattr(command, "commands", {}).items():
            walk(child, f"{name} {part}".strip())
        if not hasattr(command, "commands"):
            found[name] = command

    walk(typer.main.get_command(app), "")
    return found


def test_the_commands_are_these() -> None:
    assert set(commands()) == set(FLAGS)


@pytest.mark.parametrize("name", FLAGS)
def test_flags_are_frozen(name: str) -> None:
    assert {flag for p in commands()[name].params for flag in p.opts if flag.startswith("--")} == FLAGS[name]


@pytest.mark.parametrize("name", FLAGS)
def test_help_has_an_example_that_starts_with_the_command(name: str) -> None:
    assert f"Example: cruciform {name}" in (commands()[name].help or "")


@pytest.mark.parametrize("name", FLAGS)
def test_every_option_is_explained(name: str) -> None:
    for parameter in commands()[name].params:
        assert getattr(parameter, "help", None), f"{name} {parameter.name}"


@pytest.mark.parametrize(
    ("command", "old"), [(command, old) for command, flags in RENAMED_FLAGS.items() for old in flags]
)
def test_an_old_flag_is_answered_with_the_new_one(command: str, old: str) -> None:
    new = RENAMED_FLAGS[command][old]
    assert new in FLAGS[command]
    assert old not in FLAGS[command]
    for words in ([old, "3"], [f"{old}=3"]):
        ended = CliRunner().invoke(app, [*command.split(), *words])
        assert isinstance(ended.exception, OptionError)
        assert str(ended.exception) == f"{old} is now {new}"


CLI = Path(cruciform.cli.__file__).parent
WRITES = re.compile(r"typer\.echo\(|(?<![.\w])print\(|(?<!Safe)\bConsole\(|sys\.std(?:out|err)\.write|click\.echo")


def test_only_one_file_writes_to_the_terminal() -> None:
    """It escapes what a terminal would obey: names of classes, runs and files are other people's."""
    assert WRITES.search("typer.echo(name)")
    assert WRITES.search("    print(name)")
    assert WRITES.search("Console(stderr=True)")
    found = [path.name for path in sorted(CLI.rglob("*.py")) if WRITES.search(path.read_text("utf-8"))]
    assert found == ["terminal.py"]
