"""The network that a recipe names: what is asked for is what is trained, or it is said."""

import pytest

from cruciform.errors import ConversionError
from cruciform.nn.composite import CompositeConv
from cruciform.training.recipe.recipe import ModelTable
from cruciform.training.setup.recipe_network import build_model


@pytest.mark.parametrize("scheme", ["cross:shapes=kx1x1+1xkx1", "cross:full=1.0"])
def test_a_scheme_that_replaces_nothing_does_not_train_the_dense_network(scheme: str) -> None:
    with pytest.raises(ConversionError, match="replaces no convolution of nin: "):
        build_model(ModelTable(name="nin", scheme=scheme), classes=10, seed=0)


def test_the_dense_scheme_may_be_asked_for() -> None:
    model = build_model(ModelTable(name="nin", scheme="full"), classes=10, seed=0)
    assert not any(isinstance(module, CompositeConv) for module in model.modules())


def test_what_became_of_the_convolutions_is_told() -> None:
    told: list[str] = []
    build_model(ModelTable(name="nin", scheme="lr"), classes=10, seed=0, notice=told.append)
    assert told[0].startswith("converted nin by lr: 9 convolutions: 3 replaced, 0 kept, 6 skipped; parameters")


@pytest.mark.usefixtures("libraries")
def test_a_library_may_be_asked_for_other_channels() -> None:
    table = ModelTable(name="timm:resnet18", options={"in_chans": 1}, scheme="lr")
    assert any(isinstance(m, CompositeConv) for m in build_model(table, classes=2, seed=0).modules())
