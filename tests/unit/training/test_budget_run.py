"""A trained run is budgeted and deployed like a network by name, in Python and on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import cruciform
from cruciform.budgets import survey
from cruciform.budgets.costs import CostTable, Kind, LayerCost
from cruciform.cli.main import app
from cruciform.deployment.search.clock import Timing
from cruciform.errors import ConversionError
from cruciform.schemes import make_plan


@pytest.fixture(autouse=True)
def known_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times that need no engine: as many nanoseconds as MACs."""

    def measure(kind: Kind, schemes: object, *words: object, on_progress: object) -> CostTable:
        macs = {name: make_plan(kind.spec, name).macs_from_input(kind.input_size[1:]) for name in ("full", "lr-join")}
        return CostTable({name: LayerCost(1e-9 * n, "tail" * (name != "full")) for name, n in macs.items()}, {})

    def times(networks: object, setting: object) -> dict[str, Timing]:
        return {"dense": Timing((8e-4,)), "chosen": Timing((4e-4,))}

    monkeypatch.setattr(survey, "measure_kind", measure)
    monkeypatch.setattr(survey, "time_network", times)
    monkeypatch.setattr("cruciform.budgets.network_time.time_network", times)


@pytest.mark.slow
def test_a_run_is_budgeted_in_python(dense: Path, tmp_path: Path) -> None:
    opened = cruciform.open_network(dense)
    result = cruciform.budget(dense, {"macs": "80%"}, target="torch")
    assert result.plan.mapping
    assert all(row.residual is not None for row in result.conversion.report.layers if row.plan)  # fitted, not drawn
    found = cruciform.open_network(result.save(tmp_path / "out"))
    assert (found.input_size, found.classes, found.trained) == (opened.input_size, opened.classes, True)
    assert found.preprocessing == opened.preprocessing
    with pytest.raises(ConversionError, match="is converted already"):
        cruciform.budget(tmp_path / "out", {"macs": "80%"}, target="torch")


@pytest.mark.slow
def test_a_run_is_budgeted_on_the_command_line(dense: Path, tmp_path: Path) -> None:
    words = ["budget", str(dense), "--budget", "macs=80%", "--budget", "95%", "--target", "torch"]
    done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "out")], catch_exceptions=False)
    assert done.exit_code == 0
    assert "interleaved with the dense network's" in done.output
    assert set(json.loads((tmp_path / "out" / "budget.json").read_text())["budgets"]) == {"MACs", "seconds"}
    assert cruciform.load(tmp_path / "out")(torch.zeros(1, 3, 32, 32)).shape[0] == 1


@pytest.mark.slow
def test_a_run_is_deployed(dense: Path) -> None:
    options = cruciform.DeployOptions(rounds=1, search_seconds=0)
    artifact = cruciform.deploy(dense, target="torch", options=options)
    images = np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype(np.float32)
    with torch.no_grad():
        expected = cruciform.open_network(dense).model.eval()(torch.from_numpy(images)).numpy()
    assert np.allclose(artifact(images), expected, atol=1e-4)
    assert artifact.report["classes"] == list(cruciform.open_network(dense).classes or ())
