"""A check that can't fail is none: what it can't see on a network's own weights it is made to see on rescaled ones."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cruciform import convert
from cruciform.deployment.parity import verify as verification
from cruciform.deployment.parity.compare import check_inputs, pytorch, range_over_inputs
from cruciform.deployment.parity.control import is_matrix, random_like
from cruciform.deployment.parity.rescale import rescaled
from cruciform.deployment.parity.verify import Parity, verify
from cruciform.deployment.search.build import PLAIN, Build, EngineSettings, build_graph, write_engine
from cruciform.deployment.search.layer_forms import build_form, composite_layers, why_not_dense
from cruciform.deployment.targets.eager import Eager
from cruciform.deployment.targets.target import TARGETS, Target
from cruciform.errors import DeployError

SIZE = (3, 16, 16)


def plain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def shrinking() -> nn.Module:
    """Gives every input the same answer, as an untrained RepVGG does: each layer shrinks its signal."""
    model = convert(plain(), "lr").model.eval()
    with torch.no_grad():
        for layer in composite_layers(model).values():
            for weight, _ in layer.stage_parameters()[0]:
                weight.mul_(1e-4)
    return model


class Gated(nn.Module):
    """A block that its own factor takes away, as in a ResNet whose last norms begin with 0."""

    def __init__(self, factor: float = 0.0) -> None:
        super().__init__()
        self.before, self.block, self.end = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 4)
        self.norm = nn.BatchNorm2d(8)
        nn.init.constant_(self.norm.weight, factor)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.before(x))
        x = x + self.norm(self.block(x))
        y: Tensor = self.end(x.mean((2, 3)))
        return y


class Hidden(nn.Module):
    """A layer that is multiplied by 0 whatever its weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.idle = plain(), nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.network(x) + 0 * self.idle(x).mean((2, 3))
        return y


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.answer = nn.Parameter(torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        return 0 * x.mean((2, 3))[:, :1] + self.answer


def examine(model: nn.Module, target: Target, folder: Path, size: tuple[int, ...] = SIZE) -> Parity:
    setting = EngineSettings(target, size)
    build = Build(dict.fromkeys(composite_layers(model), "tail"))
    graph = verification.build_graph(model, build.forms, setting)
    return verify(model, graph, write_engine(graph, PLAIN, setting, folder), build, setting)


def sabotaged(model: nn.Module, layer: str) -> nn.Module:
    """A copy with random weights in one layer."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.get_parameter(layer).copy_(random_like(other.get_parameter(layer)))
    return other


def change_of_outputs(model: nn.Module, layer: str) -> float:
    """By how much that changes outputs, as a fraction of the range over all of them: classes and inputs."""
    images = check_inputs(8, SIZE)
    outputs, others = (pytorch(one)(images) for one in (model, sabotaged(model, layer)))
    return float(abs(others - outputs).max() / (outputs.max() - outputs.min()))


@pytest.fixture
def sabotage_exports(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Takes the name of weights that are random in all that is exported from then on."""

    def of(layer: str) -> None:
        wrong = lambda model, forms, setting: build_graph(sabotaged(model, layer), forms, setting)  # noqa: E731
        monkeypatch.setattr(verification, "build_graph", wrong)

    return of


@pytest.mark.slow
def test_a_network_that_answers_the_same_to_every_input_is_verified_on_rescaled_weights(tmp_path: Path) -> None:
    found = examine(shrinking(), TARGETS.get("torch"), tmp_path)
    assert found.verified == "on rescaled weights, because its outputs hardly differ from one input to another"
    assert found.error < 1e-5
    assert found.control is not None
    assert found.control > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["0.weight_0_0", "2.weight_0_1"])
def test_random_weights_are_seen_where_every_input_has_the_same_answer(
    layer: str, sabotage_exports: Callable[[str], None], tmp_path: Path
) -> None:
    model = shrinking()
    assert change_of_outputs(model, layer) < 1e-4, "a comparison with the range over classes would let it pass"
    sabotage_exports(layer)
    with pytest.raises(DeployError, match=r"^[\w-]+ differs from PyTorch by"):
        examine(model, TARGETS.get("torch"), tmp_path)


@pytest.mark.slow
def test_a_block_that_is_multiplied_by_0_is_verified_on_rescaled_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Gated().eval()
    found = examine(model, TARGETS.get("torch"), tmp_path)
    assert found.rescaled == "its outputs hardly depend on block.weight"
    assert found.doubt is None
    assert not model.norm.weight.any(), "the network stays as it was"


@pytest.mark.slow
def test_random_weights_are_seen_in_a_block_that_is_multiplied_by_0(
    sabotage_exports: Callable[[str], None], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = Gated().eval()
    assert change_of_outputs(model, "block.weight") == 0
    sabotage_exports("block.weight")
    with pytest.raises(DeployError, match=r"^[\w-]+ differs from PyTorch by"):
        examine(model, TARGETS.get("torch"), tmp_path)


def test_a_network_that_shows_every_layer_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(
        "cruciform.deployment.parity.verify.rescaled", lambda *given: pytest.fail("it need not be rescaled")
    )
    found = examine(Gated(1.0).eval(), TARGETS.get("torch"), tmp_path)
    assert found.verified == "on its own weights"
    assert found.batches == (1, 2, 3)


@pytest.mark.slow
def test_what_gives_one_answer_whatever_its_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match=r"^[\w-]+ could not be verified: its outputs hardly differ from one input"):
        examine(Constant().eval(), TARGETS.get("torch"), tmp_path)


@pytest.mark.slow
def test_a_layer_that_nothing_depends_on_is_named(tmp_path: Path) -> None:
    found = examine(Hidden().eval(), TARGETS.get("torch"), tmp_path)
    assert found.verified == "only in part: its outputs hardly depend on idle.weight"
    assert found.to_dict()["control_error"] == 0


@pytest.mark.slow
def test_what_8_bits_are_written_from_must_be_exact() -> None:
    class Coarse(Eager):
        precision, tolerance = "int8", 0.1

    torch.manual_seed(0)
    model = Gated(1.0).eval()
    setting = EngineSettings(Coarse(compiled=False), SIZE)
    graph = build_form(model, {}, SIZE)
    assert verify(model, graph, pytorch(model), Build({}), setting).doubt is None
    with torch.no_grad():
        graph.get_parameter("end.weight").mul_(1.02)  # within a tenth
    verify(model, build_form(model, {}, SIZE), pytorch(graph), Build({}), setting)
    with pytest.raises(DeployError, match="the rewritten graph differs from PyTorch"):
        verify(model, graph, pytorch(graph), Build({}), setting)


def test_a_rescaled_network_has_a_spread_at_every_layer_and_the_same_forms() -> None:
    torch.manual_seed(0)
    model = convert(plain(), "sf").model.eval()
    for layer in composite_layers(model).values():
        nn.init.zeros_(layer.stage_parameters()[0][0][1])  # else no equal dense kernel
    with torch.no_grad():
        for value in model.parameters():
            if is_matrix(value):
                value.mul_(1e-4)
        model[6].weight.zero_()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    made = rescaled(model, torch.from_numpy(check_inputs(8, SIZE)))
    assert range_over_inputs(pytorch(made)(check_inputs(8, SIZE))) > 1
    assert all(why_not_dense(layer) is None for layer in composite_layers(made).values())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_weights_without_gradients_are_controlled_too(tmp_path: Path) -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = plain().requires_grad_(requires_grad=False)

        @torch.no_grad()
        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.network(x)
            return y

    found = examine(Frozen().eval(), TARGETS.get("torch"), tmp_path)
    assert found.control is not None
    assert found.doubt is None


@pytest.mark.slow
@pytest.mark.usefixtures("libraries")
def test_an_untrained_repvgg_is_verified_and_a_wrong_layer_of_it_is_seen(
    sabotage_exports: Callable[[str], None], tmp_path: Path
) -> None:
    import timm

    torch.manual_seed(0)
    model = timm.create_model("repvgg_a0").eval()
    for name in ("right", "wrong"):
        (tmp_path / name).mkdir()
    found = examine(model, TARGETS.get("onnxruntime"), tmp_path / "right", (3, 64, 64))
    assert found.rescaled == "its outputs hardly differ from one input to another"
    assert found.doubt is None
    sabotage_exports("stem.conv_1x1.conv.weight")
    with pytest.raises(DeployError, match=r"^[\w-]+ differs from PyTorch by"):
        examine(model, TARGETS.get("onnxruntime"), tmp_path / "wrong", (3, 64, 64))
