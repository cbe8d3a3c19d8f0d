"""Surgery: find every place of a module in a network, and replace it there. It is independent of convolutions.

Modules are keyed by identity: one that is used in two places is found once, with both, and replaced in both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from cruciform.errors import ConversionError

# Wrappers that own the module inside, by the names of their classes: found without importing them.
WRAPPERS = {
    "DistributedDataParallel": "convert model.module before you wrap it",
    "DataParallel": "convert model.module before you wrap it",
    "FullyShardedDataParallel": "convert the network before you shard it",
    "OptimizedModule": "convert the network before torch.compile",
    "RecursiveScriptModule": "convert the network first, then trace or export it: a scripted one can't be changed",
    "TopLevelTracedModule": "convert the network before you trace it: a traced one can't be changed",
}


@dataclass
class FoundModule:
    """A module and all places where it is used.

    Attributes:
        module: Itself.
        names: Its dotted names, in the order of the network; empty for the root.
        places: (parent, attribute) of each place; none for the root.
    """

    module: nn.Module
    names: list[str] = field(default_factory=list)
    places: list[tuple[nn.Module, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]


def find_modules(root: nn.Module) -> dict[int, FoundModule]:
    """Return every module of a network by identity, in the order of the network, the root first."""
    found: dict[int, FoundModule] = {}

    def visit(module: nn.Module, name: str, above: tuple[int, ...]) -> None:
        here = found.setdefault(id(module), FoundModule(module))
        here.names.append(name)
        first = len(here.names) == 1
        for attribute, child in module._modules.items():
            if child is None or id(child) in above:
                continue
            visit(child, f"{name}.{attribute}" if name else attribute, (*above, id(module)))
            if first:
                found[id(child)].places.append((module, attribute))

    visit(root, "", ())
    return found


def replace_modules_(root: nn.Module, replacements: Mapping[int, nn.Module]) -> nn.Module:
    """Put each replacement, keyed by the identity of what it replaces, in all its places.

    Returns:
        The root, or its replacement.
    """
    found = find_modules(root)
    for identity, new in replacements.items():
        for parent, attribute in found[identity].places:
            parent._modules[attribute] = new
    return replacements.get(id(root), root)


def refuse_wrapper(root: nn.Module) -> None:
    """Raise if the network is wrapped in a module that surgery would not reach."""
    for module in root.modules():
        advice = WRAPPERS.get(type(module).__name__)
        if advice:
            raise ConversionError(f"{type(module).__name__} can't be converted: {advice}")
