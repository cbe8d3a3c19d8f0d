"""The batches that a network is run on for its compression: how large, and in which layout."""

import torch
from torch import Tensor, nn

from cruciform.compression.batching import batches_of, inputs_at_once


def test_the_batch_follows_from_activations_not_from_inputs() -> None:
    shallow = nn.Conv2d(3, 8, 3)
    deep = nn.Sequential(*[nn.Conv2d(3 if not n else 64, 64, 3, padding=1) for n in range(20)])
    image = torch.zeros(1, 3, 32, 32)
    assert inputs_at_once(shallow, image) > 50 * inputs_at_once(deep, image)
    assert inputs_at_once(deep, torch.zeros(1, 3, 512, 512)) == 1


class Viewed(nn.Sequential):
    """Its features are viewed as rows, which no other layout allows."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(x)
        return y.view(len(y), -1)


def test_images_have_channels_last_where_the_network_takes_them_so() -> None:
    given = torch.randn(10, 3, 16, 16)
    for kind, layout in ((nn.Sequential, torch.channels_last), (Viewed, torch.contiguous_format)):
        made = list(batches_of(kind(nn.Conv2d(3, 4, 3)), given)())
        assert torch.equal(torch.cat(made), given)
        assert all(batch.is_contiguous(memory_format=layout) for batch in made)
    (volumes,) = batches_of(nn.Conv3d(3, 4, 3), torch.zeros(2, 3, 8, 8, 8))()
    assert volumes.is_contiguous()
