import torch
from torch import Tensor, nn

from cruciform.measure.latency import time_layers
from cruciform.nn.composite import CompositeConv
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec


class Twice(nn.Module):
    """A layer that is called twice, one of basis filters, and one that is never called."""

    calls = 0  # not of the module: all that it holds is put back

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Conv2d(8, 8, 3, padding=1)
        self.cross = CompositeConv(make_plan(ConvSpec(8, 8, 3, padding=1), "lr"))
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        Twice.calls += 1
        return self.cross(self.shared(self.shared(x)))


def test_every_layer_that_ran_has_a_time_and_nothing_is_left_behind() -> None:
    Twice.calls, model = 0, Twice().train()
    threads = torch.get_num_threads()
    times = time_layers(model, (8, 16, 16), rounds=3)
    assert set(times) == {"shared", "cross"}
    assert all(seconds.own >= 0 for seconds in times.values())
    assert times["shared"].dense is None
    assert times["cross"].dense is not None
    assert Twice.calls == 8  # one to warm up, and as many passes again for the dense convolution
    assert model.training
    assert torch.get_num_threads() == threads
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_hooks_are_removed_when_the_network_fails() -> None:
    model = Twice()
    try:
        time_layers(model, (7, 16, 16), rounds=1)
    except RuntimeError:
        pass
    else:
        raise AssertionError("seven channels do not fit")
    assert not any(module._forward_hooks for module in model.modules())


class Slow(nn.Module):
    """Two layers of basis filters: one small, one whose dense convolution has far more to do than it."""

    def __init__(self) -> None:
        super().__init__()
        self.small = CompositeConv(make_plan(ConvSpec(4, 64, 3, padding=1), "lr"))
        self.large = CompositeConv(make_plan(ConvSpec(64, 64, 9, padding=4), "lr"))

    def forward(self, x: Tensor) -> Tensor:
        return self.large(self.small(x))


def test_the_dense_convolution_in_a_layers_place_is_timed_on_the_same_input() -> None:
    torch.manual_seed(0)
    model, state = Slow(), torch.get_rng_state()
    times = time_layers(model, (4, 24, 24), rounds=2)
    assert torch.equal(state, torch.get_rng_state())
    assert times["large"].dense > 2 * times["large"].own  # 81 taps to 9
    assert times["large"].dense > 2 * times["small"].dense
    assert set(dict(model.named_modules())) == {"", "small", "large"}
