import json
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cruciform.errors import CountError, ShapeError
from cruciform.measure import closed_form
from cruciform.measure.macs import profile
from cruciform.models.zoo import create_model
from cruciform.nn.composite import CompositeConv
from cruciform.schemes import make_plan
from cruciform.spec import ConvSpec


class Mixed(nn.Module):
    """A composite, a reflecting and a functional convolution, a transposed one, a matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.composite = CompositeConv(make_plan(ConvSpec(3, 8, 3, padding=1), "lr"))
        self.reflecting = nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")
        self.kernel = nn.Parameter(torch.randn(4, 8, 3, 3))
        self.norm = nn.BatchNorm2d(4)
        self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.head = nn.Linear(2, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.reflecting(self.composite(x)).relu_()
        x = self.up(self.norm(F.conv2d(x, self.kernel, padding="same")))
        return self.head(x.mean((2, 3))) @ torch.ones(5, 2, device=x.device)


def test_every_layer_is_counted_as_by_hand() -> None:
    counted = profile(Mixed(), (3, 10, 12))
    rows = {row.name: (row.params, row.macs) for row in counted.layers}
    assert rows == {
        "": (4 * 8 * 9, 4 * 8 * 9 * 120 + 5 * 2),
        "composite": (3 * 3 * 8 + 8, 3 * 3 * 8 * 120),
        "reflecting": (9 * 64 + 8, 9 * 64 * 120),
        "norm": (8, 0),
        "up": (4 * 2 * 4 + 2, 4 * 2 * 4 * 120),
        "head": (2 * 5 + 5, 2 * 5),
    }
    assert counted.params == sum(params for params, _ in rows.values())
    assert counted.macs == sum(macs for _, macs in rows.values())
    assert counted.macs_paper == counted.macs + 8 + 8 + 2 + 5


def test_what_is_not_counted_is_named() -> None:
    assert {"relu_", "batch_norm", "pad", "mean"} <= set(profile(Mixed(), (3, 10, 12)).uncounted)


def test_the_model_is_left_as_it_was() -> None:
    model = Mixed().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    profile(model, (3, 10, 12))
    assert model.training
    assert model.norm.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not model.composite._forward_hooks


def test_a_layer_used_twice_works_twice_but_has_its_parameters_once() -> None:
    conv = nn.Conv2d(4, 4, 1)
    counted = profile(nn.Sequential(conv, nn.ReLU(), conv), (4, 5, 5))
    assert (counted.params, counted.macs) == (20, 2 * 16 * 25)


def test_tied_weights_are_counted_once() -> None:
    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.weight = first.weight
    assert profile(nn.Sequential(first, second), (6,)).params == 36 + 6 + 6


def test_weight_norm_counts_the_tensors_that_are_there() -> None:
    conv = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    counted = profile(conv, (3, 5, 5))
    assert (counted.params, counted.macs) == (sum(p.numel() for p in conv.parameters()), 9 * 3 * 4 * 9)


def test_what_computes_a_weight_belongs_to_its_layer() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    for model, name in ((nn.Sequential(layer), "0"), (layer, "")):
        assert [(row.name, row.params) for row in profile(model, (3, 8, 8)).layers] == [(name, 4 * 28 + 4)]


def test_arguments_may_be_named() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4, 3, 3, 3))

        def forward(self, x: Tensor) -> Tensor:
            maps = F.conv2d(input=x, weight=self.weight).flatten(2)
            both = torch.matmul(input=maps, other=maps.mT)
            return F.scaled_dot_product_attention(query=both, key=both, value=both)

    convolution, product, attention = 36 * 4 * 27, 4 * 36 * 4, 2 * 4 * 4 * 4
    assert profile(Named(), (3, 8, 8)).macs == convolution + product + attention


def test_counting_on_real_tensors_in_training_leaves_buffers_alone() -> None:
    class Looks(nn.BatchNorm2d):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * float(x.sum() + 1)

    norm = Looks(3)
    profile(nn.Sequential(norm), (3, 8, 8), training=True)
    assert int(norm.num_batches_tracked) == 0


def test_a_norm_behind_a_global_pooling_is_counted_in_training() -> None:
    layers = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(4))
    counted = profile(layers, (3, 8, 8), training=True)
    assert (counted.macs, counted.notes) == (64 * 3 * 4, ())
    assert all(module.training for module in layers.modules())


def test_attention_is_counted() -> None:
    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.bmm(x, x.transpose(1, 2)) @ x

    counted = profile(Attention(), (7, 5))
    assert counted.macs == 2 * 7 * 7 * 5


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_layers_are_counted(kind: type[nn.Module], gates: int) -> None:
    counted = profile(kind(5, 6, bidirectional=True, batch_first=True), (7, 5))
    assert counted.macs == 2 * gates * (5 * 6 + 6 * 6) * 7
    assert counted.macs_paper == counted.macs + 2 * 2 * gates * 6


def test_a_parameter_that_is_passed_on_as_an_input_is_no_stumbling_block() -> None:
    class Latent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.latent = nn.Parameter(torch.zeros(1, 2, 5))
            self.project = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.project(self.latent.expand(x.shape[0], -1, -1))

    assert profile(Latent(), (4,)).macs == 2 * 5 * 3


def test_fused_attention_is_counted_on_real_tensors_too() -> None:
    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            heads = F.scaled_dot_product_attention(*[x.reshape(1, 2, 7, 4)] * 3)
            return heads if x.sum().item() == 0 else x

    counted = profile(Attention(), (7, 8))
    assert "run on real tensors" in counted.notes[0]
    assert counted.macs == 2 * 2 * 7 * 7 * 4


@pytest.mark.parametrize("training", [False, True])
def test_multi_head_attention_is_counted(training: bool) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.heads(x, x, x, need_weights=False)[0]

    counted = profile(Attention(), (7, 8), training=training)
    assert counted.macs == 4 * 7 * 8 * 8 + 2 * 7 * 7 * 8
    assert counted.macs_paper == counted.macs + 4 * 8


@pytest.mark.parametrize(
    ("equation", "macs"),
    [("bij,bkj->bik", 7 * 7 * 5), ("bij,bkj->b", 5), ("bij,bij", 7 * 5), ("bij,bkl->bik", 0), ("bij->bi", 0),
     ("...ij,...kj->...ik", 7 * 7 * 5), ("...j,kij->...k", 7 * 5), ("...j,...j", 7 * 5), ("b...j,b...j->...", 7 * 5)],
)  # fmt: skip
def test_einsum_is_counted(equation: str, macs: int) -> None:
    class Einsum(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum(equation, *[x] * (equation.count(",") + 1))

    assert profile(Einsum(), (7, 5)).macs == macs


@pytest.mark.parametrize(
    ("product", "macs"),
    [
        (lambda x: x @ x[0, 0], 7 * 5),
        (lambda x: x[0, 0] @ x.mT, 7 * 5),
        (lambda x: x[0] @ x[0, 0] @ torch.ones_like(x[0, :, 0]), 7 * 5 + 7),
        (lambda x: torch.mv(input=x[0], vec=x[0, 0]), 7 * 5),
        (lambda x: torch.dot(x[0, 0], tensor=x[0, 0]), 5),
        (lambda x: torch.addmv(x[0, :, 0], x[0], vec=x[0, 0]), 7 * 5),
        (lambda x: torch.addbmm(x[0, :, :1], x, x[:, :1].mT), 7 * 5),
        (lambda x: torch.inner(x, x[0]), 7 * 7 * 5),
        (lambda x: torch.inner(x[0, 0], x[0, 0]), 5),
        (lambda x: torch.tensordot(x, x[0], ([2], [1])), 7 * 7 * 5),
        (lambda x: torch.tensordot(a=x, b=x.mT, dims=([0, 2], [0, 1])), 7 * 7 * 5),
        (lambda x: torch.tensordot(x, x[0]), 7 * 5),
    ],
)
def test_products_of_every_kind_are_counted(product: Callable[[Tensor], Tensor], macs: int) -> None:
    class Product(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return product(x)

    assert profile(Product(), (7, 5)).macs == macs


@pytest.mark.parametrize(("cell", "gates"), [(nn.GRUCell, 3), (nn.LSTMCell, 4), (nn.RNNCell, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_step_of_a_recurrent_network_is_counted(cell: type[nn.Module], gates: int, bias: bool) -> None:
    counted = profile(cell(5, 6, bias=bias), (5,))
    assert counted.macs == gates * 6 * (5 + 6)
    assert counted.macs_paper == counted.macs + bias * 2 * gates * 6


def test_counts_that_disagree_are_refused_with_the_layers_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(closed_form.FORMULAS, "linear", lambda *_, **__: closed_form.Work(1))
    with pytest.raises(CountError, match="layer 'head' calls linear: 1 multiply-accumulates by arithmetic, 10 by"):
        profile(Mixed(), (3, 10, 12))


def test_work_that_only_the_dispatcher_sees_is_refused_and_not_lost() -> None:
    class Unknown(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("bij,bkj,bkl->bil", x, x, x)

    with pytest.raises(CountError, match="the network itself calls einsum, which has no formula here"):
        profile(Unknown(), (4, 5))


def test_parameters_that_do_not_fit_the_plan_are_refused() -> None:
    layer = CompositeConv(make_plan(ConvSpec(3, 8, 3), "lr"))
    layer.extra = nn.Parameter(torch.zeros(3))
    with pytest.raises(CountError, match="layer '' has .* parameters, but its plan"):
        profile(layer, (3, 5, 5))


def test_a_network_that_looks_at_values_is_counted_on_real_tensors_and_says_so() -> None:
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x) if x.sum().item() >= 0 else x

    counted = profile(Looks(), (3, 2, 2))
    assert counted.macs == 3 * 4 * 4
    assert "run on real tensors" in counted.notes[0]


def test_an_input_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match="does not run on an input of"):
        profile(nn.Conv2d(3, 4, 3), (3, 2, 2))


def test_an_error_inside_a_layer_is_told_and_not_hidden_by_a_count() -> None:
    layer = CompositeConv(make_plan(ConvSpec(3, 8, 3), "lr"))
    with pytest.raises(ShapeError, match="smaller than the kernel, 3×3"):
        profile(nn.Sequential(nn.ReLU(), layer), (3, 2, 2))


def test_a_profile_as_json_csv_and_rows() -> None:
    counted = profile(Mixed(), (3, 10, 12))
    assert json.loads(counted.to_json())["macs"] == counted.macs
    lines = counted.to_csv().splitlines()
    assert len(lines) == len(counted.layers) + 2
    assert lines[-1].split(",")[-2:] == [str(counted.macs), str(counted.macs_paper)]
    assert counted.rows[1][3] == "80"
    assert str(counted).splitlines()[-1].startswith("not counted, by convention: ")


def test_a_profile_is_a_table_in_notebooks_with_every_text_escaped() -> None:
    network = nn.Sequential()
    network.add_module("<b>", nn.Conv2d(3, 4, 3))
    shown = profile(network, (3, 5, 5))._repr_html_()
    assert shown.startswith("<table><caption>Parameters and MACs for an input of 3×5×5</caption>")
    assert "<b>" not in shown
    assert "&lt;b&gt;" in shown


def test_a_module_in_two_places_and_tied_weights_are_not_changed_by_counting() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 3, 3, padding=1)
            self.again = nn.Sequential(self.first)
            self.tied = nn.Conv2d(3, 3, 3, padding=1)
            self.tied.weight = self.first.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.tied(self.again(self.first(x)))

    model = Twice()
    before = {name: id(tensor) for name, tensor in model.named_parameters(remove_duplicate=False)}
    counted = profile(model, (3, 8, 8))
    assert counted.macs == 3 * 64 * 81
    assert counted.notes == ()
    assert {name: id(tensor) for name, tensor in model.named_parameters(remove_duplicate=False)} == before
    assert all(tensor.device.type == "cpu" for tensor in model.parameters())


def test_counting_the_training_form() -> None:
    """GoogLeNet is counted as deployed unless asked otherwise: its heads run in training only."""
    with torch.device("meta"):
        model = create_model("googlenet")
    assert profile(model.train(), (3, 224, 224)).macs < profile(model, (3, 224, 224), training=True).macs


def test_counter_blind_to_f_conv() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(4, 3, 3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(x, self.kernel)

    assert profile(Functional(), (3, 5, 5)).macs == 4 * 3 * 9 * 9
