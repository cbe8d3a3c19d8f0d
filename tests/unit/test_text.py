import json

import pytest

from cruciform.text.escapes import printable, printable_json
from cruciform.text.text_tables import html_table, text_table
from cruciform.text.wording import plural, short_names


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 threads"), (1, "1 thread"), (2, "2 threads"), (12_000, "12,000 threads")]
)
def test_one_thread_is_no_threads(number: int, text: str) -> None:
    assert plural(number, "thread") == text


def test_a_noun_may_have_a_plural_of_its_own() -> None:
    assert plural(3, "class", "classes") == "3 classes"


def test_a_table_has_text_on_the_left_and_numbers_that_end_below_one_another() -> None:
    assert text_table(("layer", "ms"), [("a", "1.5"), ("features", "10.25")]) == (
        "layer        ms\n--------  -----\na           1.5\nfeatures  10.25"
    )
    assert text_table(("layer", "ms"), []) == "layer  ms\n-----  --"


def test_names_are_shortened_by_what_all_of_them_begin_with() -> None:
    assert short_names(["features.conv1", "features.conv2"]) == ["conv1", "conv2"]
    assert short_names(["a.b.convs.0", "a.c.convs.0"]) == ["b.convs.0", "c.convs.0"]
    assert short_names(["whiten", "blocks.block1.convs.0"]) == ["whiten", "blocks.block1.convs.0"]
    assert short_names(["a.conv", "a.conv"]) == ["conv", "conv"]
    assert short_names([]) == []


ORDERS = {
    "\x1b[2J": r"\x1b[2J",
    "a\nerror: b": r"a\nerror: b",
    "\r\t\x7f\x9b": r"\r\t\x7f\x9b",
    "\u202egnp.exe": r"\u202egnp.exe",
    "\u2066\u2069\u200e\u200f\u061c": r"\u2066\u2069\u200e\u200f\u061c",
    "\u200b\u2028\ufeff": r"\u200b\u2028\ufeff",
    "\U000e0041": r"\U000e0041",
    "\udcff": r"\udcff",
}


@pytest.mark.parametrize(("text", "shown"), ORDERS.items(), ids=list(ORDERS.values()))
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


@pytest.mark.parametrize("text", ["cat", "café, 漢字", "مرحبا", "🐈 – Ω", "a\u00a0b\u3000c", ""])
def test_letters_of_all_scripts_stay(text: str) -> None:
    assert printable(text) == text
    assert json.loads(printable_json(text)) == text
    assert text in printable_json([text], indent=2)


@pytest.mark.parametrize("text", ORDERS, ids=list(ORDERS.values()))
def test_json_without_orders_says_the_same(text: str) -> None:
    written = printable_json({text: [text]}, indent=2)
    assert json.loads(written) == {text: [text]}
    assert written.replace("\n", "").isprintable()


def test_html_tables_escape_every_text() -> None:
    text = html_table(("a<b", "n"), [("<script>", "1")], caption="<i>", notes=["<p>"])
    assert "<script>" not in text
    assert "<i>" not in text
    assert text.count("&lt;") == 4
    assert '<td style="text-align:right">1</td>' in text
