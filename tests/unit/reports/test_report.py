"""The whole report: what it says is right, and nothing in it comes from elsewhere or runs."""

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from cruciform.api.train import train
from cruciform.cli.main import app
from cruciform.conversion.convert import convert
from cruciform.errors import OptionError
from cruciform.measure.macs import profile
from cruciform.models.zoo import create_model
from cruciform.reports.directory_readme import CardRow, accuracy, read_card
from cruciform.reports.facts import Facts, gather_facts
from cruciform.reports.page import render_page
from cruciform.reports.run_facts import read_run
from cruciform.store.directory import Base, load, save
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.run.run import Run

EVIL = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
SMALL = ["model.options.widths=[8, 8, 8]", "epochs=2", "batch_size=16", "log.tensorboard=false", "precision=fp32",
         "log.steps=1"]  # fmt: skip


class Reader(HTMLParser):
    """Collects tags, attributes and text, and fails on tags that are not closed in order."""

    EMPTY = frozenset({"meta"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def facts() -> Facts:
    torch.manual_seed(0)
    return gather_facts("nin_c3_lr", create_model("nin_c3_lr", input_size=30), (3, 30, 30), rounds=0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, numbers = tmp_path_factory.mktemp("cifar"), np.random.default_rng(0)
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        records = numbers.integers(0, 256, (8, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    directory = tmp_path_factory.mktemp("runs") / "small"
    train(load_recipe("cifar_fast_lr_cifar10", [*SMALL, f'data.path="{folder}"']), directory)
    return directory


def test_the_dense_network_is_the_one_that_the_plans_stand_in_for(facts: Facts) -> None:
    """nin-c3-lr replaces the convolutions of nin-c3 as printed: 994,826 parameters by the paper's arithmetic."""
    assert (facts.params, facts.dense_params) == (438_410, 994_826)
    printed = profile(create_model("nin_c3_printed", input_size=30), (3, 30, 30))
    assert facts.dense_macs == printed.macs
    assert sum(layer.replaced for layer in facts.layers) == 4


def test_layers_that_share_a_weight_are_counted_once_and_those_of_one_tap_are_listed() -> None:
    model = nn.Sequential(nn.Conv1d(4, 4, 3), nn.Conv1d(4, 4, 3), nn.Conv1d(4, 4, 1), nn.Flatten(), nn.Linear(16, 2))
    model[1].weight = model[0].weight
    facts = gather_facts("own", model, (4, 8), rounds=0)
    assert facts.dense_params == facts.params == sum(parameter.numel() for parameter in model.parameters())
    assert [bool(layer.plan) for layer in facts.layers] == [True, True, True, False]


def test_the_page_is_whole_and_takes_nothing_from_elsewhere(facts: Facts) -> None:
    page = render_page(facts)
    found = Reader(page)
    assert "script" not in found.tags
    assert not {"link", "iframe", "img", "object", "embed", "form"} & set(found.tags)
    assert not {name for name, _ in found.attributes} & {"src", "href", "srcset", "xlink:href"}
    assert not re.search(r"https?:|url\(|@import|@font-face", page)
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert len(page.encode()) < 5_000_000
    said = " ".join(found.text)
    for words in ("438,410", "Conversion table", "Gradient doctor", "trainable", "[3×1: 96 ‖ 1×3: 96]", "not timed"):
        assert words in said
    assert "cruciform deploy nin_c3_lr -o DIR" in said


def test_no_text_from_outside_becomes_a_part_of_the_page(facts: Facts) -> None:
    deployment = {"directory": EVIL, "target": EVIL, "verdict": EVIL, "batch": EVIL, "milliseconds": EVIL}
    layers = tuple(replace(layer, name=EVIL, plan=EVIL, reason=EVIL) for layer in facts.layers)
    evil = replace(
        facts, name=EVIL, given=EVIL, layers=layers, deployments=(deployment,), diagnosed=EVIL, notes=(EVIL,),
        kind="model directory", card=(CardRow(EVIL, EVIL), CardRow(f"accuracy {EVIL}", EVIL)),
    )  # fmt: skip
    found = Reader(render_page(evil))
    assert not {"script", "img"} & set(found.tags)
    assert "onerror" not in {name for name, _ in found.attributes}
    assert "".join(found.text).count("<script>alert(1)</script>") > 5


@pytest.mark.slow
def test_deployments_are_shown_and_one_that_is_none_is_refused(facts: Facts, tmp_path: Path) -> None:
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    report = {"target": "onnxruntime", "batch": 1, "threads": 1, "milliseconds": 2.5, "verdict": "half the time"}
    (shipped / "deploy.json").write_text(json.dumps(report))
    model = create_model("nin_c3_lr", input_size=16)
    known = gather_facts("nin_c3_lr", model, (3, 16, 16), rounds=0, deployments=(shipped,))
    said = " ".join(Reader(render_page(known)).text)
    assert "half the time" in said
    assert "2.50" in said
    for wrong in ("", "[]", "[" * 100_000):
        (tmp_path / "deploy.json").write_text(wrong)
        with pytest.raises(OptionError, match="is not an artifact of 'cruciform deploy'"):
            gather_facts("nin_c3_lr", model, (3, 16, 16), rounds=0, deployments=(tmp_path,))


def test_a_run_is_shown_with_its_curves_its_initial_gradient_and_its_times(run: Path, tmp_path: Path) -> None:
    (run / "onnx").mkdir(exist_ok=True)
    (run / "onnx" / "deploy.json").write_text(json.dumps({"target": "openvino", "verdict": "found inside"}))
    output = tmp_path / "new" / "report.html"
    result = CliRunner().invoke(app, ["report", str(run), "-o", str(output), "--rounds", "1", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["kind"] == "run"
    page = output.read_text("utf-8")
    assert json.loads(result.output)["bytes"] == len(page.encode())
    found = Reader(page)
    said = " ".join(found.text)
    for words in ("done, 2 of 2 epochs", "learning rate", "the initial weights of the run (seed 0)", "found inside",
                  "top-1 accuracy", "with flip TTA"):  # fmt: skip
        assert words in said
    assert found.tags.count("polyline") >= 7  # two of the doctor, five of training, and the filters' spectra
    assert "Times were left out" not in said


def test_a_run_is_shown_where_its_data_is_not(run: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(run, tmp_path / "copied")
    recipe = json.loads((copied / "recipe.json").read_text("utf-8"))
    recipe["data"]["path"] = "nowhere"
    (copied / "recipe.json").write_text(json.dumps(recipe))
    assert CliRunner().invoke(app, ["filters", str(copied)]).exit_code == 0
    output = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["report", str(copied), "-o", str(output), "--rounds", "0"])
    assert result.exit_code == 0, result.output
    assert "No diagnosis: the initial network of the run was fitted to its data" in output.read_text("utf-8")


def test_a_model_directory_says_why_layers_were_left_alone(tmp_path: Path) -> None:
    model, report = convert(create_model("nin", input_size=16, num_classes=3), "lr", input_size=(3, 16, 16))
    options = {"input_size": 16, "num_classes": 3}
    save(model, tmp_path / "nin-lr", report, base=Base("zoo:nin", options))
    known = gather_facts(str(tmp_path / "nin-lr"), model, (3, 16, 16), directory=tmp_path / "nin-lr", rounds=0)
    assert known.kind == "model directory"
    assert {layer.reason for layer in known.layers if "cccp" in layer.name} == {"1×1: nothing to save"}


@pytest.fixture(scope="module")
def shipped() -> Facts:
    directory = Path(__file__).parents[3] / "models" / "cifar_fast_cross"
    return gather_facts(str(directory), load(directory), (3, 32, 32), directory=directory, rounds=1)


def test_the_shipped_network_is_not_called_untrainable_nor_to_be_initialized_again(shipped: Facts) -> None:
    said = " ".join(Reader(render_page(shipped)).text)
    assert "no verdict: the weights are trained" in said
    for words in ("untrainable", "trainable from", "gradient at the start", "initialize"):
        assert words not in said


def test_a_model_directory_is_shown_with_the_accuracy_that_its_card_has(shipped: Facts) -> None:
    found = Reader(render_page(shipped)).text
    assert found[found.index("top-1 accuracy") + 1] == "92.73%"
    assert "92.73%; 93.25% averaged over each image and its mirror image" in found
    assert "airplane, automobile, bird" in " ".join(found)


def test_a_model_directory_without_an_accuracy_says_so_and_how_to_measure_it(shipped: Facts) -> None:
    for card in ((), (CardRow("test accuracy", "high"), CardRow("epochs", "90%"))):
        found = Reader(render_page(replace(shipped, card=card))).text
        assert found[found.index("top-1 accuracy") + 1] == "not recorded"
        assert "No accuracy is recorded. " in " ".join(found)
        assert f"cruciform.evaluate({shipped.given!r}, recipe='RECIPE')" in found


def test_a_card_is_read_from_rows_of_two_cells_whatever_else_the_file_holds(tmp_path: Path) -> None:
    assert read_card(tmp_path) == ()
    (tmp_path / "README.md").write_bytes(
        b"# x\n| | |\n|---|---|\n| Test accuracy | `91.5 %` |\n| a | b | c |\n|:--|--:|\n| \xff | y |\ntext | x\n"
    )
    card = read_card(tmp_path)
    assert card == (("Test accuracy", "91.5 %"), ("\ufffd", "y"))
    assert accuracy(card) == "91.5 %"
    (tmp_path / "README.md").unlink()
    (tmp_path / "README.md").mkdir()
    assert read_card(tmp_path) == ()


def test_every_low_rank_layer_has_the_milliseconds_of_its_dense_convolution_beside_its_own(shipped: Facts) -> None:
    for layer in shipped.layers:
        assert (layer.dense_seconds is not None) == layer.replaced
    page = render_page(shipped)
    replaced = [layer for layer in shipped.layers if layer.replaced]
    assert page.count('<i class="three"') == len([layer for layer in shipped.layers if layer.seconds is not None])
    assert page.count('class="bar pair"') == 3 * len(replaced)  # MACs, parameters, milliseconds
    for layer in replaced:
        assert f"<small>{1e3 * layer.dense_seconds:.3f}</small>" in page
    assert f"The {len(replaced)} low-rank layers together" in page


def test_blocks_have_their_names_at_the_axis_and_each_rank_a_sentence(shipped: Facts) -> None:
    page = render_page(shipped)
    chart = page[page.index("Gradient energy, block by block") : page.index("<thead>", page.index("Gradient energy"))]
    for block in shipped.diagnosis.blocks:
        assert f">{block.name}</text>" in chart
    for words in ("Effective rank: ", "Spatial rank: ", "σ / largest σ", "index of the singular value", " of 3</p>"):
        assert words in page


@pytest.mark.slow
@pytest.mark.parametrize(("report", "verdict"), [(None, "untrainable"), ('{"init": null}', "no verdict")])
def test_a_run_is_judged_by_what_it_began_with_where_that_was_a_start(
    report: str | None, verdict: str, run: Path, tmp_path: Path
) -> None:
    options = {"input_size": 32, "num_classes": 10}
    begun = convert(create_model("nin", **options), "lr", init="pytorch", input_size=(3, 32, 32))
    directory = save(begun.model, tmp_path / "nin-lr", begun.report, base=Base("zoo:nin", options))
    if report:  # as that of a directory which was written after a training
        (directory / "report.json").write_text(report)
    data = Run(run).recipe().data.path
    changes = [f'model.name="{directory}"', f'data.path="{data}"', *SMALL[2:], "epochs=1", "grad_clip_norm=1.0"]
    train(load_recipe("modern_cifar10", changes), tmp_path / "run")
    run = tmp_path / "run"
    known = gather_facts(str(run), begun.model, (3, 32, 32), run=read_run(run), directory=run, rounds=0)
    assert known.diagnosis is not None
    assert known.diagnosis.verdict.startswith(verdict)
