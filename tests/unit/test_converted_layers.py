"""What a converted layer keeps of the convolution that it replaces: bugs of other converters, each a test."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cruciform.conversion.convert import convert, plan_conversion
from cruciform.conversion.dense import collapse
from cruciform.deployment.search.build import EngineSettings
from cruciform.deployment.search.choose import choose_build
from cruciform.deployment.targets.target import TARGETS
from cruciform.measure.gradients import diagnose
from cruciform.measure.macs import profile
from cruciform.nn.composite import CompositeConv
from cruciform.nn.initialize import initialize_
from cruciform.schemes import SCHEMES

LOW_RANK = [name for name in SCHEMES.names() if name != "full"]


@pytest.mark.parametrize("scheme", LOW_RANK)
def test_stride_0_taken_for_all_axes(scheme: str) -> None:
    conv = nn.Conv2d(3, 8, (3, 5), stride=(2, 3), padding=(1, 0))
    x = torch.randn(1, 3, 13, 17)
    assert convert(conv, scheme).model(x).shape == conv(x).shape


@pytest.mark.parametrize("scheme", LOW_RANK)
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_dilation_and_padding_mode_dropped(scheme: str, mode: str) -> None:
    """A layer with the dropped options has another function: the collapsed one would differ from the dense twin."""
    conv = nn.Conv2d(3, 8, 3, padding=4, dilation=(2, 3), padding_mode=mode, bias=False)
    low = convert(conv, scheme).model
    dense = collapse(low)
    assert (dense.dilation, dense.padding_mode, dense.padding) == (conv.dilation, mode, conv.padding)
    x = torch.randn(1, 3, 9, 9)
    torch.testing.assert_close(low(x), dense(x), rtol=1e-4, atol=1e-4)


def test_groups_dropped() -> None:
    converted, report = convert(nn.Sequential(nn.Conv2d(4, 8, 3, groups=2)), "lr")
    assert converted[0].groups == 2
    assert report.layers[0].action == "skipped"


@pytest.mark.parametrize("scheme", LOW_RANK)
@pytest.mark.parametrize("init", ["paper-completed", "fit"])
def test_bias_none_crash(scheme: str, init: str) -> None:
    layer = convert(nn.Conv2d(3, 8, 3, bias=False), scheme, init=init).model
    assert not [name for name, _ in layer.named_parameters() if name.startswith("bias")]
    layer(torch.randn(1, 3, 5, 5))


class Named(nn.Module):
    """Gives its layers what they read by name."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.head = nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(input=F.relu(self.conv(input=x)))


def test_the_argument_renamed() -> None:
    model = convert(Named(), "lr").model
    assert isinstance(model.conv, CompositeConv)
    assert profile(model, (3, 8, 8)).macs == 64 * 3 * (3 * 16 + 16 * 4)
    assert [block.name for block in diagnose(model, (3, 8, 8)).blocks] == ["conv", "head"]
    choice = choose_build(model, EngineSettings(TARGETS.get("torch"), (3, 8, 8), rounds=1, search_seconds=0))
    assert [times.name for times in choice.layers] == ["conv", "head"]


def test_default_mode_that_saves_nothing() -> None:
    report = plan_conversion(nn.Conv2d(64, 64, 3, padding=1), input_size=(64, 8, 8))
    assert report.macs_after * 3 == report.macs_before


@pytest.mark.parametrize("training", [True, False])
def test_train_versus_eval_in_collapse_checks(training: bool) -> None:
    """A collapse that folds what training changes is equal in one mode only. Ours folds nothing of that kind."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
    low = convert(model, "lr-join").model.train(training)
    dense = collapse(low)
    assert dense.training is training
    assert all(module.training is training for module in dense.modules())
    x = torch.randn(4, 3, 9, 9)
    torch.testing.assert_close(dense(x), low(x), rtol=1e-4, atol=1e-5)


def test_shared_modules_missed() -> None:
    conv = nn.Conv2d(4, 4, 3, padding=1)
    converted = convert(nn.Sequential(nn.Sequential(conv), nn.Sequential(conv)), "lr").model
    assert isinstance(converted[0][0], CompositeConv)
    assert converted[0][0] is converted[1][0]


def drawn(model: nn.Module, seed: int, **options: str) -> tuple[nn.Module, Tensor]:
    """Return a converted copy of a network, and the next number of torch's generator after the conversion."""
    torch.manual_seed(seed)
    converted = convert(model, "lr-join", **options).model
    return converted, torch.rand(())


@pytest.mark.parametrize("rule", ["paper-completed", "pytorch", "identity"])
def test_new_weights_are_drawn_once(rule: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    converted, after_conversion = drawn(model, 7, init=rule)
    torch.manual_seed(7)
    initialized = initialize_(copy.deepcopy(converted), rule)
    for name, tensor in converted.state_dict().items():
        torch.testing.assert_close(tensor, initialized.state_dict()[name], rtol=0, atol=0, msg=name)
    assert torch.rand(()) == after_conversion  # neither drew a number more than the other


def test_fitting_collapsing_and_planning_draw_nothing() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    fitted, after_fit = drawn(model, 7, init="fit")
    torch.manual_seed(7)
    plan_conversion(model, "lr-join")
    collapse(fitted)
    assert torch.rand(()) == after_fit
    torch.manual_seed(7)
    assert torch.rand(()) == after_fit


def test_a_conversion_is_a_table_in_notebooks_with_every_text_escaped() -> None:
    network = nn.Sequential()
    network.add_module("<b>", nn.Conv2d(4, 4, 3))
    conversion = convert(network, "lr", input_size=(4, 5, 5))
    shown = conversion._repr_html_()
    assert shown == conversion.report._repr_html_()
    assert shown.startswith("<table><caption>Conversion table, input 4×5×5</caption>")
    assert '<td style="text-align:left">&lt;b&gt;</td>' in shown
    assert str(conversion) == str(conversion.report)
