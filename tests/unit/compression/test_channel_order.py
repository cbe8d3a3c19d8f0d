"""Output channels in another order: exact where everything that reads them is permuted too, refused everywhere else."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cruciform.compression.channel_order.channel_reach import find_reaches
from cruciform.compression.channel_order.permutation import permute_channels_
from cruciform.compression.channel_order.reordered_network import find_fixed_orders, reorder_network
from cruciform.compression.fitting.measured_rise import Probe, take_probes
from cruciform.errors import ConversionError

SIZE = (3, 12, 12)


def batches() -> Iterable[Tensor]:
    return [torch.randn(6, *SIZE, generator=torch.Generator().manual_seed(0))]


def shuffled(count: int) -> list[int]:
    order: list[int] = torch.randperm(count, generator=torch.Generator().manual_seed(1)).tolist()
    assert order != list(range(count))
    return order


def settled(model: nn.Module) -> nn.Module:
    """No two channels of norms and slopes are alike, or an order would not show."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.rpartition(".")[2] in ("running_mean", "running_var") or tensor.ndim == 1:
                tensor.copy_(0.5 + torch.rand(tensor.shape))
    return model.eval()


def vgg_like() -> nn.Module:
    return settled(nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12), nn.PReLU(12), nn.Dropout(),
        nn.Conv2d(12, 12, 3, padding="same", groups=12), nn.ZeroPad2d(1), nn.AvgPool2d(2),
        nn.Flatten(), nn.BatchNorm1d(192), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 5),
    ))  # fmt: skip


class Wired(nn.Module):
    """Two convolutions, and what is done to their outputs."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.a, self.b = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.head = nn.Linear(12 if kind == "concatenated" else 6, 5)
        if kind == "tied":
            self.c = nn.Conv2d(6, 6, 3, padding=1)
            self.c.weight = self.b.weight
        if kind == "grouped":
            self.paired = nn.Conv2d(6, 6, 3, groups=2)
        if kind == "in training":
            self.aside = nn.Conv2d(6, 2, 1)
        self.register_buffer("scale", torch.rand(6, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        a = F.relu(self.a(x))
        b = DONE[self.kind](self, self.b(a), a) if self.kind in DONE else self.b(a)
        return (b, self.after(b)) if self.kind == "returned" else self.after(b)

    def after(self, b: Tensor) -> Tensor:
        head: Tensor = self.head(b.mean((2, 3)))
        return head


DONE: dict[str, Callable[[Wired, Tensor, Tensor], Tensor]] = {
    "called twice": lambda model, b, a: model.b(F.relu(b)),
    "tied": lambda model, b, a: model.c(F.relu(b)),
    "added": lambda model, b, a: b + a,
    "added in place": lambda model, b, a: b.add_(a),
    "concatenated": lambda model, b, a: torch.cat([b, a], 1),
    "reshaped": lambda model, b, a: b.view(len(b), 3, 2, *b.shape[2:]).transpose(1, 2).flatten(1, 2),
    "averaged": lambda model, b, a: b - b.mean(1, keepdim=True),
    "softmax": lambda model, b, a: b.softmax(1),
    "scaled": lambda model, b, a: b * model.get_buffer("scale"),
    "selected": lambda model, b, a: torch.cat([b[:, :3], b[:, 3:].relu()], 1),
    "grouped": lambda model, b, a: model.paired(b),
    "gated by itself": lambda model, b, a: b * torch.sigmoid(b) + F.adaptive_max_pool2d(b, 1),
    "in training": lambda model, b, a: b + model.aside(a).mean() if model.training else b,
}


@pytest.mark.parametrize("name", ["0", "4"])
def test_another_order_leaves_a_vgg_what_it_computes(name: str) -> None:
    model = vgg_like()
    before = copy.deepcopy(model.state_dict())
    order = shuffled(model.get_submodule(name).out_channels)  # type: ignore[arg-type]
    found = reorder_network(model, {name: order}, batches)
    assert found.orders == {name: order}
    assert not found.fixed
    x = torch.randn(4, *SIZE)
    with torch.no_grad():
        torch.testing.assert_close(found.model(x), model(x), rtol=1e-4, atol=1e-5)
        first = [nn.Sequential(*list(network.children())[: int(name) + 1])(x) for network in (model, found.model)]
    torch.testing.assert_close(first[1], first[0][:, order], rtol=1e-4, atol=1e-5)  # it is really in that order
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())


def test_it_also_computes_the_same_in_training() -> None:
    model = vgg_like()
    found = reorder_network(model, {name: shuffled(n) for name, n in (("0", 8), ("4", 12))}, batches)
    assert set(found.orders) == {"0", "4"}
    for network in (model, found.model):
        network.train()
        network[7].eval()  # type: ignore[index]  # dropout draws for each position
    x = torch.randn(4, *SIZE)
    torch.testing.assert_close(found.model(x), model(x), rtol=1e-3, atol=1e-4)


def test_channels_that_meet_only_themselves_may_be_in_any_order() -> None:
    model = settled(Wired("gated by itself"))
    found = reorder_network(model, {"a": shuffled(6), "b": shuffled(6)}, batches)
    assert set(found.orders) == {"a", "b"}
    x = torch.randn(4, *SIZE)
    with torch.no_grad():
        torch.testing.assert_close(found.model(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "name", "reason"),
    [
        ("added", "b", "they are added to values in another order"),
        ("added", "a", "they are added to values in another order"),
        ("added in place", "b", "they are added to values in another order"),
        ("concatenated", "b", "they are concatenated with others"),
        ("reshaped", "b", "view mixes them in an order of its own"),
        ("averaged", "b", "mean mixes them in an order of its own"),
        ("softmax", "b", "what softmax does"),
        ("scaled", "b", "they are multiplied by values in another order"),
        ("selected", "b", "what slice does"),
        ("grouped", "b", "conv2d mixes them"),
        ("returned", "b", "the network returns them"),
        ("called twice", "b", "the layer is called 2 times"),
        ("called twice", "a", "b.weight is used by several layers"),
        ("tied", "b", "tied to another layer"),
        ("tied", "a", "c.weight is used by several layers"),
        ("in training", "a", "aside.weight is not used in evaluation"),
    ],
)
def test_an_order_that_something_depends_on_is_kept_with_the_reason(kind: str, name: str, reason: str) -> None:
    model = settled(Wired(kind))
    found = reorder_network(model, {name: shuffled(6)}, batches)
    assert found.model is model
    assert not found.orders
    assert reason in found.fixed[name]


def test_a_network_that_cannot_be_exported_keeps_its_order() -> None:
    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.b(self.a(x)) if float(x.sum()) > -1e9 else x
            return y

    assert "can't trace" in find_fixed_orders(Asking().eval(), ["a"], batches)["a"]


@pytest.mark.parametrize("left_out", range(12))
def test_a_neighbor_that_is_left_out_is_noticed_and_all_is_put_back(left_out: int) -> None:
    model = vgg_like()
    before = copy.deepcopy(model.state_dict())
    reach = find_reaches(model, ["4"], SIZE)[0]["4"]
    assert len(reach.others) == 12  # norm 4, slopes 1, depthwise 2, the flat norm 4, the linear layer
    wrong = replace(reach, others=reach.others[:left_out] + reach.others[left_out + 1 :])
    probes = take_probes(model, batches, 4)
    assert "would differ by" in permute_channels_(model, wrong, shuffled(12), probes)
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert not permute_channels_(model, reach, shuffled(12), probes)


def test_equal_outputs_prove_nothing_where_they_do_not_depend_on_the_order() -> None:
    model = vgg_like()
    with torch.no_grad():
        model.get_parameter("15.weight").zero_()
    assert find_fixed_orders(model, ["0"], batches) == {"0": "the outputs of the network do not depend on them"}


def test_outputs_that_are_no_numbers_prove_nothing() -> None:
    model = vgg_like()
    reach = find_reaches(model, ["0"], SIZE)[0]["0"]
    [probe] = take_probes(model, batches, 4)
    assert permute_channels_(model, reach, shuffled(8), [Probe(probe.images * torch.nan, probe.outputs)])


def test_what_is_no_order_is_refused() -> None:
    model = vgg_like()
    reach = find_reaches(model, ["0"], SIZE)[0]["0"]
    with pytest.raises(ConversionError, match="is not an order of 8 channels"):
        permute_channels_(model, reach, [0, 0, 1, 2, 3, 4, 5, 6], take_probes(model, batches, 4))


def test_volumes_and_signals_are_followed_too() -> None:
    for rank, conv, norm, pool in (
        (1, nn.Conv1d, nn.BatchNorm1d, nn.MaxPool1d),
        (3, nn.Conv3d, nn.BatchNorm3d, nn.AvgPool3d),
    ):
        model = settled(nn.Sequential(
            conv(2, 6, 3, padding=1), norm(6), nn.GELU(), pool(2), conv(6, 4, 1),
            nn.Flatten(), nn.Linear(4 * 3**rank, 3),
        ))  # fmt: skip
        x = torch.randn(3, 2, *[6] * rank)
        found = reorder_network(model, {"0": shuffled(6), "4": shuffled(4)}, lambda x=x: [x])  # type: ignore[misc]
        assert set(found.orders) == {"0", "4"}
        with torch.no_grad():
            torch.testing.assert_close(found.model(x), model(x), rtol=1e-4, atol=1e-5)
