"""Trace a network: every torch function that it calls, by the layer that calls it.

The meter and the doctor both stand on this. It sees functional calls (``F.conv2d`` in a ``forward``) as well as
modules, since it listens below both; a ``CompositeConv`` is seen as one call, not as its inner convolutions.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from numbers import Integral
from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn
from torch.jit import ScriptModule
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from cruciform.errors import ShapeError, SpecError, first_line, reraise_as
from cruciform.nn.composite import CompositeConv

CONVOLUTION_CALLS = frozenset({"conv1d", "conv2d", "conv3d"})
TRANSPOSED_CALLS = frozenset({"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})
PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@dataclass
class Call:
    """One call that a network made.

    Attributes:
        layer: The dotted name of the innermost module that made it; empty for the network itself.
        operation: The function's name, such as ``conv2d``.
        args: What it was given; may be changed before the call.
        kwargs: What it was given by name.
        module: The layer itself where the call is a whole ``CompositeConv``.
        note: Room for what an observer wants to remember from before to after the call.
    """

    layer: str
    operation: str
    args: Args
    kwargs: Kwargs
    module: CompositeConv | None = None
    note: Any = field(default=None, repr=False)


class Tracer(TorchFunctionMode):
    """Base of all observers; used as a context around one run of the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._model = model
        self._names: list[str] = [""]
        self._whole: list[Call] = []
        self._handles: list[RemovableHandle] = []
        self._busy = False

    @abstractmethod
    def before(self, call: Call) -> None:
        """Handle a call before it is made."""

    @abstractmethod
    def after(self, call: Call, output: Any) -> None:
        """Handle a call after it was made."""

    def __enter__(self) -> Self:
        for name, module in self._model.named_modules():
            if isinstance(module, ScriptModule):
                where = f"{type(self._model).__name__}{name and f': its {name}'}"
                raise SpecError(f"{where} is scripted or traced, so its operations are not visible; give the network "
                                "before torch.jit")  # fmt: skip
        for name, module in self._model.named_modules():
            self._handles.append(module.register_forward_pre_hook(self._enter_layer(name), with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._leave_layer, always_call=True))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        if self._whole or self._busy:
            return func(*args, **(kwargs or {}))
        call = Call(self._names[-1], getattr(func, "__name__", str(func)), args, kwargs or {})
        self.before(call)
        output = func(*call.args, **call.kwargs)
        self.after(call, output)
        return output

    def _enter_layer(self, name: str) -> Callable[[nn.Module, Args, Kwargs], tuple[Args, Kwargs] | None]:
        def hook(module: nn.Module, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs] | None:
            self._names.append(name)
            if not isinstance(module, CompositeConv):
                return None
            call = Call(name, type(module).__name__, args, kwargs, module)
            self._busy = True
            self.before(call)
            self._busy = False
            self._whole.append(call)
            return call.args, call.kwargs

        return hook

    def _leave_layer(self, module: nn.Module, args: Args, output: Any) -> None:
        self._names.pop()
        if isinstance(module, CompositeConv) and self._whole:
            call = self._whole.pop()
            if output is not None:  # None: the layer failed, and its own error is on its way
                self._busy = True
                self.after(call, output)
                self._busy = False


def first_argument(call: Call) -> Tensor:
    """Return the input of a call, given by position or by name."""
    tensor: Tensor = call.args[0] if call.args else call.kwargs["input"]
    return tensor


def checked_size(given: object) -> tuple[int, ...]:
    """Return channels and spatial size of an input, or raise if it is invalid."""
    if isinstance(given, Sequence) and given and all(isinstance(each, Integral) and int(each) > 0 for each in given):
        return tuple(map(int, given))
    shown = f"a tensor of {tuple(given.shape)}" if isinstance(given, Tensor) else repr(given)
    raise ShapeError(f"input_size is channels and spatial size without the batch, as (3, 224, 224); got {shown}")


def on_input(model: nn.Module, input_size: Sequence[int]) -> AbstractContextManager[None]:
    """Reraise what a network raises when it is run as a ``ShapeError`` that names its input."""
    what = f"{type(model).__name__} does not run on an input of {tuple(input_size)} (channels, spatial size)"
    unwrap = "; it wraps a network: give model.module" if isinstance(model, PARALLEL) else ""
    return reraise_as(ShapeError, lambda error: f"{what}: {first_line(error)}{unwrap}")


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists and mappings, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
