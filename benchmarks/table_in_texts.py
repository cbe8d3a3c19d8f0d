"""The table of VGG networks that we trained, for texts: rows, differences and order from results/tiny-vgg.json.

A template asks ``{% if recorded("tiny-vgg") %}`` first: without the file nothing of it is written.
"""

from collections.abc import Mapping

from counted import RESULTS, read_file

TABLE = "tiny-vgg"


def recorded(name: str, key: str | None = None) -> bool:
    """Return whether a file of results exists, with a key in its summary where one is given."""
    return (RESULTS / f"{name}.json").is_file() and (key is None or key in read_file(name)["summary"])


def trained_table() -> str:
    """Return the networks that we trained, beside the published accuracies."""
    from tiny_vgg_networks import SAME_TIME, published_accuracies

    summary, published = read_file(TABLE)["summary"], published_accuracies()
    lines = [
        "| network | published, % | here, % | MMACs | ms, batch size 1 | training, s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in (key.removesuffix("_mmacs") for key in summary if key.endswith("_mmacs")):
        equal_time = f", {summary[f'{name}_epochs']} epochs" if name.endswith(SAME_TIME) else ""
        cells = [
            f"`{name.removesuffix(SAME_TIME)}`{equal_time}",
            f"{100 * published[name]:.2f}" if name in published else "–",
            _accuracy(summary, name),
            f"{summary[f'{name}_mmacs']:.1f}",
            _cell(summary, f"{name}_ms_b1", ".2f"),
            _cell(summary, f"{name}_train_seconds", ",.0f"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _accuracy(summary: Mapping[str, float], name: str) -> str:
    std = f" ± {summary[f'{name}_accuracy_std']:.2f}" if f"{name}_accuracy_std" in summary else ""
    return f"{summary[f'{name}_accuracy']:.2f}{std} ({summary[f'{name}_seeds']})"


def _cell(summary: Mapping[str, float], key: str, form: str) -> str:
    return format(summary[key], form) if key in summary else "–"


def trained_differences() -> str:
    """Return the differences that the paper makes statements about, and whether they are distinguishable from none."""
    from tiny_vgg_networks import DIFFERENCES

    summary = read_file(TABLE)["summary"]
    lines = []
    for name, (first, second) in DIFFERENCES.items():
        if name not in summary:
            continue
        points, error = summary[name], summary.get(f"{name}_standard_error")
        side = "ahead of" if points >= 0 else "behind"
        line = f"- `{first}` is {abs(points):.2f} points {side} `{second}`"
        if error is None:
            lines.append(f"{line}: single runs.")
        else:
            clear = summary[f"{name}_exceeds_two_standard_errors"]
            verdict = "more than" if clear else "not distinguishable from none: within"
            lines.append(f"{line} (standard error {error:.2f}): {verdict} two standard errors.")
    return "\n".join(lines)


def trained_order() -> str:
    """Return the rank correlation of our accuracies with the published ones, in a sentence or two."""
    summary = read_file(TABLE)["summary"]
    if "rank_correlation_with_paper" not in summary:
        return "Too few networks are trained for a rank correlation."
    text = (
        f"Spearman's rank correlation of our mean accuracies with the published ones is "
        f"{summary['rank_correlation_with_paper']:.2f} over {summary['rank_correlation_networks']} networks"
    )
    if "rank_correlation_seed_std" in summary:
        text += (
            f"; that of single seeds {summary['rank_correlation_seed_mean']:.2f} ± "
            f"{summary['rank_correlation_seed_std']:.2f} ({summary['rank_correlation_seeds']} seeds)"
        )
    if "differences" in summary:
        text += (
            f". Of the {summary['differences']} differences between two of the networks, "
            f"{summary['differences_exceeding_two_standard_errors']} exceed two standard errors"
        )
    return f"{text}."


def trained_missing() -> str:
    """Return what is not finished, in a sentence; nothing where all is."""
    missing = read_file(TABLE)["details"]["missing"]
    return f"Not finished: {'; '.join(missing)}." if missing else ""


TRAINED = {one.__name__: one for one in (recorded, trained_table, trained_differences, trained_order, trained_missing)}
