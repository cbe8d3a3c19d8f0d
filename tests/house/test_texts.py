"""What the texts say must hold: links, code, commands, numbers."""

import contextlib
import io
import json
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from numbers_in_texts import REFERENCE, generated, render, render_file  # noqa: E402

TEXTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
README = (ROOT / "README.md").read_text("utf-8")
BY_COMMAND = ROOT / "docs" / "coverage.md"  # written by `cruciform coverage`
# What people edit: templates, and texts that have none.
SOURCES = sorted({*generated().values(), *(ROOT / "docs").rglob("*.md")} - {*generated(), BY_COMMAND})
NOT_TYPED = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)  # code
FIGURE = re.compile(r"\d+\.\d+|\d+ ?%|\d{1,3}(?:,\d{3})+")
JINJA = re.compile(r"\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)
APART = re.compile(rf"(?<![\w.-])(?:{FIGURE.pattern})(?![\w-])")  # in a loop, but not in the name of a result
# Figures that nobody measured: names, tolerances, what a test does, and what others published.
DEFINITIONS = (
    "Apache-2.0", "arXiv:1511.06744", "SqueezeNet 1.1", "top-5 %", "do not win by 1 %", "must win by 1 %",
    "0.1 in int8",
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
    code, output = re.search(r"```python\n((?:(?!```).)*)```\n```\n(.*?)```", README, re.DOTALL).groups()
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


@pytest.mark.parametrize("path", generated(), ids=lambda path: path.name)
def test_measured_numbers_are_those_recorded(path: Path) -> None:
    assert render_file(generated()[path]) == path.read_text("utf-8"), "make numbers renders it"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_a_text_says_in_its_first_line_where_it_is_generated_from(path: Path) -> None:
    first = path.read_text("utf-8").partition("\n")[0]
    template = generated().get(path)
    if template is None:
        assert "templates/" not in first, "it has no template any more"
    else:
        assert f"Generated from {template.relative_to(ROOT).as_posix()} " in first


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_no_text_that_people_read_holds_a_template(path: Path) -> None:
    text = NOT_TYPED.sub("", path.read_text("utf-8"))
    assert "<!-- numbers" not in text
    assert not REFERENCE.findall(text)
    assert "{{" not in text
    assert "{%" not in text


def test_a_row_template_is_repeated_for_every_name() -> None:
    template = """| network | MACs |
|---|---|
{% for name in ["vgg11", "vgg11_gmp"] %}
| {{ name }} | {paper[table=vgg_ilsvrc,network={{ name }}].macs:,} |
{% endfor %}
end
"""
    assert render(template).splitlines()[2:] == ["| vgg11 | 7,609,101,992 |", "| vgg11_gmp | 7,508,438,696 |", "end"]


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{ingest.no_such_key:.2f}", "ingest has"),
        ("{paper[network=nothing].macs:,}", "0 rows of paper match, expected one"),
        ("{paper[table=vgg_ilsvrc].macs:,}", "8 rows of paper match, expected one"),
    ],
)
def test_a_reference_to_nothing_is_refused(template: str, says: str) -> None:
    with pytest.raises(SystemExit, match=says):
        render(template)


def test_a_name_that_no_loop_defines_is_refused() -> None:
    with pytest.raises(UndefinedError):
        render("| {{ schme }} |")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_figure_is_typed(path: Path) -> None:
    assert not typed_figures(path.read_text("utf-8")), "write a reference that make numbers resolves, in a template"


@pytest.mark.parametrize("figure", ["0.896", "34 %", "34%", "7,508,438,696"])
def test_a_figure_that_is_typed_into_a_template_is_found(figure: str) -> None:
    template = (ROOT / "docs" / "templates" / "deploy.md.in").read_text("utf-8")
    assert typed_figures(f"{template}\nIt reaches {figure} here.\n") == [figure]
    loop = '{% for name in ["it reaches FIGURE"] %}\n{{ name }}\n{% endfor %}\n'.replace("FIGURE", figure)
    assert typed_figures(template + loop) == [figure]


def typed_figures(template: str) -> list[str]:
    """Returns the figures of a template, or of a text without one, that no generator wrote."""
    for allowed in DEFINITIONS:
        template = template.replace(allowed, "")
    in_loops = [figure for code in JINJA.findall(template) for figure in APART.findall(NOT_TYPED.sub("", code))]
    text = NOT_TYPED.sub("", REFERENCE.sub("", JINJA.sub("x", template)))
    return in_loops + FIGURE.findall(text)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_a_table_has_at_most_six_columns(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    wide = [line for line in text.splitlines() if re.fullmatch(r"\|(?:\s*:?-+:?\s*\|){7,}", line)]
    assert not wide


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


@pytest.mark.parametrize(("name", "most"), [("README.md", 150), ("ARCHITECTURE.md", 110), ("CONTRIBUTING.md", 120)])
def test_a_text_of_the_root_is_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_text("utf-8").splitlines()) <= most


def test_an_entry_of_the_changelog_is_one_line() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
    assert "### Numbers" in lines
    assert all(re.match(r"#|- ", line) for line in lines if line), "an entry is one line that starts with '- '"
    assert not [line for line in lines if len(line) > 240], "details are in the commit"


def test_the_readmes_drawing_is_what_its_script_draws() -> None:
    from cross_picture import PICTURE, draw

    assert draw() == PICTURE.read_text("utf-8")


def test_the_readme_pairs_speed_and_accuracy_and_states_its_limits() -> None:
    assert "| MACs | training | inference | accuracy: dense → converted |" in README
    for said in ("narrower dense network of the same cost", "CPU only so far", "Train or fine-tune", "depthwise"):
        assert said in README


def commands() -> list[tuple[str, str]]:
    """Returns every command of README and docs that is printed as code, with the file it is in."""
    found = []
    for path in TEXTS:
        text = path.read_text("utf-8")
        fenced = [line for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
        inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        for line in [*fenced, *inline]:
            command = re.fullmatch(r"(?:\w+=\S+ )*cruciform (\w+ [^#…]*?)(?:\s*#.*)?", line)
            if command:
                found.append((path.name, command[1]))
    return found


@pytest.mark.parametrize(("name", "command"), commands())
def test_a_command_of_the_texts_has_flags_that_exist(name: str, command: str) -> None:
    import typer

    from cruciform.cli.main import app

    words = shlex.split(command)
    found: Any = typer.main.get_command(app)
    while hasattr(found, "commands"):
        found = found.commands[words.pop(0)]
    found.make_parser(found.context_class(found, info_name=name)).parse_args(args=words)  # raises NoSuchOption


def test_there_are_many_commands_in_the_texts() -> None:
    assert len(commands()) > 80


def test_the_recipe_that_the_docs_show_is_one(tmp_path: Path) -> None:
    from cruciform.training.recipe.cookbook import load_recipe

    (shown,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "training.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "shown.toml").write_text(shown)
    assert load_recipe(str(tmp_path / "shown.toml")).optimizer.lr == 0.05


@pytest.mark.parametrize(("name", "command"), [one for one in commands() if " --set " in one[1]])
def test_an_override_of_the_texts_names_a_key_of_its_recipe(name: str, command: str) -> None:
    from cruciform.training.recipe.cookbook import list_recipes, load_recipe

    words = shlex.split(command)
    changes = [word for flag, word in pairwise(words) if flag == "--set" and "model.name=" not in word]
    recipe = words[1] if words[1] in list_recipes() else "modern_cifar10"
    load_recipe(recipe, [change.replace("$PWD", "/data") for change in changes])
