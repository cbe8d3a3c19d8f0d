"""How our layers appear to torch.fx and torch.jit.script: to the first as one node, to the second not at all."""

from typing import Any, NoReturn

from torch import nn
from torch.fx import Proxy, Tracer

from cruciform.errors import DeployError


def leaf_call(module: nn.Module, x: object) -> Any:
    """Record a call of the whole module where ``torch.fx`` is tracing; return None everywhere else.

    torch.fx takes only torch's own modules for leaves, and traces into all others, where it fails at the first look at
    a shape. A layer that records itself is a leaf to every tracer, and stays what it is in the traced network.
    """
    if not isinstance(x, Proxy) or not isinstance(x.tracer, Tracer):
        return None
    name = x.tracer.path_of_module(module)
    if not name:
        raise DeployError(
            f"torch.fx can't trace a {type(module).__name__} on its own, since it is a single node; trace a network "
            "that contains it, for instance torch.nn.Sequential(layer)"
        )
    return x.tracer.create_proxy("call_module", name, (x,), {})


def refuse_script(module: nn.Module) -> NoReturn:
    """Raise a clear error in place of torch.jit.script's own."""
    raise DeployError(
        f"torch.jit.script can't compile a {type(module).__name__}: its plan is Python data. Use "
        "torch.export.export(model, (x,)), or torch.jit.trace(model, x)"
    )
