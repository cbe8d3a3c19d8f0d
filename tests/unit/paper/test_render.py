"""Tables for documents, held against numbers of the paper."""

from dataclasses import replace

import pytest

from cruciform.paper.claims import CLAIMS, render_claims
from cruciform.paper.render import (
    PAPER_COLUMNS,
    by_table,
    latex_table,
    markdown_table,
    readings,
    render_latex,
    render_markdown,
)
from cruciform.paper.tables import CheckedRow, check_tables


@pytest.fixture(scope="module")
def rows() -> list[CheckedRow]:
    return list(check_tables())


def cells(table: str, network: str) -> list[str]:
    line = next(line for line in table.splitlines() if line.startswith(f"| {network} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_has_the_published_numbers_and_ours(rows: list[CheckedRow]) -> None:
    found = cells(markdown_table(by_table(rows)["vgg_ilsvrc"]), "gmp-lr")
    assert len(found) == len(PAPER_COLUMNS)
    assert found[:4] == ["gmp-lr", "67.61", "88.03", "2,518,134,440"]
    assert set(found[4:6]) == {"2,518,134,440"}
    assert set(found[6:]) == {"26,054,888"}


def test_numbers_that_are_not_the_published_ones_are_bold(rows: list[CheckedRow]) -> None:
    found = cells(markdown_table(by_table(rows)["places"]), "gmp")
    assert found[3:6] == ["1,877,109,674", "1,877,109,674", "**1,891,089,293**"]
    wrong = replace(rows[0], params=rows[0].params + 1)
    assert cells(markdown_table([wrong]), "vgg-11")[7] == "**132,863,337**"


def test_a_missing_top5_is_a_dash(rows: list[CheckedRow]) -> None:
    assert cells(markdown_table(by_table(rows)["nin_cifar10"]), "nin")[1:3] == ["91.88", "–"]


def test_latex_is_balanced_and_escaped(rows: list[CheckedRow]) -> None:
    text = latex_table(by_table(rows)["googlenet"], caption="100 % of a_b & c", label="table:x")
    assert r"\caption{100 \% of a\_b \& c}" in text
    assert text.count(r"\begin{") == text.count(r"\end{")
    assert text.count("{") == text.count("}")
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(lines) == 4
    assert {line.replace(r"\&", "").count("&") for line in lines} == {len(PAPER_COLUMNS) - 1}
    assert r"\textbf{1,582,680,152}" in text


def test_all_four_tables_are_there(rows: list[CheckedRow]) -> None:
    assert render_markdown(rows).count("## ") == 4
    assert render_latex(rows).count(r"\begin{table}") == 4


def test_every_row_that_needs_a_reading_has_one_with_its_thousands_separated(rows: list[CheckedRow]) -> None:
    text = readings(rows)
    assert len(text.splitlines()) == sum(row.published.status == "explained" for row in rows) == 11
    assert "9,947,887,976 / 37,371,368" in text
    assert "192,859,850 / 994,826: no saving" in text


def test_the_papers_percentages_are_worked_out_from_its_numbers(rows: list[CheckedRow]) -> None:
    text = render_claims(rows)
    assert len(text.splitlines()) == len(CLAIMS) + 2
    for number in (
        "75.8 %",
        "+2.53 points",
        "48.7 %",
        "33.5 %",
        "58.2 %",
        "86.4 %",
        "+1.37 points",
        "80.0 %",
        "45.3 %",
    ):
        assert number in text


@pytest.mark.slow
def test_the_command_prints_tables_for_documents() -> None:
    from typer.testing import CliRunner

    from cruciform.cli.main import app

    printed = CliRunner().invoke(app, ["paper", "tables", "--format", "latex"]).output
    assert printed.startswith(r"\begin{table}")
    assert CliRunner().invoke(app, ["paper", "tables", "--format", "word"]).exit_code == 2
