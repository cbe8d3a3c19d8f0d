"""What holds for every network of the zoo."""

import pytest
import torch

from cruciform.errors import OptionError, ShapeError, UnknownNameError
from cruciform.measure.gradients import diagnose
from cruciform.models.googlenet import TrainingLogits
from cruciform.models.model_card import model_card, published_rows
from cruciform.models.zoo import create_model, list_models, model_config

NAMES = list_models()
PUBLISHED = {row.model for row in published_rows()}


NARROW = 0.25


def small(name: str) -> int:
    return model_config(name).smallest_input


def narrow(name: str) -> dict[str, float]:
    """Return the option that makes a network of a family with widths quick to make."""
    return {"width": NARROW} if hasattr(model_config(name), "width") else {}


@pytest.mark.parametrize("name", NAMES)
def test_a_network_runs_on_small_images_of_few_classes_and_all_of_it_learns(name: str) -> None:
    model = create_model(name, num_classes=5, in_channels=2, input_size=small(name), **narrow(name))
    logits = model(torch.randn(2, 2, small(name), small(name)))
    heads = logits if isinstance(logits, TrainingLogits) else (logits,)
    assert all(tuple(head.shape) == (2, 5) for head in heads)
    sum(head.square().sum() for head in heads).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert isinstance(model.eval()(torch.randn(1, 2, small(name), small(name))), torch.Tensor)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_has_a_card(name: str) -> None:
    card = model_card(name)
    assert card.config == model_config(name)
    assert card.published == tuple(row for row in published_rows() if row.model == name)


def test_every_published_row_belongs_to_a_network() -> None:
    assert len(published_rows()) == 18
    assert {row.model for row in published_rows()} <= set(NAMES)
    assert len(NAMES) >= 18
    # Readings of the paper that its numbers rule out, and networks of our own, have no published row.
    assert not any(name.endswith("_printed") or name.startswith("cifar_fast") for name in PUBLISHED)
    assert len(PUBLISHED) == 14


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_network(name: str) -> None:
    options = {"num_classes": 3, "input_size": small(name), **narrow(name)}
    first, second = (create_model(name, generator=torch.Generator().manual_seed(1), **options) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_network_refuses_images_of_other_channels(name: str) -> None:
    with pytest.raises(ShapeError, match=r"takes inputs of \(batch, 3, height, width\), not"):
        create_model(name, input_size=small(name), **narrow(name))(torch.zeros(1, 1, small(name), small(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_network_is_trainable_as_it_is_built(name: str) -> None:
    model = create_model(name, generator=torch.Generator().manual_seed(0))
    if model.fitted_on:
        model.fit_(torch.randn(200, *model.config.input_shape, generator=torch.Generator().manual_seed(1)))
    assert diagnose(model, model.config.input_shape, batch=2).verdict == "trainable"


def test_wrong_names_and_options_are_refused_with_what_is_right() -> None:
    with pytest.raises(UnknownNameError, match="unknown network 'vgg11_gpm'. Did you mean 'vgg11_gmp'"):
        create_model("vgg11_gpm")
    with pytest.raises(OptionError, match="vgg11 has no option 'classes'. Did you mean 'num_classes'"):
        create_model("vgg11", classes=10)
    with pytest.raises(OptionError, match="num_classes must be a positive integer, not 0"):
        create_model("nin", num_classes=0)
    with pytest.raises(OptionError, match="second_pool='mean' is neither"):
        create_model("nin", second_pool="mean")
    with pytest.raises(OptionError, match="input_size=16 is too small for 5 poolings at stride 1; give at least 32"):
        create_model("vgg11", input_size=16)
    with pytest.raises(OptionError, match="auxiliary=False"):
        create_model("googlenet", input_size=64)


def test_images_of_another_size_than_the_classifier_was_built_for_are_refused_with_what_to_type() -> None:
    with pytest.raises(ShapeError, match="take 1×1 feature maps, not 2×2; .* input_size="):
        create_model("vgg11", input_size=32)(torch.zeros(1, 3, 64, 64))
    with pytest.raises(ShapeError, match="takes 1×1 feature maps, not 2×2; .* input_size="):
        create_model("googlenet", input_size=224).eval()(torch.zeros(1, 3, 256, 256))


def test_global_pooling_takes_images_of_any_size() -> None:
    model = create_model("vgg11_gmp_lr", num_classes=3).eval()
    assert tuple(model(torch.zeros(1, 3, 50, 70)).shape) == (1, 3)


def test_googlenet_without_auxiliary_heads_has_none() -> None:
    model = create_model("googlenet_lr", auxiliary=False, input_size=64, num_classes=3)
    assert isinstance(model(torch.zeros(1, 3, 64, 64)), torch.Tensor)
    assert not model.heads
