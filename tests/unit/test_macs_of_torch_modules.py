"""Every module of torch.nn that has matrices or kernels is counted, refused, or known to be free."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cruciform.errors import CountError, SpecError
from cruciform.measure import closed_form, macs
from cruciform.measure.macs import profile

# What constructors are given: for a module where it is named here, else for each required argument, else 4.
OPTIONS: dict[str, dict[str, Any]] = {
    **{key: {"input_size": 4, "hidden_size": 4} for key in ("RNN", "GRU", "LSTM")},
    "Transformer": {"d_model": 4, "nhead": 2, "dim_feedforward": 8},
    "FractionalMaxPool2d": {"kernel_size": 2, "output_size": 2},
    "FractionalMaxPool3d": {"kernel_size": 2, "output_size": 2},
    "Unflatten": {"dim": 1, "unflattened_size": (2, 2)},
}
ARGUMENTS: dict[str, Any] = {
    "kernel_size": 3, "num_layers": 1, "nhead": 2, "num_heads": 2, "cutoffs": [2],
    "encoder_layer": nn.TransformerEncoderLayer(4, 2, 8), "decoder_layer": nn.TransformerDecoderLayer(4, 2, 8),
}  # fmt: skip
BASES = {"Module", "Container", "RNNBase", "RNNCellBase"}

ONE, LINE, MAP, VOLUME, STEPS = (4,), (4, 6), (4, 6, 6), (4, 6, 6, 6), (6, 4)
HEADS = 6 * (4 * 16 + 2 * 4)  # for 6 sequences of one step: four projections, and each step by itself, twice
WIDE, NARROW = 6 * 2 * 4 * 2048, 6 * 2 * 4 * 8  # the two linear layers of a transformer's block
# name of the module -> size of an input and its multiply-accumulates by hand
COUNTED: dict[str, tuple[tuple[int, ...], int]] = {
    "Linear": (ONE, 16),
    "Bilinear": (ONE, 4 * 16 + 16),
    **{f"Conv{rank}d": (size, 16 * 3**rank * 4**rank) for rank, size in enumerate((LINE, MAP, VOLUME), 1)},
    **{f"ConvTranspose{rank}d": (size, 16 * 3**rank * 6**rank) for rank, size in enumerate((LINE, MAP, VOLUME), 1)},
    **{name: (STEPS, 6 * gates * 32) for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))},
    **{f"{name}Cell": (ONE, gates * 32) for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))},
    "MultiheadAttention": (STEPS, HEADS),
    "TransformerEncoderLayer": (STEPS, HEADS + WIDE),
    "TransformerDecoderLayer": (STEPS, 2 * HEADS + WIDE),
    "TransformerEncoder": (STEPS, HEADS + NARROW),
    "TransformerDecoder": (STEPS, 2 * HEADS + NARROW),
    "Transformer": (STEPS, 6 * (HEADS + NARROW) + 6 * (2 * HEADS + NARROW)),
    # 4 classes, 2 of them in a cluster: a head of 3 outputs, a tail 4 → 1 → 2
    "AdaptiveLogSoftmaxWithLoss": (ONE, 4 * 3 + 4 + 2),
}
FREE = {"Embedding", "EmbeddingBag"}  # rows are looked up, and summed at most
REFUSED = {"LinearCrossEntropyLoss"}
INPUTS = dict.fromkeys("Bilinear Transformer TransformerDecoder TransformerDecoderLayer".split(), 2)
INPUTS["MultiheadAttention"] = 3


def modules_of_torch() -> dict[str, type[nn.Module]]:
    found = {name: kind for name, kind in vars(nn).items() if isinstance(kind, type) and issubclass(kind, nn.Module)}
    return {name: kind for name, kind in found.items() if name not in BASES}


def make(name: str) -> nn.Module:
    kind: type[nn.Module] = getattr(nn, name)
    arguments = list(inspect.signature(kind.__init__).parameters.values())[1:]
    needed = [each.name for each in arguments if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    return kind(**OPTIONS.get(name) or {name: ARGUMENTS.get(name, 4) for name in needed})


class Fed(nn.Module):
    """Gives a layer as many inputs as it asks for."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        if isinstance(self.layer, nn.AdaptiveLogSoftmaxWithLoss):
            return self.layer.log_prob(x)
        if type(self.layer).__name__ in FREE:
            return self.layer(torch.zeros(1, 2, dtype=torch.long, device=x.device))
        if type(self.layer).__name__ in REFUSED:
            return self.layer(x, torch.zeros(1, dtype=torch.long, device=x.device))
        return self.layer(*[x] * INPUTS.get(type(self.layer).__name__, 1))


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning", "ignore:Lazy modules:UserWarning",
                            "ignore:enable_nested_tensor:UserWarning")  # fmt: skip
def test_every_module_of_torch_with_matrices_is_known_here() -> None:
    with torch.device("meta"):
        made = {name: make(name) for name in modules_of_torch()}
    lazy = {name for name, module in made.items() if any(map(nn.parameter.is_lazy, module.parameters()))}
    found = {name for name in made.keys() - lazy if any(p.ndim > 1 for p in made[name].parameters())}
    assert found - REFUSED == {*COUNTED, *FREE}
    assert found <= {*COUNTED, *FREE, *REFUSED}
    assert {name.removeprefix("Lazy") for name in lazy} <= made.keys()
    for name in lazy:
        with pytest.raises(SpecError, match="is a lazy layer"):
            profile(make(name), MAP)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", COUNTED)
def test_every_module_of_torch_with_matrices_is_counted(name: str, training: bool) -> None:
    size, expected = COUNTED[name]
    assert profile(Fed(make(name)), size, training=training).macs == expected


@pytest.mark.parametrize("name", sorted(FREE))
def test_what_only_looks_up_rows_is_free_and_named(name: str) -> None:
    counted = profile(Fed(make(name)), ONE)
    assert (counted.params, counted.macs) == (16, 0)
    assert set(counted.uncounted) & {"embedding", "embedding_bag"}


@pytest.mark.parametrize("name", sorted(REFUSED & modules_of_torch().keys()))
def test_what_has_no_closed_form_is_refused(name: str) -> None:
    with pytest.raises(CountError, match="which has no formula here"):
        profile(Fed(make(name)), ONE)


class Applied(nn.Module):
    """Does something to its input."""

    def __init__(self, apply: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.apply_to = apply

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_to(x)


def kernel(x: Tensor, *shape: int) -> Tensor:
    return torch.zeros(shape, device=x.device)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda x: F.bilinear(x, x, kernel(x, 2, 5, 5)), 7 * (2 * 25 + 2 * 5)),
        (lambda x: F.bilinear(input1=x, input2=x[..., :3], weight=kernel(x, 2, 5, 3)), 7 * (2 * 15 + 2 * 3)),
        (lambda x: kernel(x, 7, 7).addmm_(x[0], x[0].T), 7 * 7 * 5),
        (lambda x: kernel(x, 7).addmv_(x[0], x[0, 0]), 7 * 5),
        (lambda x: kernel(x, 1, 7, 7).baddbmm_(x, x.mT), 7 * 7 * 5),
        (lambda x: kernel(x, 7, 7).addbmm_(x, x.mT), 7 * 7 * 5),
        (lambda x: torch.linalg.matmul(x, x.mT), 7 * 7 * 5),
        (lambda x: torch._int_mm(kernel(x, 32, 16).to(torch.int8), kernel(x, 16, 8).to(torch.int8)), 32 * 16 * 8),
        (lambda x: torch.conv_tbc(x.mT.transpose(0, 1), kernel(x, 3, 7, 4), kernel(x, 4), pad=1), 5 * 3 * 7 * 4),
    ],
)
def test_products_that_the_dispatchers_counter_does_not_know_are_counted(
    work: Callable[[Tensor], Tensor], expected: int
) -> None:
    assert profile(Applied(work), (7, 5)).macs == expected


def test_a_bilinear_layer_costs_what_its_einsum_does_pair_by_pair() -> None:
    layer = nn.Bilinear(5, 3, 2, bias=False)

    def by_pairs(x: Tensor) -> Tensor:
        weighted = torch.einsum("ni,oij->noj", x[0], layer.weight.detach().to(x.device))
        return torch.einsum("noj,nj->no", weighted, x[0, :, :3])

    x = torch.randn(1, 7, 5)
    torch.testing.assert_close(by_pairs(x), layer(x[0], x[0, :, :3]))
    counted = profile(Applied(lambda x: layer(x, x[..., :3])), (7, 5))
    assert counted.macs == profile(Applied(by_pairs), (7, 5)).macs == 7 * (2 * 5 * 3 + 2 * 3)


@pytest.mark.parametrize("side", ["arithmetic", "dispatcher"])
def test_the_two_counts_of_a_bilinear_layer_check_each_other(monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    if side == "arithmetic":
        monkeypatch.setitem(closed_form.FORMULAS, "bilinear", lambda *_: closed_form.Work(1))
    else:
        monkeypatch.setitem(macs.BY_SHAPES, torch.ops.aten._trilinear, lambda *_, **__: 2)
    with pytest.raises(CountError, match="calls bilinear"):
        profile(Fed(nn.Bilinear(4, 4, 4)), ONE)
