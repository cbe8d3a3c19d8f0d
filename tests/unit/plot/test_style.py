"""Pictures are refused before the work that they show, or written."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cruciform.cli.main import app
from cruciform.errors import OptionError
from cruciform.plot.style import new_figure, save_picture


@pytest.mark.parametrize(
    "words", ["doctor nin --plot", "filters nin -o", "race nin_cifar10 --plot", "evaluate x --plot"]
)
def test_an_ending_that_no_picture_has_is_refused_at_once(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cruciform.cli.shared.network_lookup.open_typed", None)  # nothing is looked for
    with pytest.raises(OptionError, match="picture.gif: a plot must end in .png, .svg, .pdf"):
        CliRunner().invoke(app, [*words.split(), "picture.gif"], catch_exceptions=False)


def test_the_folder_of_a_picture_is_made(tmp_path: Path) -> None:
    figure, _ = new_figure(2, 2)
    save_picture(figure, tmp_path / "new" / "picture.png")
    assert (tmp_path / "new" / "picture.png").stat().st_size > 1000
