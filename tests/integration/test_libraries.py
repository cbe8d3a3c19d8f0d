"""Networks of timm, torchvision and MONAI, for real."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from cruciform.conversion.convert import convert
from cruciform.conversion.dense import collapse
from cruciform.coverage.coverage_run import LIBRARIES, CoverageRequest, cover, list_networks
from cruciform.coverage.examine import Finding, examine
from cruciform.coverage.summary import is_covered, markdown, tally
from cruciform.errors import ConversionError, UnknownNameError
from cruciform.measure.gradients import diagnose
from cruciform.measure.record import versions
from cruciform.sources.build_network import build_network

pytestmark = [
    pytest.mark.usefixtures("libraries"),
    pytest.mark.filterwarnings("ignore"),  # the libraries' own
]
ROOT = Path(__file__).parents[2]

NETWORKS = [
    "torchvision:resnet18",
    "timm:tf_efficientnet_b0",  # padding by the size of the input
    "timm:vit_tiny_patch16_224",
]
SLOWER = [
    "torchvision:fasterrcnn_resnet50_fpn_v2",
    "torchvision:raft_small",
    "torchvision:r3d_18",
    "torchvision:deeplabv3_mobilenet_v3_large",
    "timm:nfnet_l0",  # weights standardized and scaled
    "timm:resnetv2_50x1_bit",  # weights standardized
    "monai:UNet-3d",
    "monai:DenseNet121-2d",
    "monai:UNETR-3d",
]


@pytest.mark.parametrize("reference", [*NETWORKS, *(pytest.param(one, marks=pytest.mark.slow) for one in SLOWER)])
def test_a_network_converts_with_the_same_shapes_and_the_promised_counts(reference: str) -> None:
    finding = examine(reference, "lr")
    assert finding.failure == ""
    assert is_covered(finding)
    assert finding.macs_after < finding.macs_before


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("conv2d_same.Conv2dSame", {}),
        ("std_conv.StdConv2d", {}),
        ("std_conv.StdConv2dSame", {"padding": "SAME"}),
        ("std_conv.ScaledStdConv2d", {"gamma": 1.7}),
        ("std_conv.ScaledStdConv2dSame", {"gamma": 1.7, "padding": "SAME"}),
    ],
)
def test_timms_own_convolutions_keep_what_makes_them_special(kind: str, options: dict[str, object]) -> None:
    module, name = kind.split(".")
    conv = getattr(__import__(f"timm.layers.{module}", fromlist=[name]), name)(6, 8, 3, stride=2, **options)
    converted, report = convert(nn.Sequential(conv), "lr", input_size=(6, 10, 13))
    x = torch.randn(2, 6, 10, 13)
    assert converted(x).shape == conv(x).shape
    assert report.params_after == sum(p.numel() for p in converted.parameters())
    layer = next(m for m in converted.modules() if hasattr(m, "plan"))
    if "Std" in name:
        weight = layer.weight_0_0.detach().flatten(1)
        scale = 1.7 / weight.shape[1] ** 0.5 if "Scaled" in name else 1.0
        torch.testing.assert_close(weight.mean(1), torch.zeros(4), atol=1e-5, rtol=0)
        torch.testing.assert_close(weight.std(1, unbiased=False), torch.full((4,), scale), rtol=1e-3, atol=0)
        with pytest.raises(ConversionError, match="which transforms its weights"):
            convert(conv, "lr", init="fit")
    torch.testing.assert_close(collapse(converted)(x), converted(x), rtol=1e-4, atol=1e-4)


def test_same_padding_fits_exactly_what_it_can_represent() -> None:
    from timm.layers.conv2d_same import Conv2dSame

    conv = Conv2dSame(6, 8, 3, stride=2)
    with torch.no_grad():
        conv.weight[:4, :, :, ::2] = 0
        conv.weight[4:, :, ::2] = 0
    converted, report = convert(nn.Sequential(conv), "lr", init="fit")
    assert report.layers[0].residual < 1e-6
    for n in (10, 11):
        x = torch.randn(1, 6, n, n)
        torch.testing.assert_close(converted(x), conv(x), rtol=1e-5, atol=1e-5)


def test_a_converted_resnet_can_be_trained() -> None:
    converted = convert(build_network("timm:resnet18").model, "lr").model
    assert diagnose(converted, (3, 64, 64)).verdict == "trainable"


def test_unknown_networks_are_refused_with_close_names() -> None:
    with pytest.raises(UnknownNameError, match="timm has no network 'resnet81'. Did you mean"):
        build_network("timm:resnet81")
    with pytest.raises(UnknownNameError, match="unknown source of networks 'tim'. Did you mean 'timm'"):
        build_network("tim:resnet18")
    with pytest.raises(UnknownNameError, match="timm has no network 'hf-hub:timm/resnet18'"):
        build_network("timm:hf-hub:timm/resnet18")


@pytest.mark.slow
def test_the_command_converts_and_saves(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from cruciform.cli.main import app
    from cruciform.store.directory import load

    runner = CliRunner()
    target = tmp_path / "resnet18-lr"
    result = runner.invoke(app, ["convert", "timm:resnet18", "--scheme", "lr", "-o", str(target)])
    assert result.exit_code == 0, result.output
    assert "20 convolutions: 17 replaced, 0 kept, 3 skipped" in result.output
    assert load(target)(torch.randn(1, 3, 64, 64)).shape == (1, 1000)
    told = runner.invoke(app, ["convert", "timm:resnet18", "--keep-first", "--channels", "128", "--json"])
    report = json.loads(told.output)
    assert sum(row["action"] == "replaced" for row in report["layers"]) == 11
    fitted = runner.invoke(app, ["convert", "nin", "--init", "fit"])
    assert "built without trained weights" in str(fitted.exception)


@pytest.mark.slow
def test_coverage_resumes_and_survives_the_death_of_a_child(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    done = Finding("timm:resnet18", eligible=True, converted=True, same_shapes=True, notes=["not examined again"])
    requests = [
        CoverageRequest(name, "lr", backward=False) for name in ("timm:resnet18", "timm:resnet10t", "zoo:nonsense")
    ]
    today, other = versions(LIBRARIES), {**done.to_dict(), "replaced": 99}
    entries = [{"request": vars(requests[0]), "finding": done.to_dict(), "versions": today}]
    # The same network by another scheme is another question; so it is to another version, and after a failure.
    entries.append({"request": {**vars(requests[1]), "scheme": "sf"}, "finding": other, "versions": today})
    entries.append({"request": vars(requests[1]), "finding": other, "versions": {**today, "timm": "0.1"}})
    entries.append({"request": vars(requests[1]), "finding": {**other, "failure": "too late"}, "versions": today})
    journal.write_text("\n".join(map(json.dumps, entries)) + '\n{"request": {"reference": "timm:resnet34", "sch')
    seen: list[str] = []
    findings = cover(requests, journal, report=lambda finding: seen.append(finding.reference))
    assert findings[0] == done
    assert is_covered(findings[1])
    assert findings[1].replaced != 99
    assert "unknown network 'nonsense'" in findings[2].failure
    assert set(seen) == {"timm:resnet18", "timm:resnet10t", "zoo:nonsense"}
    (total, ours) = tally(findings)
    assert (total.library, total.eligible, total.converted, total.share) == ("timm", 2, 2, 1.0)
    assert len(ours.failed) == 1
    page = markdown([total, ours], findings, scheme="lr", circumstances="today")
    assert "| timm | 2 | 2 | 2 (100.0%) | 0 | 0 |" in page
    assert "`zoo:nonsense`: unknown network" in page


def test_a_child_that_dies_is_a_failure_with_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nread line\nexit 7\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (finding,) = cover(
        [CoverageRequest("timm:resnet18", "lr", backward=False)], tmp_path / "journal.jsonl", processes=1
    )
    assert finding.failure == "the process ended with code 7"
    assert finding.eligible


@pytest.mark.slow
def test_all_networks_are_listed() -> None:
    names = list_networks(("torchvision", "timm", "monai"))
    assert len([name for name in names if name.startswith("torchvision:")]) >= 121
    assert len([name for name in names if name.startswith("timm:")]) >= 1300
    assert len(names) == len(set(names))


@pytest.mark.slow
@pytest.mark.timeout(900)  # minutes on a busy machine
@pytest.mark.soak
def test_a_sample_of_sixty_networks_converts(tmp_path: Path) -> None:
    names = list_networks(("torchvision", "timm", "monai"))
    chosen = [names[index * len(names) // 60] for index in range(60)]
    findings = cover(
        [CoverageRequest(name, "lr-join", index % 10 == 0) for index, name in enumerate(chosen)], tmp_path / "j"
    )
    assert {f.reference: f.failure for f in findings if f.failure} == {}
    assert all(is_covered(finding) for finding in findings if finding.eligible)
    assert sum(finding.backward is True for finding in findings) >= 3
