import gc
import math
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cruciform.errors import DiagnosisError, ShapeError
from cruciform.measure.gradients import diagnose
from cruciform.nn.initialize import initialize_


def chain(
    depth: int, width: int = 32, *, scale: float = 1.0, norm: bool = False, mode: str = "circular"
) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index in range(depth):
        layers.append(nn.Conv2d(3 if index == 0 else width, width, 3, padding=1, padding_mode=mode))
        layers += [nn.BatchNorm2d(width)] if norm else []
        layers.append(nn.ReLU(inplace=True))
    model = nn.Sequential(*layers)
    initialize_(model, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 4:
                parameter.mul_(scale)
    return model


def test_gradients_that_are_there_already_are_left_as_they_are() -> None:
    model = chain(3)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    diagnose(model, (3, 8, 8))
    assert all(bool((parameter.grad == 1).all()) for parameter in model.parameters())


def test_a_head_of_zeros_loses_the_gradient_and_does_not_explode() -> None:
    model = nn.Sequential(*chain(3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4))
    nn.init.zeros_(model[-1].weight)
    assert diagnose(model, (3, 8, 8)).verdict == "untrainable: the gradient is zero, NaN or Inf"


def test_a_network_in_16_bits_gets_noise_in_16_bits() -> None:
    assert diagnose(chain(4).bfloat16(), (3, 8, 8)).trainable


def test_an_input_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"Sequential does not run on an input of \(4, 8, 8\)"):
        diagnose(chain(3), (4, 8, 8))


def test_the_papers_rule_keeps_the_gradient() -> None:
    found = diagnose(chain(8), (3, 16, 16))
    assert found.trainable
    assert found.verdict == "trainable"
    assert found.advice == ""
    assert [block.name for block in found.blocks] == [str(2 * index) for index in range(8)]
    assert all(0.7 < block.gradient_ratio < 1.4 for block in found.blocks[1:])
    assert all(block.on_path for block in found.blocks)


@pytest.mark.parametrize(("scale", "word"), [(0.5, "vanishes"), (2.0, "explodes")])
def test_a_wrong_scale_is_found_and_the_advice_undoes_it(scale: float, word: str) -> None:
    found = diagnose(chain(8, scale=scale), (3, 16, 16))
    assert found.verdict == f"untrainable: the gradient {word}"
    assert found.blocks[3].gradient_ratio == pytest.approx(scale**2, rel=0.4)
    assert "Scale the initial weights of each block" in found.advice
    factor = float(found.advice.split("has several, by ")[1].split(",")[0])
    assert factor == pytest.approx(1 / scale, rel=0.1)


def test_in_a_chain_the_product_of_the_ratios_is_the_gradient_over_depth() -> None:
    found = diagnose(chain(6, mode="zeros"), (3, 16, 16))
    product = math.prod(block.gradient_ratio for block in found.blocks[1:])
    assert found.gradient_over_depth == pytest.approx(product, rel=1e-6)
    assert found.depth == 5


def test_max_pooling_and_stride_count_as_one() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()
    )
    strided = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 4, stride=2, padding=1), nn.ReLU()
    )
    for model in (plain, strided):
        found = diagnose(initialize_(model), (3, 32, 32))
        assert found.gradient_over_depth == pytest.approx(1, rel=0.25)


def test_batch_normalization_belongs_to_its_block_and_is_put_back() -> None:
    model = chain(4, scale=30, norm=True)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = diagnose(model.eval(), (3, 16, 16))
    assert found.trainable
    assert len(found.blocks) == 4
    assert not model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


class Residual(nn.Module):
    """Convolutions called as functions, with a skip connection in place and a branch that is shallow."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.stem = nn.Parameter(torch.randn(16, 3, 3, 3, generator=generator) / 12)
        self.kernels = nn.ParameterList(
            gain * torch.randn(16, 16, 3, 3, generator=generator) / math.sqrt(144) for _ in range(20)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(x, self.stem, padding=1)
        for kernel in self.kernels:
            y = F.conv2d(F.relu(x), kernel, padding=1)
            y += x
            x = y
        return x


def test_a_skip_connection_keeps_a_gradient_that_the_blocks_alone_would_lose() -> None:
    found = diagnose(Residual(0.05), (3, 12, 12))
    assert math.prod(block.gradient_ratio for block in found.blocks[1:]) < 1e-20
    assert found.gradient_over_depth == pytest.approx(1, rel=0.2)
    assert found.trainable
    assert found.depth == 20


def test_a_residual_network_that_explodes_is_still_found() -> None:
    assert diagnose(Residual(3.0), (3, 12, 12)).verdict == "untrainable: the gradient explodes"


def test_a_branch_that_is_scaled_down_is_judged_by_what_it_is_added_to() -> None:
    class LayerScale(nn.Module):
        """As in ConvNeXt: the branches start at next to nothing."""

        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(3 if index == 0 else 8, 8, 3, padding=1) for index in range(9))

        def forward(self, x: Tensor) -> Tensor:
            x = self.convs[0](x)
            for conv in self.convs[1:]:
                x = x + 1e-6 * conv(x)
            return x

    found = diagnose(initialize_(LayerScale()), (3, 8, 8))
    assert found.gradient_over_depth == pytest.approx(1, rel=0.01)


def test_blocks_that_no_gradient_reaches_have_a_dash_and_a_note() -> None:
    class ZeroBranch(nn.Module):
        """As timm's ResNets start: the last norm of a branch has the scale 0."""

        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.branch = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
            nn.init.zeros_(self.norm.weight)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            return x + self.norm(self.branch(x))

    found = diagnose(ZeroBranch(), (3, 8, 8))
    assert [block.name for block in found.blocks if block.ratios[0] == "–"] == ["branch.0"]
    assert found.note.startswith("–: no gradient reaches 1 block in the first step")
    assert diagnose(chain(3), (3, 8, 8)).note == ""


def test_normalization_lets_the_gradient_grow_as_the_theory_says_and_is_allowed_to() -> None:
    found = diagnose(chain(22, width=64, norm=True), (3, 12, 12), batch=16)
    growth = found.gradient_over_depth ** (1 / 21)
    assert growth == pytest.approx(math.pi / (math.pi - 1), rel=0.12)
    assert found.trainable
    assert found.high == pytest.approx(10 ** math.sqrt(3) * (math.pi / (math.pi - 1)) ** 21)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.short = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1)
        self.long = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 1))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.stem(x)
        return {"joined": torch.cat([self.short(x), self.long(x)], 1), "side": x.mean()}


def test_the_deepest_path_is_followed_and_any_output_is_taken() -> None:
    found = diagnose(initialize_(Branches()), (3, 6, 6))
    assert {block.name: block.on_path for block in found.blocks} == {
        "stem": True, "short": False, "long.0": True, "long.2": True,
    }  # fmt: skip


def test_deep_networks_have_a_wider_band_and_shallow_ones_the_papers() -> None:
    assert diagnose(chain(3, 8), (3, 8, 8)).high == 10
    assert diagnose(chain(8, 8), (3, 8, 8)).high == 10
    assert diagnose(chain(29, 8), (3, 8, 8)).high == pytest.approx(100)


def test_given_images_are_used() -> None:
    images = torch.zeros(2, 3, 8, 8)
    assert math.isnan(diagnose(chain(3), images).blocks[0].activation_ratio)


def test_the_same_seed_gives_the_same_diagnosis() -> None:
    model = chain(4)
    assert diagnose(model, (3, 8, 8), seed=3) == diagnose(model, (3, 8, 8), seed=3)
    assert diagnose(model, (3, 8, 8), seed=3) != diagnose(model, (3, 8, 8), seed=4)


def test_no_tensor_outlives_the_diagnosis() -> None:
    model, seen = chain(4), []
    model[4].register_forward_hook(lambda module, args, output: seen.append(weakref.ref(output)))
    diagnose(model, (3, 8, 8))
    gc.collect()
    assert [ref() for ref in seen] == [None]


def test_networks_that_can_not_be_measured_are_refused() -> None:
    with pytest.raises(DiagnosisError, match="two convolutions in a row; it found 1"):
        diagnose(chain(1), (3, 8, 8))
    with pytest.raises(DiagnosisError, match="it found 0"):
        diagnose(nn.Linear(3, 3), (3,))


def test_a_dead_network_is_untrainable() -> None:
    found = diagnose(chain(4, scale=1e-30), (3, 8, 8))
    assert not found.trainable
    assert found.advice


def test_what_layers_between_the_blocks_do_is_told_apart() -> None:
    """A transposed convolution is no block of the table; its share of the loss must not be put on those that are."""
    torch.manual_seed(0)
    between = nn.ConvTranspose2d(16, 16, 3, padding=1)
    nn.init.normal_(between.weight, std=1e-3)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1), between, nn.Conv2d(16, 16, 3, padding=1)
    )
    found = diagnose(network, (3, 16, 16))
    ratios = [block.gradient_ratio for block in found.blocks][1:]
    mean = float(found.advice.split("variance by ")[1].split(" ")[0])
    assert min(ratios) - 0.01 <= mean <= max(ratios) + 0.01
    rest = float(found.advice.split("not listed scale it by ")[1].split(". ")[0])
    assert rest == pytest.approx(found.gradient_over_depth / math.prod(ratios), rel=0.1)


def test_trained_weights_get_ratios_but_no_verdict_and_no_advice() -> None:
    start = diagnose(chain(8, scale=0.5), (3, 16, 16))
    found = diagnose(chain(8, scale=0.5), (3, 16, 16), trained=True)
    assert found.trainable is None
    assert found.verdict == "no verdict: the weights are trained, and the doctor checks initial weights"
    assert found.advice == ""
    assert "trainable within" not in found.finding
    assert (found.blocks, found.gradient_over_depth) == (start.blocks, start.gradient_over_depth)
    assert start.advice


def test_a_batch_norm_that_has_seen_batches_is_a_sign_of_training_unless_the_caller_knows_better() -> None:
    model = chain(4, norm=True)
    assert diagnose(model, (3, 8, 8)).trainable is True
    model(torch.randn(2, 3, 8, 8))
    assert diagnose(model, (3, 8, 8)).trainable is None
    assert diagnose(model, (3, 8, 8), trained=False).trainable is True


def test_a_diagnosis_prints_as_a_table_that_ends_with_the_verdict() -> None:
    found = diagnose(chain(8, scale=0.5), (3, 16, 16))
    head, rule, *lines = str(found).splitlines()
    assert head.split("  ")[0] == "block"
    assert set(rule) == {"-", " "}
    assert [line.split()[0] for line in lines[:8]] == [block.name for block in found.blocks]
    assert lines[:8] == [line for line in lines if line.split()[1] == "yes"]
    assert lines[8:] == [found.finding, found.advice, found.verdict]
    assert len({len(line) for line in (head, *lines[:8])}) == 1  # numbers end below one another


def test_a_diagnosis_is_a_table_in_notebooks() -> None:
    found = diagnose(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)), (3, 8, 8))
    shown = found._repr_html_()
    assert shown.startswith("<table><caption>Variance ratios of each block</caption>")
    assert f"<p>{found.verdict}</p>" in shown
