"""docs/paper.md says what the code counts."""

from pathlib import Path

import pytest

from cruciform.errors import OptionError
from cruciform.models.model_card import published_rows
from cruciform.paper.document import PLACE, render_document
from cruciform.paper.tables import check_tables

TEXT = (Path(__file__).parents[2] / "docs" / "paper.md").read_text("utf-8")


def test_the_tables_of_the_document_are_those_that_the_code_counts() -> None:
    assert render_document(TEXT, list(check_tables())) == TEXT, "make numbers writes them anew"


def test_the_document_has_a_place_for_every_table_and_every_reading() -> None:
    places = {place[2] for place in PLACE.finditer(TEXT)}
    tables = {row.table for row in published_rows()}
    assert places == {f"{kind} {table}" for table in tables for kind in ("table", "readings")} | {"claims"}


def test_the_numbers_that_are_typed_are_right() -> None:
    rows = published_rows()
    assert f"**All {len(rows)} rows" in TEXT
    assert f"For {sum(row.status == 'explained' for row in rows)} of them" in TEXT


def test_a_place_for_nothing_known_is_refused() -> None:
    with pytest.raises(OptionError, match="a text has a place for 'paper table vgg'; write table or readings with one"):
        render_document("<!-- paper table vgg -->\n<!-- end paper -->", list(check_tables()))
