"""Runs a network again and again from where a layer starts, without what comes before it and is as it was.

Layers are fitted, and tried, in the order in which they run: what has ended before the next one starts changes no more.
So a pass of a network of n layers for each of them costs about one pass for all, not n/2.

Modules that have ended do not run: those whose outputs are still read give what they gave to each batch, and all others
give NaN, so that nobody reads them unseen. Which are still read is found by trying, with NaN in the place of their
outputs, however the network is written. Before the first pass for a layer one input is run in full and compared: a
network that keeps values aside, or that can't run so for another reason, runs in full each time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

MEMORY = 2e9
"""Bytes of outputs that are kept; a pass that would need more starts where an earlier one did."""
SAME = 1e-3
"""A value that differs by less, in units of the largest one, is the same: the rest is rounding."""

Run = Callable[[Tensor], Sequence[Tensor]]
"""Runs the network on a batch, and returns all that is looked at."""


@dataclass
class _Start:
    """Where a pass starts.

    Attributes:
        kept: By module that has ended, what it gave to each batch; NaN where nobody reads it.
        read: Those of the modules that are still read.
        right_for: The layer before which this was seen to be right.
    """

    kept: dict[str, list[Tensor]] = field(default_factory=dict)
    read: frozenset[str] = frozenset()
    right_for: str | None = None


class Prefix:
    """What a network gives before some layer, for the same batches in each pass.

    Args:
        model: The network, in evaluation mode.
        image: One input, (1, channels, …).
    """

    def __init__(self, model: nn.Module, image: Tensor) -> None:
        self.model, self._image = model, image
        self._calls = ModuleCalls(model, image)
        self._start = _Start()

    @torch.no_grad()
    def over(self, layer: str, run: Run, batches: Iterable[Tensor]) -> Iterator[tuple[Tensor, Sequence[Tensor]]]:
        """Run all batches from where a layer starts, and yield each with what is looked at.

        Args:
            layer: What has ended before it starts gives what it gave in earlier passes.
            run: Of the whole network, as if it ran in full.
            batches: The same ones in each pass.
        """
        start = self._start
        after: _Start | None = None
        if start.right_for != layer:
            inside = self._calls.ended_before(layer)
            ended = _outermost(inside)
            truth, wanted = self._in_full(ended | start.kept.keys(), run)
            if start.kept.keys() <= inside and self._is_right(start, truth, wanted, run):
                start.right_for = layer
            else:
                start = self._start = _Start()
            if start.kept.keys() != ended:
                read = self._read(sorted(ended), truth, run)
                after = _Start({name: _carried(start, name, is_read=name in read) for name in ended}, frozenset(read))
        held = 0
        for number, images in enumerate(batches):
            with ExitStack() as stack:
                for name, outputs in start.kept.items():
                    stack.enter_context(_giving(self.model.get_submodule(name), outputs[number]))
                if after:
                    stack.enter_context(self._keeping(after, beyond=start))
                seen = run(images)
            if after:
                held += sum(outputs[number].untyped_storage().nbytes() for outputs in after.kept.values())
                after = after if held <= MEMORY else None
            yield images, seen
        if after:
            self._start = after

    def _in_full(self, names: Iterable[str], run: Run) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Return what some modules give, and what is looked at, of one input."""
        truth = _Start(kept={name: [] for name in names}, read=frozenset(names))
        with self._keeping(truth, beyond=_Start()):
            seen = [each.clone() for each in run(self._image)]
        run(-self._image)  # what a network keeps aside is then of another input
        return {name: outputs[0] for name, outputs in truth.kept.items() if outputs}, seen

    def _is_right(self, start: _Start, truth: Mapping[str, Tensor], wanted: Sequence[Tensor], run: Run) -> bool:
        """Return whether what is looked at is the same without the modules that do not run."""
        given = {name: truth[name] if name in start.read else _nan_like(truth[name]) for name in start.kept}
        found = self._try(given, run)
        return found is not None and all(map(_are_same, wanted, found))

    def _read(self, names: Sequence[str], truth: Mapping[str, Tensor], run: Run) -> list[str]:
        """Return those of some modules whose outputs are still read, when all that have ended give what they gave."""
        given = {name: _nan_like(y) if name in names else y for name, y in truth.items()}
        found = self._try(given, run)
        if found is not None and not any(bool(each.isnan().any()) for each in found):
            return []
        if len(names) == 1:
            return list(names)
        middle = len(names) // 2
        return self._read(names[:middle], truth, run) + self._read(names[middle:], truth, run)

    def _try(self, given: Mapping[str, Tensor], run: Run) -> Sequence[Tensor] | None:
        """Return what is looked at of one input with what some modules give; None where it can't run so."""
        with ExitStack() as stack:
            for name, y in given.items():
                stack.enter_context(_giving(self.model.get_submodule(name), y))
            try:
                return run(self._image)
            except Exception:  # a network's own code, which may refuse NaN in any way
                return None

    @contextmanager
    def _keeping(self, after: _Start, *, beyond: _Start) -> Iterator[None]:
        """Keep what modules give; of those that do not run any more it is kept already."""
        handles: list[RemovableHandle] = []
        for name in after.kept.keys() - beyond.kept.keys():

            def keep(module: nn.Module, args: Any, y: Tensor, name: str = name) -> None:
                # A copy: what comes after may write into it.
                after.kept[name].append(y.detach().clone() if name in after.read else _nan_like(y))

            handles.append(self.model.get_submodule(name).register_forward_hook(keep))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


class ModuleCalls:
    """In which order the modules of a network start and end, from one run of one input.

    Args:
        model: The network, in evaluation mode.
        image: The input, (1, channels, …).
    """

    def __init__(self, model: nn.Module, image: Tensor) -> None:
        self._clock = 0
        self._started: dict[str, int] = {}
        self._ended: dict[str, int] = {}  # of those that are called once and give one tensor
        calls: dict[str, int] = {}
        handles: list[RemovableHandle] = []
        for name, module in model.named_modules():

            def start(module: nn.Module, args: Any, name: str = name) -> None:
                self._clock += 1
                calls[name] = calls.get(name, 0) + 1
                self._started.setdefault(name, self._clock)

            def end(module: nn.Module, args: Any, output: Any, name: str = name) -> None:
                self._clock += 1
                scripted = isinstance(module, torch.jit.ScriptModule)  # its forward can't be replaced
                if isinstance(output, Tensor) and output.is_floating_point() and not scripted:
                    self._ended[name] = self._clock

            handles += [module.register_forward_pre_hook(start), module.register_forward_hook(end)]
        try:
            with torch.no_grad():
                model(image)
        finally:
            for handle in handles:
                handle.remove()
        self._ended = {name: clock for name, clock in self._ended.items() if calls[name] == 1}

    @property
    def order(self) -> list[str]:
        """The modules in the order in which they first start."""
        return list(self._started)

    def ended_before(self, layer: str) -> set[str]:
        """Return the modules that have ended when a layer first starts."""
        return {name for name, clock in self._ended.items() if clock < self._started[layer]}


def _outermost(names: Set[str]) -> set[str]:
    """Return those modules that are not inside others of them."""

    def parents(name: str) -> Iterator[str]:
        words = name.split(".")
        return (".".join(words[:count]) for count in range(1, len(words)))

    return {name for name in names if not any(parent in names for parent in parents(name))}


def _carried(start: _Start, name: str, *, is_read: bool) -> list[Tensor]:
    """Return what is kept already of a module that has ended, without the values where nobody reads them any more."""
    outputs = start.kept.get(name, [])
    return outputs if is_read else [_nan_like(y) for y in outputs]


@contextmanager
def with_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Let a module compute something else; its own code does not run."""
    own = vars(module)
    before = own.get("forward")
    own["forward"] = forward
    try:
        yield
    finally:
        del own["forward"]
        if before is not None:
            own["forward"] = before


def _giving(module: nn.Module, y: Tensor) -> AbstractContextManager[None]:
    """Let a module give something without running; a copy, since what comes after may write into it."""
    return with_forward(module, lambda *args, **words: y.clone())


def _nan_like(y: Tensor) -> Tensor:
    """Return NaN in the shape of a tensor, which takes no memory."""
    return y.new_full((), torch.nan).expand(y.shape)


def _are_same(before: Tensor, after: Tensor) -> bool:
    return before.shape == after.shape and bool(((before - after).abs() <= SAME * before.abs().amax()).all())
