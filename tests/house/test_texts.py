"""What the texts say must hold: links, code, commands, numbers."""

import contextlib
import csv
import io
import json
import re
import sys
from pathlib import Path

import pytest
import torch

from cruciform.measure.macs import profile
from cruciform.models.card import model_card
from cruciform.models.zoo import create_model

ROOT = Path(__file__).parents[2]
TEXTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_link_inside_the_repository_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", path.read_text("utf-8")):
        assert "://" in target or (path.parent / target).exists(), target


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_example_that_a_text_includes_is_there(path: Path) -> None:
    for mark in re.findall(r"^\W*-\s*-\s*8\s*<.*$", path.read_text("utf-8"), re.MULTILINE):
        included = re.fullmatch(r'--8<-- "(examples/\w+\.py)"', mark)
        assert included, f'{mark!r} includes nothing; write --8<-- "examples/NAME.py"'
        assert (ROOT / included[1]).exists(), mark


def test_the_readmes_code_prints_what_it_says() -> None:
    code, output = re.search(r"```python\n(.*?)```\n```\n(.*?)```", README, re.DOTALL).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README", "exec"), {})  # noqa: S102
    assert printed.getvalue() == output


def test_the_readmes_counts_are_those_of_the_networks() -> None:
    rows = re.findall(r"\| `(vgg\w+)`[^|]*\| ([\d,]+) \| (\d+) % \| ([\d,]+) \| ([\d.]+) \|", README)
    assert len(rows) == 6
    for name, macs, share, params, top5 in rows:
        with torch.device("meta"):
            network = create_model(name)
        counted, published = profile(network, (3, 224, 224)), model_card(name).published[0]
        assert (f"{counted.macs_paper:,}", f"{counted.params:,}") == (macs, params)
        assert round(100 * counted.macs_paper / 7508438696) == int(share)
        assert f"{100 * (published.top5 or 0):.2f}" == top5


def test_the_readme_says_how_many_rows_need_a_reading() -> None:
    rows = csv.DictReader((ROOT / "src" / "cruciform" / "models" / "published.csv").read_text("utf-8").splitlines())
    assert sum(row["status"] == "explained" for row in rows) == 11
    assert "Eleven of them need a reading" in README


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_measured_numbers_are_those_recorded(path: Path) -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from numbers_in_texts import render

    text = path.read_text("utf-8")
    assert render(text) == text, "make numbers writes them anew"


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*.json")), ids=lambda path: path.name)
def test_a_result_carries_what_is_needed_to_doubt_it(path: Path) -> None:
    result = json.loads(path.read_text("utf-8"))
    assert set(result) == {"summary", "command", "n", "date", "versions", "hardware", "details"}
    assert all(isinstance(value, int | float) for value in result["summary"].values())
    assert result["n"] >= 1
