"""Which weights the doctor takes for trained: it judges starting points only."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from cruciform.cli.main import app
from cruciform.conversion.convert import Conversion, convert
from cruciform.models.zoo import create_model
from cruciform.store.directory import REPORT, Base, save
from cruciform.store.trained_weights import holds_trained_weights

SHIPPED = str(Path(__file__).parents[2] / "models" / "cifar_fast_cross")
OPTIONS = {"input_size": 16, "num_classes": 3}


def converted(init: str) -> Conversion:
    torch.manual_seed(0)
    return convert(create_model("nin", **OPTIONS), "lr-join", init=init, input_size=(3, 16, 16))


def doctor(*arguments: str) -> tuple[int, dict[str, object]]:
    result = CliRunner().invoke(app, ["doctor", *arguments, "--json"], catch_exceptions=False)
    return result.exit_code, json.loads(result.output)


def test_the_shipped_network_gets_no_verdict_and_exit_code_0() -> None:
    code, said = doctor(SHIPPED)
    assert (code, said["trainable"], said["advice"]) == (0, None, "")
    assert str(said["verdict"]).startswith("no verdict: the weights are trained")


def test_a_trained_network_that_is_initialized_again_is_a_start_again() -> None:
    code, said = doctor(SHIPPED, "--init", "pytorch")
    assert said["trainable"] is not None
    assert code == (0 if said["trainable"] else 1)


def test_a_converted_network_without_norms_is_judged_as_long_as_nobody_has_trained_it(tmp_path: Path) -> None:
    model, report = converted("pytorch")
    directory = save(model, tmp_path / "start", report, base=Base("zoo:nin", OPTIONS))
    code, said = doctor(str(directory))
    assert (code, said["verdict"]) == (1, "untrainable: the gradient vanishes")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)  # as training does, it takes weights beyond what the rule draws
    trained = save(model, tmp_path / "trained", report, base=Base("zoo:nin", OPTIONS))
    code, said = doctor(str(trained))
    assert (code, said["trainable"]) == (0, None)


@pytest.mark.parametrize("init", ["paper-completed", "paper-literal", "per-group", "pytorch", "identity"])
def test_a_start_is_known_as_one_and_a_step_of_training_is_seen(init: str, tmp_path: Path) -> None:
    model, report = converted(init)
    directory = save(model, tmp_path / "model", report, base=Base("zoo:nin", OPTIONS))
    assert not holds_trained_weights(directory, model)
    optimizer = torch.optim.AdamW(model.parameters(), 0.05)
    nn.functional.cross_entropy(model(torch.randn(4, 3, 16, 16)), torch.tensor([0, 1, 2, 0])).backward()
    optimizer.step()
    assert holds_trained_weights(directory, model)


def test_weights_are_taken_for_trained_where_no_report_names_the_rule_that_drew_them(tmp_path: Path) -> None:
    model, report = converted("paper-completed")
    directory = save(model, tmp_path / "model", report, base=Base("zoo:nin", OPTIONS))
    for text in ('{"init": null}', '{"init": "fit"}', '{"init": ["x"]}', "[]", "{"):
        (directory / REPORT).write_text(text)
        assert holds_trained_weights(directory, model)
    (directory / REPORT).unlink()
    assert holds_trained_weights(directory, model)
