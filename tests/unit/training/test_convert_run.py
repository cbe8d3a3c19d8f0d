"""What was trained is converted, counted and diagnosed like a network by name, in Python and on the command line."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import cruciform
from cruciform.cli.main import app
from cruciform.conversion.convert import converted_plans
from cruciform.errors import ConversionError


def test_a_run_is_converted_in_python(dense: Path, tmp_path: Path) -> None:
    opened = cruciform.open_network(dense)
    fitted, report = cruciform.convert(opened, "lr-join", init="fit")
    assert report.replaced
    assert report.macs_after < report.macs_before == cruciform.profile(dense).macs
    assert not converted_plans(opened.model)  # a copy was converted
    assert all(row.residual is not None for row in report.layers if row.plan)
    cruciform.save(fitted, tmp_path / "fitted", report, base=opened)
    found = cruciform.open_network(tmp_path / "fitted")
    assert (found.input_size, found.classes, found.trained) == (opened.input_size, opened.classes, True)
    assert found.preprocessing == opened.preprocessing
    images = torch.randn(2, *found.input_size)
    torch.testing.assert_close(found.model.eval()(images), fitted.eval()(images))


def test_what_a_run_has_learned_is_diagnosed_without_a_verdict(dense: Path) -> None:
    assert cruciform.diagnose(dense).trainable is None
    assert cruciform.plan_conversion(dense, "lr").input_size == (3, 32, 32)


def test_a_run_is_converted_on_the_command_line(dense: Path, tmp_path: Path) -> None:
    output = tmp_path / "lr"
    done = CliRunner().invoke(app, ["convert", str(dense), "-o", str(output)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "the trained weights of replaced layers are lost; --init fit starts from them" in done.output
    assert converted_plans(cruciform.load(output))
    for again in (output, str(output)):
        with pytest.raises(ConversionError, match=r"lr is converted already: \d of its layers are made of basis filt"):
            cruciform.convert(again)
    with pytest.raises(ConversionError, match="is converted already"):
        CliRunner().invoke(app, ["convert", str(output)], catch_exceptions=False)


def test_a_dense_model_directory_is_converted(dense: Path, tmp_path: Path) -> None:
    opened = cruciform.open_network(dense)
    kept = cruciform.convert(opened, "full")
    assert not kept.report.replaced
    directory = cruciform.save(kept.model, tmp_path / "dense", kept.report, base=opened)
    assert cruciform.convert(directory, "lr", init="fit").report.replaced


def test_a_network_without_trained_weights_has_nothing_to_fit() -> None:
    with pytest.raises(ConversionError, match="nin is built without trained weights, so there is nothing to fit"):
        cruciform.convert("nin", "lr", init="fit")
