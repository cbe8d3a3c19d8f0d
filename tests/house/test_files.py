from pathlib import Path

import pytest

import cruciform

PACKAGE = Path(cruciform.__file__).parent
ROOT = Path(__file__).parents[2]
FILES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_is_longer_than_400_lines(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_user_input_is_never_checked_by_assert(path: Path) -> None:
    assert not [line for line in path.read_text("utf-8").splitlines() if line.lstrip().startswith("assert ")]


def test_the_exception_tree_is_drawn_as_it_is() -> None:
    from cruciform import errors

    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.CruciformError):
            assert name in (errors.__doc__ or "")
