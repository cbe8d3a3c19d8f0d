"""``cruciform models``: the networks of the zoo."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from cruciform.cli.shared.arguments import JsonOption
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.errors import UnknownNameError
from cruciform.text.wording import plural


def models(
    filter_: Annotated[str, typer.Argument(metavar="[PART]", help="Show only names that contain this.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the networks of the zoo, with parameters, MACs and the paper's published accuracy.

    Example: cruciform models lr
    """
    import torch

    from cruciform.measure.macs import profile
    from cruciform.models.model_card import model_card
    from cruciform.models.zoo import create_model, list_models

    rows: list[dict[str, Any]] = []
    for name in (name for name in list_models() if filter_ in name):
        with torch.device("meta"):
            network = create_model(name)
        counted, card = profile(network, network.config.input_shape), model_card(name)
        rows.append(
            {
                "name": name,
                "input": list(network.config.input_shape),
                "params": counted.params,
                "macs": counted.macs,
                "macs_paper": counted.macs_paper,
                "published": [asdict(row) for row in card.published],
            }
        )
    if as_json:
        print_json(rows)
        return
    if not rows:
        raise UnknownNameError(
            f"no network of the zoo has {filter_!r} in its name; see 'cruciform models'. Networks of timm, torchvision "
            "and MONAI are not listed here; give them as timm:NAME"
        )
    print_table(
        f"{plural(len(rows), 'network')} (MACs as deployed, parameters with auxiliary heads)",
        ("name", "published as", "input", "parameters", "MACs", "MACs (paper)", "top-1 %"),
        [
            (
                row["name"],
                ", ".join(f"{p['table']}/{p['network']}" for p in row["published"]) or "–",
                "×".join(map(str, row["input"])),
                f"{row['params']:,}",
                f"{row['macs']:,}",
                f"{row['macs_paper']:,}",
                ", ".join(f"{100 * p['top1']:.2f}" for p in row["published"]) or "–",
            )
            for row in rows
        ],
        left=2,
    )
