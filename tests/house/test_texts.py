"""What the texts say must hold: links, code, commands, numbers."""

import contextlib
import io
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
README = (ROOT / "README.md").read_text("utf-8")
FIGURES_IN = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - {ROOT / "docs" / "coverage.md"})
NOT_TYPED = re.compile(r"<!-- paper .*?<!-- end paper -->|```.*?```|`[^`\n]*`", re.DOTALL)  # written by a command; code
FIGURE = re.compile(r"\d+\.\d+|\d+ ?%|\d{1,3}(?:,\d{3})+")
# Figures that nobody measured: names, tolerances, what a test does, and what others published.
DEFINITIONS = (
    "Apache-2.0", "arXiv:1511.06744", "SqueezeNet 1.1", "top-5 %", "do not win by 1 %", "0.1 in 8 bits",
    "up to 5 % of the output's range", "2,000 steps", "more than 90 % on 16,384 GPUs", "69.0 % top-1 and 88.6 % top-5",
    '"58 % faster", "16 %" and "86 %"', "varies by 0.13 points from seed to seed",
)  # fmt: skip


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


def test_warnings_of_the_site_are_errors() -> None:
    """mkdocs counts for --strict only what --quiet lets through."""
    (build,) = re.findall(r"mkdocs build[^#\n]*", (ROOT / "Makefile").read_text("utf-8"))
    assert "--strict" in build
    assert "--quiet" not in build


def test_the_readmes_code_prints_what_it_says() -> None:
    code, output = re.search(r"```python\n(.*?)```\n```\n(.*?)```", README, re.DOTALL).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README", "exec"), {})  # noqa: S102
    assert printed.getvalue() == output


def test_what_a_conversion_prints_is_what_the_docs_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from cruciform.cli.main import app

    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "howto" / "convert.md").read_text("utf-8")
    command, output = re.search(r"```\ncruciform (.*?)\n```\n.*?\n```\n(.*?)```", page, re.DOTALL).groups()
    assert CliRunner().invoke(app, command.split(), catch_exceptions=False).output == output


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_measured_numbers_are_those_recorded(path: Path) -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from numbers_in_texts import render

    text = path.read_text("utf-8")
    assert render(text) == text, "make numbers writes them anew"


def test_a_block_that_is_still_empty_leaves_what_follows_alone() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from numbers_in_texts import render

    block = "<!-- numbers\nnothing\n-->\n{}<!-- end -->\n"
    text = f"{block}\nbetween\n{block}"
    assert render(text.replace("{}", "")) == text.replace("{}", "nothing\n")


@pytest.mark.parametrize("path", FIGURES_IN, ids=lambda path: path.name)
def test_no_figure_is_typed(path: Path) -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from numbers_in_texts import BLOCK, REFERENCE

    text = BLOCK.sub(lambda block: REFERENCE.sub("", block[2]), path.read_text("utf-8"))
    text = NOT_TYPED.sub("", text)
    for allowed in DEFINITIONS:
        text = text.replace(allowed, "")
    assert not FIGURE.findall(text), "put it into a block that make numbers writes (benchmarks/numbers_in_texts.py)"


def test_the_page_of_coverage_is_that_of_its_results() -> None:
    from cruciform.coverage.examine import Finding
    from cruciform.coverage.summary import markdown, tally

    page = (ROOT / "docs" / "coverage.md").read_text("utf-8")
    findings = [
        Finding.from_dict(row) for row in json.loads((ROOT / "results" / "coverage.json").read_text("utf-8"))["details"]
    ]
    circumstances = re.search(r"--scheme lr`\. (.*)", page)[1]  # a date and versions
    assert markdown(tally(findings), findings, scheme="lr", circumstances=circumstances) == page


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*.json")), ids=lambda path: path.name)
def test_a_result_carries_what_is_needed_to_doubt_it(path: Path) -> None:
    result = json.loads(path.read_text("utf-8"))
    assert set(result) == {"summary", "command", "n", "date", "versions", "hardware", "details"}
    assert all(isinstance(value, int | float) for value in result["summary"].values())
    assert result["n"] >= 1


def test_every_test_that_keeps_a_promise_exists() -> None:
    files = (ROOT / "tests").rglob("*.py")
    there = {name for path in files for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))}
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "reliability.md").read_text("utf-8")))
    assert named
    assert not named - there
