import pytest

from cruciform.words import plural, text_table


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
