"""A trained network compressed as a whole: chosen, fitted, reported, saved, resumed."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import cruciform
from cruciform.cli.main import app
from cruciform.compression.compress import CompressionOptions, Compressor
from cruciform.compression.compression_result import Compression
from cruciform.compression.fitting.measured_rise import Probe, take_probes
from cruciform.compression.predicted_rise import RiseValuation
from cruciform.compression.rank_candidates import list_rank_candidates
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.search.layer_forms import Form
from cruciform.deployment.targets.target import TARGETS
from cruciform.errors import BudgetError, ConversionError, CruciformError, OptionError
from cruciform.spec import ConvSpec
from cruciform.store.directory import Base

Networks = Mapping[str, tuple[nn.Module, Mapping[str, Form]]]
SIZE = (3, 12, 12)
LIMITS = {"macs": "60%"}
OPTIONS = cruciform.CompressOptions(rounds=1)


def smooth_images(count: int = 64, seed: int = 0) -> Tensor:
    made = torch.randn(count, *SIZE, generator=torch.Generator().manual_seed(seed))
    return nn.functional.avg_pool2d(made, 5, 1, 2) * 5


@pytest.fixture
def trained() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 24, 3, padding=1, stride=2), nn.ReLU(),
        nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 5),
    ).eval()  # fmt: skip


@pytest.fixture
def real_engines() -> None:
    """Let a test measure its times in the engines themselves."""


@pytest.fixture(autouse=True)
def slower(request: pytest.FixtureRequest) -> list[float]:
    """Count times, except where a test asks for real engines."""
    if "real_engines" in request.fixturenames:
        return [1.0]
    factor: list[float] = request.getfixturevalue("counted_times")
    return factor


def difference(model: nn.Module, original: nn.Module) -> float:
    x = smooth_images(seed=1)
    with torch.no_grad():
        y = original(x)
        return float((model(x) - y).square().sum() / (y - y.mean(0)).square().sum())


def test_it_keeps_what_the_network_computes(trained: nn.Module) -> None:
    found = cruciform.compress(
        trained,
        smooth_images(),
        LIMITS,
        target="onnxruntime",
        evaluate=lambda model: -difference(model, trained),
        options=OPTIONS,
    )
    plan = found.report.compressed.plan
    assert plan.predicted["MACs"] <= 0.6 * plan.dense["MACs"]
    by_weights = cruciform.convert(trained, plan.mapping, init="fit", input_size=SIZE).model.eval()
    assert difference(found.model, trained) < 0.5 * difference(by_weights, trained)
    assert found.report.before == 0
    assert found.report.after == pytest.approx(-difference(found.model, trained))
    text = str(found)
    assert "evaluation" in text
    assert "raises the output error by" in text
    assert all(name in text for name in plan.mapping)


@pytest.mark.slow
def test_a_larger_budget_is_predicted_and_found_to_lose_less(trained: nn.Module) -> None:
    found = [
        cruciform.compress(trained, smooth_images(), {"macs": share}, target="onnxruntime", options=OPTIONS)
        for share in ("40%", "80%")
    ]
    rises = [one.report.compressed.rise for one in found]
    losses = [difference(one.model, trained) for one in found]
    assert rises[0] > rises[1]
    assert losses[0] > losses[1]


def test_a_network_slower_than_its_layers_is_chosen_smaller(trained: nn.Module, slower: list[float]) -> None:
    slower[0] = 1.15
    found = cruciform.compress(trained, smooth_images(), "60%", options=OPTIONS).report.compressed
    assert found.seconds <= 0.6 * found.dense_seconds
    assert found.plan.predicted["seconds"] <= 0.6 / 1.15 * found.plan.dense["seconds"] * 1.02


@pytest.mark.slow
@pytest.mark.usefixtures("real_engines")
def test_the_measured_time_is_what_was_asked_for(trained: nn.Module) -> None:
    wide = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5),
    )  # fmt: skip
    options = cruciform.CompressOptions(rounds=3, protect=["0"])
    found = cruciform.compress(wide, smooth_images(), "75%", options=options)
    assert found.report.compressed.seconds <= 0.8 * found.report.compressed.dense_seconds
    assert "was measured" in str(found)


def test_it_is_saved_with_its_report_and_loads_again(trained: nn.Module, tmp_path: Path) -> None:
    found = cruciform.compress(trained, smooth_images(), LIMITS, target="onnxruntime", options=OPTIONS)
    found.save(tmp_path / "small")
    page = (tmp_path / "small" / "compression.html").read_text("utf-8")
    assert "Before and after" in page
    assert "<script" not in page
    data = json.loads((tmp_path / "small" / "compression.json").read_text("utf-8"))
    assert data["seconds"] > 0
    assert len(data["layers"]) == len(found.report.compressed.plan.mapping)
    again = cruciform.load(tmp_path / "small", nn.Sequential(*trained)).eval()
    x = smooth_images(4, seed=2)
    with torch.no_grad():
        torch.testing.assert_close(again(x), found.model(x))


@pytest.mark.slow
def test_stopped_while_fitting_it_resumes_to_the_same_bits(
    trained: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs: list[int] = []

    def counted(*given: object) -> list[Probe]:
        inputs.append(given[-1])
        return take_probes(*given)

    monkeypatch.setattr("cruciform.compression.fitting.fit_network.take_probes", counted)

    def run(state: Path | None, stop_after: str | None = None) -> nn.Module:
        def on_progress(what: str) -> None:
            if stop_after and what.startswith(stop_after):
                raise KeyboardInterrupt

        options = cruciform.CompressOptions(rounds=1, state=state, on_progress=on_progress)
        return cruciform.compress(trained, smooth_images(), LIMITS, target="onnxruntime", options=options).model

    whole = run(None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cruciform.compression.compression_state.EVERY", -1.0)  # write after every layer
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "state", "fitted layer 2 ")
    kept = json.loads((tmp_path / "state" / "layers.json").read_text("utf-8"))["value"]["layers"]
    assert len(kept) == 1  # the second was announced before it was written
    fitted: list[str] = []
    options = cruciform.CompressOptions(rounds=1, state=tmp_path / "state", on_progress=fitted.append)
    resumed = cruciform.compress(trained, smooth_images(), LIMITS, target="onnxruntime", options=options).model
    assert inputs[0] == inputs[-1]  # corrections are tried on as many as in one go, though fewer layers are left
    assert not any(what.startswith("fitted layer 1 ") for what in fitted)
    assert not any(what.startswith("candidates of layer") for what in fitted)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


@pytest.mark.slow
def test_a_state_of_other_weights_is_not_used(trained: nn.Module, tmp_path: Path) -> None:
    options = cruciform.CompressOptions(rounds=1, state=tmp_path / "state")
    cruciform.compress(trained, smooth_images(), LIMITS, target="onnxruntime", options=options)
    with torch.no_grad():
        trained.get_parameter("2.weight").mul_(1.5)
    done: list[str] = []
    options = cruciform.CompressOptions(rounds=1, state=tmp_path / "state", on_progress=done.append)
    cruciform.compress(trained, smooth_images(), LIMITS, target="onnxruntime", options=options)
    assert "candidates of layer 1 of 3" in done


@pytest.mark.slow
def test_another_block_keeps_the_candidates_and_fits_anew(trained: nn.Module, tmp_path: Path) -> None:
    said: list[list[str]] = []
    for block in (1, 3):
        said.append([])
        options = cruciform.CompressOptions(
            rounds=1, block=block, state=tmp_path / "state", on_progress=said[-1].append
        )
        cruciform.compress(trained, smooth_images(), LIMITS, target="onnxruntime", options=options)
    assert "candidates of layer 1 of 3" in said[0]
    assert not any(what.startswith("candidates") for what in said[1])
    assert any(what.startswith("fitted") for what in said[1])


def test_wrong_inputs_are_refused_with_what_to_do(trained: nn.Module) -> None:
    with pytest.raises(OptionError, match="comes without images: give a folder"):
        cruciform.compress("nin")
    with pytest.raises(ConversionError, match="is converted already"):
        cruciform.compress("nin_c3_lr", torch.zeros(2, 3, 32, 32))
    with pytest.raises(OptionError, match=r"have shape \(3, 8, 8\)"):
        cruciform.compress("nin", torch.zeros(2, 3, 8, 8), target="onnxruntime")
    with pytest.raises(BudgetError, match="can't be met"):
        cruciform.compress(trained, smooth_images(), {"macs": "1%"}, target="onnxruntime", options=OPTIONS)


def test_a_layer_that_no_gradient_reaches_stays_dense() -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 16, 3, padding=1)
            self.cut, self.reached = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)  # of one kind

        def forward(self, x: Tensor) -> Tensor:
            return self.reached(self.cut(self.stem(x)).detach()).mean((2, 3))

    setting = EngineSettings(TARGETS.get("onnxruntime"), SIZE, rounds=1)
    options = CompressionOptions()
    compressor = Compressor(Cut().eval(), smooth_images(8), setting, Path("unused"), options)
    valuation = compressor.survey.valuation
    assert isinstance(valuation, RiseValuation)
    assert set(valuation.rises) == {"reached"}
    options = {layer.name: [option.name for option in layer.options] for layer in compressor.survey.layers}
    assert options["cut"] == ["full"]  # though the other layer of its kind has measured candidates
    assert len(options["reached"]) > 1
    assert "cut stays dense: no gradient reaches it" in compressor.survey.problems
    assert any(problem.endswith("fewer MACs and no larger error") for problem in compressor.survey.problems)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe with as little data as CIFAR-10's files allow."""
    numbers = np.random.default_rng(0)
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        records = numbers.integers(0, 256, (32, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        (tmp_path / f"{name}.bin").write_bytes(records.tobytes())
    path = tmp_path / "recipe.toml"
    path.write_text(
        f"""epochs = 9
batch_size = 16
model = {{name = "nin"}}
data = {{kind = "cifar10", path = "{tmp_path}", threads = 1, mean = [120.0], std = [60.0]}}
optimizer = {{kind = "sgd", lr = 0.1, lr_mult = {{"features.conv1.weight" = 2.0}}}}
ema = 0.9
log = {{tensorboard = false}}
""",
        "utf-8",
    )
    return path


def for_cifar() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(16, 24, 3, padding=1, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10),
    ).eval()  # fmt: skip


@pytest.mark.slow
def test_it_is_tuned_by_labels_and_the_original_and_resumes(recipe: Path, tmp_path: Path) -> None:
    original = for_cifar()
    opened = replace(cruciform.open_network("nin"), model=original, origin="module")

    def run(state: Path, stop_at: str = "never") -> Compression:
        def on_progress(what: str) -> None:
            if what.startswith(stop_at):
                raise KeyboardInterrupt

        options = cruciform.CompressOptions(32, rounds=1, finetune=2, state=state, on_progress=on_progress)
        return cruciform.compress(opened, recipe, {"macs": "60%"}, options=options)

    whole = run(tmp_path / "whole")
    assert [stage.name for stage in whole.report.stages] == ["original", "fitted", "fine-tuned"]
    assert "fine-tuned in" in str(whole)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", "fine-tuning: step 3,")
    resumed = run(tmp_path / "stopped").model.state_dict()
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.model.state_dict().items())
    tuned_run = next((tmp_path / "stopped").glob("tuned-*"))
    kept = cruciform.load_recipe(tuned_run)
    assert (kept.epochs, kept.ema, kept.optimizer.lr_mult) == (2, None, {})
    assert kept.optimizer.lr == pytest.approx(0.01)
    assert kept.distill is not None


@pytest.mark.slow
def test_tuning_that_makes_it_worse_is_undone_and_said(recipe: Path) -> None:
    opened = replace(cruciform.open_network("nin"), model=for_cifar(), origin="module")
    said = iter([0.9, 0.8, 0.7])
    options = cruciform.CompressOptions(16, rounds=1, finetune=1)
    found = cruciform.compress(opened, recipe, {"macs": "90%"}, evaluate=lambda model: next(said), options=options)
    assert [stage.kept for stage in found.report.stages] == [True, True, False]
    assert found.report.after == 0.8
    assert "fine-tuned is not in the result: it made the evaluation worse" in str(found)


def test_tuning_without_labels_is_refused(trained: nn.Module) -> None:
    options = cruciform.CompressOptions(finetune=1)
    with pytest.raises(OptionError, match="needs labels: give a recipe or a run"):
        cruciform.compress(trained, smooth_images(), "60%", options=options)


def test_candidates_save_weights_and_are_whole_blocks() -> None:
    found = list_rank_candidates(ConvSpec(64, 128, (3, 3), padding=1))
    ranks = {
        family: [int(one.split("=")[1]) for one in found if one.startswith(f"{family}:")] for family in ("sf", "thin")
    }
    for family, largest in (("sf", 64 * 128 * 9 / (3 * (64 + 128))), ("thin", 64 * 128 * 9 / (64 * 9 + 128))):
        assert all(rank % 8 == 0 for rank in ranks[family])
        assert max(ranks[family]) < largest
        assert min(ranks[family]) == 8
    assert list_rank_candidates(ConvSpec(64, 128, (1, 1))) == []
    assert list_rank_candidates(ConvSpec(64, 64, (3, 3), groups=64)) == []


def test_what_another_candidate_clearly_beats_is_not_timed() -> None:
    spec = ConvSpec(64, 64, (3, 3), padding=1)
    rises = {"full": 0.0, "sf:rank=16": 3.0, "sf:rank=32": 1.0, "thin:rank=16": 2.9, "lr-join": 1.5, "sf:rank=40": 0.9}
    found = RiseValuation(rises={"a": rises}).candidates_of("a", spec)
    assert "lr-join" not in found  # more MACs and more error than rank 32
    assert found == ["sf:rank=16", "sf:rank=32", "thin:rank=16", "sf:rank=40"]
    assert RiseValuation(rises={"a": rises}).candidates_of("b", spec) == []


@pytest.mark.slow
@pytest.mark.usefixtures("real_engines")
def test_the_command_writes_a_network_and_removes_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    folder = tmp_path / "photos"
    folder.mkdir()
    for number, image in enumerate(smooth_images(6)):
        pixels = ((image.movedim(0, -1) * 40 + 128).clamp(0, 255)).byte().numpy()
        Image.fromarray(pixels).resize((40, 40)).save(folder / f"{number}.png")
    dense = cruciform.create_model("cifar_fast", widths=[8, 8, 8]).eval()
    table = cruciform.plan_conversion(dense, "full", input_size=(3, 32, 32))
    base = Base("cifar_fast", {"widths": [8, 8, 8]})
    preprocessing = {
        "data": {"short_side": 32, "mean": [125.0], "std": [60.0]},
        "eval_transforms": [{"kind": "center-crop", "size": 32}],
    }
    cruciform.save(dense, tmp_path / "dense", table, base=base, preprocessing=preprocessing)
    monkeypatch.chdir(tmp_path)
    arguments = (
        "compress dense --data photos --images 6 --budget macs=80% --target onnxruntime --rounds 1 -o small --json"
    )
    result = CliRunner().invoke(app, arguments.split())
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["images"] == 6
    assert (tmp_path / "small" / "compression.html").is_file()
    assert not (tmp_path / "small.state").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("real_engines")
def test_in_int8_what_is_faster_ships_and_is_evaluated_as_it_runs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    wide = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ).eval()  # fmt: skip

    def evaluate(model: nn.Module) -> float:
        with torch.no_grad():
            return float(model(smooth_images()[:3]).std())

    options = cruciform.CompressOptions(rounds=3, int8=tmp_path / "int8")
    found = cruciform.compress(wide, smooth_images(), {"macs": "40%"}, evaluate=evaluate, options=options)
    int8, after = found.report.quantized, found.report.after
    assert int8 is not None
    assert after is not None
    assert int8.artifact.target == "onnxruntime-int8"
    assert int8.stage.evaluation == pytest.approx(after, rel=0.2)
    assert int8.stage.evaluation != after  # it was evaluated in the engine
    shown = str(found)
    assert "time in int8, measured" in shown
    assert ("the original ships instead" in shown) != int8.pays
    assert found.report.to_dict()["int8"]["ships"] == ("compressed" if int8.pays else "original")
    assert cruciform.open_artifact(tmp_path / "int8")(smooth_images()[:1].numpy()).shape == (1, 10)
    found.save(tmp_path / "made")
    assert "time in int8" in (tmp_path / "made" / "compression.html").read_text("utf-8")


def test_an_engine_without_int8_and_a_directory_that_is_taken_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for target, place, message in (
        ("executorch", tmp_path / "new", "executorch has no int8 variant; engines that have one: .*onnxruntime-int8"),
        ("onnxruntime", tmp_path, "not a"),
    ):
        options = cruciform.CompressOptions(int8=place)
        with pytest.raises(CruciformError, match=message):
            cruciform.compress(for_cifar(), smooth_images(), target=target, options=options)
