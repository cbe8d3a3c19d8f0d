import pytest

from cruciform.words import plural, short_names, text_table


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
