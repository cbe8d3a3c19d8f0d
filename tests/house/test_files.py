from pathlib import Path

import cruciform

PACKAGE = Path(cruciform.__file__).parent
ROOT = Path(__file__).parents[2]
FILES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")])


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert not {name: length for name, length in lengths.items() if length > 400}


def test_user_input_is_never_checked_by_assert() -> None:
    lines = [(path.name, line) for path in PACKAGE.rglob("*.py") for line in path.read_text("utf-8").splitlines()]
    assert len(lines) > 10_000  # the package was found
    assert not [(name, line) for name, line in lines if line.lstrip().startswith("assert ")]


def test_the_exception_tree_is_drawn_as_it_is() -> None:
    from cruciform import errors

    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.CruciformError):
            assert name in (errors.__doc__ or "")
