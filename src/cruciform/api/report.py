"""``cruciform.report``: one HTML file about a network or a run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import nn

    from cruciform.networks.open_network import OpenedNetwork


class ReportFile(NamedTuple):
    """A report that was written.

    Attributes:
        path: The HTML file.
        size: Its size in bytes.
        kind: What it is about: ``run``, ``model directory`` or ``network``.
        layers: How many layers it lists.
        deployments: How many artifacts it lists.
    """

    path: Path
    size: int
    kind: str
    layers: int
    deployments: int

    def __str__(self) -> str:
        return f"{self.path}: {self.size / 1e6:.2f} MB, self-contained"


def report(
    model: "nn.Module | OpenedNetwork | str | Path",
    output: str | Path,
    *,
    rounds: int = 5,
    deployments: Sequence[str | Path] = (),
    weights: str | Path | None = None,
    input_size: Sequence[int] | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> ReportFile:
    """Write one self-contained HTML file about a network: costs, filters, training.

    Args:
        model: An ``nn.Module``, a reference (a run, a model directory, ``timm:resnet18``), or what ``open_network``
            returns.
        output: The .html file to write.
        rounds: How often layers are timed; 0 leaves times out.
        deployments: Artifacts to list, besides those inside the directory of the run or model.
        weights: A .safetensors file with trained weights, for a network that is built by name or function.
        input_size: Channels and spatial size of one image; left out: the network's usual one.
        on_progress: Called with what is being done.
    """
    from cruciform.files import write_text
    from cruciform.networks.open_network import resolve_network
    from cruciform.reports.facts import gather_facts
    from cruciform.reports.page import render_page

    opened = resolve_network(model, weights=weights, input_size=None if input_size is None else tuple(input_size))
    if on_progress:
        on_progress(opened.reference)
    directory = Path(opened.reference) if opened.origin in ("run", "directory") else None
    run = None
    if opened.origin == "run":
        from cruciform.reports.run_facts import read_run

        run = read_run(Path(opened.reference))
    facts = gather_facts(
        opened.reference,
        opened.model,
        opened.needed_input_size,
        run=run,
        directory=directory,
        rounds=rounds,
        deployments=[Path(one) for one in deployments],
    )
    page = render_page(facts)
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)
    return ReportFile(path, len(page.encode()), facts.kind, len(facts.layers), len(facts.deployments))
