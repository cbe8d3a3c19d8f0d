"""docs/paper.md says what the code counts."""

import re
import sys
from pathlib import Path

import pytest

from cruciform.models.model_card import published_rows

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "paper.md").read_text("utf-8")
TEMPLATE = ROOT / "docs" / "templates" / "paper.md.in"
sys.path.insert(0, str(ROOT / "benchmarks"))


@pytest.mark.slow
def test_the_tables_of_the_document_are_those_that_the_code_counts() -> None:
    from numbers_in_texts import render_file

    assert render_file(TEMPLATE) == TEXT, "make numbers renders docs/paper.md"
    for row in published_rows():
        assert f"| {row.network} | " in TEXT
        assert f" | {row.macs:,} |" in TEXT


def test_the_document_has_a_place_for_every_table_and_every_reading() -> None:
    called = re.findall(r'\{\{ paper_(\w+)\("?(\w*)"?\) \}\}', TEMPLATE.read_text("utf-8"))
    tables = {row.table for row in published_rows()}
    assert set(called) == {(kind, table) for table in tables for kind in ("counts", "readings")} | {("claims", "")}


def test_the_numbers_that_are_typed_are_right() -> None:
    rows = published_rows()
    assert f"**All {len(rows)} rows" in TEXT
    assert f"For {sum(row.status == 'explained' for row in rows)} of them" in TEXT


def test_a_place_for_nothing_known_is_refused() -> None:
    from numbers_in_texts import render

    with pytest.raises(SystemExit, match="the paper has no table 'vgg'; it has vgg_ilsvrc"):
        render('{{ paper_counts("vgg") }}')
