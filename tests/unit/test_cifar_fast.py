import pytest
import torch
import torch.nn.functional as F

from cruciform.errors import OptionError
from cruciform.measure.macs import profile
from cruciform.models.zoo import create_model
from cruciform.nn.patch_whitening import whitening_kernel

# By hand: 24·12·31² for the patches, then for each layer window·c·d·positions, and the linear layer.
PATCHES, LINEAR = 24 * 12 * 31**2, 256 * 10
LAYERS = (
    (24 * 64, 31**2),
    (64 * 64, 15**2),
    (64 * 256, 15**2),
    (256 * 256, 7**2),
    (256 * 256, 7**2),
    (256 * 256, 3**2),
)


@pytest.mark.parametrize(("name", "taps"), [("cifar_fast", 9), ("cifar_fast_lr", 3), ("cifar_fast_cross", 4.5)])
def test_members_cost_what_the_arithmetic_says(name: str, taps: float) -> None:
    macs = PATCHES + LINEAR + sum(taps * weights * positions for weights, positions in LAYERS)
    assert profile(create_model(name), (3, 32, 32)).macs == macs


def test_a_wide_end_and_three_convolutions_cost_what_the_arithmetic_says() -> None:
    first = ((24, 64, 31**2), (64, 64, 15**2), (64, 64, 15**2))
    second = ((64, 256, 15**2), (256, 256, 7**2), (256, 256, 7**2))
    third = ((256, 384, 7**2), (384, 384, 3**2), (384, 384, 3**2))
    macs = PATCHES + 384 * 10 + sum(3 * c * d * positions for c, d, positions in (*first, *second, *third))
    assert profile(create_model("cifar_fast_lr3_wide"), (3, 32, 32)).macs == macs


def test_whitened_patches_have_variance_one_and_no_correlation(generator: torch.Generator) -> None:
    images = torch.randn(200, 3, 12, 12, generator=generator).cumsum(2).cumsum(3)
    kernel = whitening_kernel(images, 2, regulariser=0.0)
    assert torch.equal(kernel[12:], -kernel[:12])
    white = F.conv2d(images, kernel)[:, :12].movedim(1, 0).flatten(1)
    torch.testing.assert_close(torch.cov(white), torch.eye(12), atol=1e-3, rtol=0)


def test_fitting_sets_the_first_layer_and_nothing_else(generator: torch.Generator) -> None:
    model = create_model("cifar_fast_lr", generator=generator)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    images = torch.randn(50, 3, 32, 32, generator=generator)
    model.fit_(images)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"whiten.weight"}
    assert torch.equal(model.whiten.weight, whitening_kernel(images, 2, regulariser=5e-4))


def test_a_residual_goes_around_all_but_the_first_convolution_of_a_block(generator: torch.Generator) -> None:
    model = create_model("cifar_fast_lr3", generator=generator).eval()
    block = model.blocks[0]
    with torch.no_grad():
        for norm in block.norms[1:]:
            norm.weight.zero_()
    x = torch.randn(2, 24, 31, 31, generator=generator)
    first = block.act(block.norms[0](block.pool(block.convs[0](x))))
    torch.testing.assert_close(block(x), block.act(first))


def test_wrong_tables_are_refused() -> None:
    with pytest.raises(OptionError, match="must have an item for each block"):
        create_model("cifar_fast", widths=[64, 256])
    with pytest.raises(OptionError, match="input_size=8 is too small for 3 blocks; give 9"):
        create_model("cifar_fast", input_size=8)
    assert create_model("cifar_fast", widths=[8, 8, 8], schemes=[["lr"], ["lr", "full"], ["full"]]).config.schemes == (
        ("lr",),
        ("lr", "full"),
        ("full",),
    )
