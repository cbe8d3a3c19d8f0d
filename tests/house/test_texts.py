"""What the texts say must hold: links, code, commands, numbers."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest
import torch

from cruciform.measure.macs import profile
from cruciform.models.card import model_card
from cruciform.models.zoo import create_model

ROOT = Path(__file__).parents[2]
TEXTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_link_inside_the_repository_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", path.read_text("utf-8")):
        assert "://" in target or (path.parent / target).exists(), target


def test_the_readmes_code_prints_what_it_says() -> None:
    code, output = re.search(r"```python\n(.*?)```\n```\n(.*?)```", README, re.DOTALL).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README", "exec"), {})  # noqa: S102
    assert printed.getvalue() == output


def test_the_readmes_counts_are_those_of_the_networks() -> None:
    rows = re.findall(r"\| `(vgg\w+)`[^|]*\| ([\d,]+) \| (\d+) % \| ([\d,]+) \| ([\d.]+) \|", README)
    assert len(rows) == 6
    for name, macs, share, params, top5 in rows:
        with torch.device("meta"):
            network = create_model(name)
        counted, published = profile(network, (3, 224, 224)), model_card(name).published[0]
        assert (f"{counted.macs_paper:,}", f"{counted.params:,}") == (macs, params)
        assert round(100 * counted.macs_paper / 7508438696) == int(share)
        assert f"{100 * (published.top5 or 0):.2f}" == top5


def test_the_readmes_verdicts_are_those_recorded() -> None:
    summary = json.loads((ROOT / "results" / "initialisation.json").read_text("utf-8"))["summary"]
    rows = re.findall(r"\| `([\w-]+)`[^|]*\| (\d+) \|", README)
    assert {f"trainable_{rule.replace('-', '_')}": int(count) for rule, count in rows} == {
        name: value for name, value in summary.items() if name.startswith("trainable_")
    }


def test_the_readmes_coverage_is_that_recorded() -> None:
    summary = json.loads((ROOT / "results" / "coverage.json").read_text("utf-8"))["summary"]
    rows = re.findall(r"\| (torchvision|timm|MONAI) \| (\d+) \| (\d+) \|", README)
    assert len(rows) == 3
    for library, eligible, converted in rows:
        assert summary[f"{library.lower()}_eligible"] == int(eligible)
        assert summary[f"{library.lower()}_converted"] == int(converted)


def test_the_readmes_realised_fractions_are_those_recorded() -> None:
    summary = json.loads((ROOT / "results" / "bench-vgg.json").read_text("utf-8"))["summary"]
    rows = re.findall(r"\| `vgg11_gmp_(\w+)` \| ([\d.]+) \| ([\d.]+) \|\n", README)
    assert len(rows) == 3
    for name, one, sixteen in rows:
        assert (f"{summary[f'ort_f32_b1_{name}']:.2f}", f"{summary[f'ort_f32_b16_{name}']:.2f}") == (one, sixteen)


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("*.json")), ids=lambda path: path.name)
def test_a_result_carries_what_is_needed_to_doubt_it(path: Path) -> None:
    result = json.loads(path.read_text("utf-8"))
    assert set(result) == {"summary", "command", "n", "date", "versions", "hardware", "details"}
    assert all(isinstance(value, int | float) for value in result["summary"].values())
    assert result["n"] >= 1


def test_what_is_said_of_never_slower_is_recorded() -> None:
    result = json.loads((ROOT / "results" / "never-slower.json").read_text("utf-8"))
    summary, text = result["summary"], (ROOT / "docs" / "deploy.md").read_text("utf-8")
    assert f"{summary['networks']} networks in two engines, {summary['comparisons']} comparisons" in README
    assert f"(9 of {summary['comparisons']})" in README
    assert summary["shipped_dense"] == 9
    assert summary["worst_ratio"] == 1.0
    assert f"(a 3-D ResNet-18) and {0.41} (ResNet-18)" in README
    found = {(row["network"], row["target"]): row.get("ratio") for row in result["details"]}
    for label, network in (("3-D ResNet-18 (MONAI)", "monai:ResNet18-3d"), ("ResNet-18", "torchvision:resnet18"),
                           ("VGG-16", "torchvision:vgg16"), ("DarkNet-53", "timm:darknet53"),
                           ("ResNet-50", "torchvision:resnet50"), ("SqueezeNet 1.1", "torchvision:squeezenet1_1"),
                           ("Inception-v3", "torchvision:inception_v3"), ("DenseNet-121", "torchvision:densenet121"),
                           ("UNet, 2-D (MONAI)", "monai:UNet-2d")):  # fmt: skip
        first, second = (f"{found[network, target]:.2f}" for target in ("onnxruntime", "openvino"))
        row = next(line for line in text.splitlines() if line.startswith(f"| {label} |"))
        assert f"{first} ONNX Runtime, {second} OpenVINO" in row or f"{first}, {second}" in row, row


def test_what_is_said_of_8_bits_is_recorded() -> None:
    summary = json.loads((ROOT / "results" / "int8.json").read_text("utf-8"))["summary"]
    text = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    for label, name in (("PyTorch, 32 bits", "torch"), ("AOTInductor, 32 bits", "aotinductor"),
                        ("`openvino-int8`", "openvino_int8"), ("`torch-int8`", "torch_int8")):  # fmt: skip
        top1 = summary["top1_f32" if name == "torch" else f"top1_{name}"]
        one, sixteen = (summary[f"time_{name}_of_openvino_batch_{batch}"] for batch in (1, 16))
        assert f"| {label} | {100 * top1:.2f} % | {one:.2f} | {sixteen:.2f} |" in text
