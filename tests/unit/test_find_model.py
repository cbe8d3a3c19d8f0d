"""What may be typed for a network, and what is said where it is none of that."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cruciform.cli.main import app
from cruciform.cli.shared.network_lookup import open_typed
from cruciform.conversion.convert import convert
from cruciform.errors import UnknownNameError
from cruciform.models.zoo import create_model
from cruciform.store.directory import Base, save


@pytest.mark.parametrize(
    "command",
    [["report", "-o", "x.html"], ["filters"], ["profile"], ["doctor"], ["deploy", "-o", "x"], ["scale", "--network"]],
    ids=lambda command: command[0],
)
def test_a_name_that_is_nothing_is_refused_with_all_that_may_be_typed(command: list[str]) -> None:
    with pytest.raises(UnknownNameError) as refused:
        CliRunner().invoke(app, [*command, "nowhere"], catch_exceptions=False)
    for words in ("'nowhere'", "'cruciform models'", "timm:NAME", "runs/modern_cifar10", "'cruciform runs'",
                  "a directory that 'cruciform convert' wrote"):  # fmt: skip
        assert words in str(refused.value)


def test_a_model_directory_is_counted_and_diagnosed_like_a_name(tmp_path: Path) -> None:
    options = {"input_size": 16, "num_classes": 3}
    model, report = convert(create_model("nin", **options), "lr", input_size=(3, 16, 16))
    directory = str(save(model, tmp_path / "nin-lr", report, base=Base("zoo:nin", options)))
    shown = CliRunner().invoke(app, ["profile", directory], catch_exceptions=False).output
    assert f"{report.params_after:,} parameters" in shown
    assert CliRunner().invoke(app, ["doctor", directory, "--init", "paper-completed"]).exit_code in (0, 1)


def test_counting_a_network_by_name_takes_no_memory() -> None:
    assert all(weight.is_meta for weight in open_typed("vgg11", None, on_meta=True).model.parameters())
