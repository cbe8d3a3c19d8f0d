"""Render a report as one HTML page without scripts or external files."""

import math
from collections.abc import Callable, Sequence

from cruciform.measure.filters import RANKS, LayerFilters
from cruciform.measure.gradients import DIAGNOSIS_COLUMNS
from cruciform.measure.tiles import basis_tiles, kernel_tiles
from cruciform.reports.charts import Axis, Line, bar, definition, line_chart, power_of_ten, spectrum_svg, tiles_svg
from cruciform.reports.directory_readme import README, accuracy
from cruciform.reports.document import render_document, section, table
from cruciform.reports.facts import Facts, LayerFact, Training
from cruciform.reports.html import Html, element, join
from cruciform.text.wording import plural, short_names

MOST_FILTERS = 18  # layers whose filters are shown
TILES = 12
VERDICTS = {True: "good", False: "bad", None: "plain"}
"""CSS classes of the doctor's verdict."""


def render_page(facts: Facts) -> str:
    """Return the whole page."""
    sections = [
        _summary(facts),
        _card(facts),
        _costs(facts),
        _conversion(facts),
        _doctor(facts),
        _curves(facts.training) if facts.training else None,
        _filters(facts),
        _deployments(facts),
    ]
    return render_document(f"{facts.name}: report", sections, f"Written by cruciform report. {facts.circumstances}")


def _summary(facts: Facts) -> Html:
    pairs = [*_accuracy(facts), ("parameters", f"{facts.params:,}"), ("MACs of one input", f"{facts.macs:,}")]
    replaced = sum(layer.replaced for layer in facts.layers)
    if replaced:
        pairs += [
            ("MACs vs dense", f"{facts.macs / facts.dense_macs:.1%}"),
            ("parameters vs dense", f"{facts.params / facts.dense_params:.1%}"),
        ]
    convolutions = sum(layer.dense is not None for layer in facts.layers)
    pairs += [
        ("input", "×".join(map(str, facts.input_size))),
        ("low-rank convolutions", f"{replaced} of {convolutions}"),
    ]
    if facts.diagnosis and not facts.diagnosis.trained:
        pairs.append(("gradient at the start", facts.diagnosis.verdict))
    if facts.training:
        status = facts.training.status
        pairs.append(("state", f"{status['state']}, {status['epochs']} of {plural(status['of'], 'epoch')}"))
        pairs.append(("training", duration(facts.training.seconds)))
    notes = [element("p", f"Note: {note}", class_="quiet") for note in facts.notes]
    return element(
        "header", element("h1", facts.name), element("p", facts.kind, class_="quiet"), definition(pairs), notes
    )


def _accuracy(facts: Facts) -> list[tuple[str, str]]:
    """Return the recorded accuracy, from a run's log or a model directory's README."""
    if facts.training:
        top1 = facts.training.status["top1"]
        flipped = facts.training.epochs[-1].get("top1_flip_tta") if facts.training.epochs else None
        pairs = [] if top1 is None else [("top-1 accuracy", f"{top1:.2%}")]
        return [*pairs, *([("with flip TTA", f"{flipped:.2%}")] if isinstance(flipped, float) else [])]
    if facts.kind == "model directory":
        return [("top-1 accuracy", accuracy(facts.card) or "not recorded")]
    return []


def _card(facts: Facts) -> Html | None:
    if facts.kind != "model directory":
        return None
    advice = element(
        "p",
        "To measure the accuracy again: " if accuracy(facts.card) else "No accuracy is recorded. To measure it: ",
        element("code", f"cruciform.evaluate({facts.given!r}, recipe='RECIPE')"),
        ".",
        class_="quiet",
    )
    if not facts.card:
        return section("Model card", "", advice)
    text = f"From {README} of the directory; not measured for this report."
    return section("Model card", text, definition(facts.card, kind="card"), advice)


def _conversion(facts: Facts) -> Html:
    rows = []
    for layer in (one for one in facts.layers if one.dense is not None):
        params, macs = layer.dense or (0, 0)
        rows.append(
            (
                layer.name,
                layer.plan,
                "low rank" if layer.replaced else layer.reason or "dense",
                _change(layer.params, params) if layer.replaced else f"{layer.params:,}",
                _change(layer.macs, macs) if layer.replaced else f"{layer.macs:,}",
            )
        )
    text = "Every convolution: its plan and, in brackets, its cost relative to the dense convolution."
    columns = ("layer", "plan", "form", "parameters", "MACs")
    return section("Conversion table", text, table(columns, rows, numbers=2))


def _costs(facts: Facts) -> Html:
    shown = [layer for layer in facts.layers if layer.macs or layer.dense]
    most_macs = max((max(layer.macs, (layer.dense or (0, 0))[1]) for layer in shown), default=1) or 1
    most_params = max((max(layer.params, (layer.dense or (0, 0))[0]) for layer in shown), default=1) or 1
    most_time = max((max(layer.seconds or 0, layer.dense_seconds or 0) for layer in shown), default=0)
    cells = [element("div", head, class_="head") for head in ("layer", "MACs", "parameters", "milliseconds")]
    for layer in shown:
        cells += [element("div", layer.name, class_="name"), *_bars(layer, most_macs, most_params, most_time)]
    replaced = [layer for layer in shown if layer.replaced]
    text = "Color: the layer; grey below it: the dense convolution that it replaces." if replaced else ""
    if most_time:
        text += " Milliseconds: PyTorch on one thread, batch size 1, the shortest time; engines differ."
    else:
        text += " Layers were not timed for this report."
    timed = [layer for layer in replaced if layer.seconds is not None and layer.dense_seconds is not None]
    total = None
    if timed:
        own, dense = (1e3 * sum(times) for times in zip(*_seconds(timed), strict=True))
        total = element(
            "p",
            f"The {plural(len(timed), 'low-rank layer')} together: {own:.2f} ms, {own / dense:.0%} of the {dense:.2f} "
            f"ms of the dense convolutions, with {_share(timed):.0%} of their MACs.",
        )
    return section("What each layer costs", text.strip(), total, element("div", cells, class_="bars"))


def _seconds(layers: Sequence[LayerFact]) -> list[tuple[float, float]]:
    return [(layer.seconds or 0.0, layer.dense_seconds or 0.0) for layer in layers]


def _share(layers: Sequence[LayerFact]) -> float:
    return sum(layer.macs for layer in layers) / (sum((layer.dense or (0, 0))[1] for layer in layers) or 1)


def _bars(layer: LayerFact, most_macs: int, most_params: int, most_time: float) -> list[Html]:
    params, macs = layer.dense if layer.dense and layer.replaced else (None, None)
    return [
        _cell("MACs", layer.macs, macs, most=most_macs, kind="one", write=short),
        _cell("parameters", layer.params, params, most=most_params, kind="two", write=short),
        _cell("milliseconds", layer.seconds, layer.dense_seconds, most=most_time, kind="three", write=_milliseconds),
    ]


def _doctor(facts: Facts) -> Html:
    found = facts.diagnosis
    if found is None:
        return section("Gradient doctor", f"No diagnosis: {facts.diagnosed}")
    allowed = "" if found.trained else f", trainable from {found.low:.3g} to {found.high:.3g}"
    verdict = element(
        "p",
        element("span", found.verdict, class_=VERDICTS[found.trainable]),
        f". The gradient's energy at the first block is {found.gradient_over_depth:.3g} of that after the last"
        f"{allowed}. Measured on {facts.diagnosed}.",
    )
    advice = element("p", found.advice[0].upper() + found.advice[1:], ".") if found.advice else None
    note = element("p", found.note, class_="quiet") if found.note else None
    path = [block for block in found.blocks if block.on_path]
    level = _logarithms([block.gradient_level for block in path])
    # The input of the first block is the image, so its ratio means nothing.
    ratio = [(n + 1, value) for n, value in _logarithms([block.gradient_ratio for block in path[1:]])]
    curves: list[Line] = [
        ("at the block's output, relative to after the last block", level),
        ("one block: in / out", ratio),
    ]
    chart = line_chart(
        "Gradient energy, block by block",
        [line for line in curves if line[1]],
        x=Axis("block on the deepest path, from the input to the output", names=short_names([b.name for b in path])),
        y=Axis("energy ratio (log scale)", write=power_of_ten, whole=True),
        wide=True,
    )
    rows = table(DIAGNOSIS_COLUMNS, found.rows, numbers=2)
    return section("Gradient doctor", "", verdict, advice, element("div", chart, class_="charts one"), rows, note)


def _logarithms(values: Sequence[float]) -> list[tuple[float, float]]:
    return [(float(n), math.log10(value)) for n, value in enumerate(values, 1) if value > 0]


def _curves(training: Training) -> Html:
    def curve(name: str, key: str) -> Line:
        return name, [
            (float(e["epoch"]), float(e[key])) for e in training.epochs if isinstance(e.get(key), int | float)
        ]

    right = [curve("one view", "top1"), curve("flip TTA", "top1_flip_tta")]
    losses = [curve("training", "train_loss"), curve("evaluation", "loss")]
    rates = [(float(s["step"]), float(s["lr"])) for s in training.steps if isinstance(s.get("lr"), int | float)]
    epoch, step = Axis("epoch", whole=True), Axis("step", whole=True)
    charts = [
        line_chart("Accuracy", [line for line in right if line[1]], x=epoch, y=Axis("top-1 accuracy", write=_percent)),
        line_chart("Loss", [line for line in losses if line[1]], x=epoch, y=Axis("loss (cross-entropy)")),
        line_chart("Learning rate", [("", rates)] if rates else [], x=step, y=Axis("learning rate")),
    ]
    return section("Training", "From the run's log.", element("div", charts, class_="charts"))


def _filters(facts: Facts) -> Html:
    shown = facts.filters[:MOST_FILTERS]
    if not shown:
        return section("Filters", "All kernels are 1×1.")
    text = (
        f"The {TILES} filters of each group with the most energy, shown by the slice of the strongest input channel: "
        "brown below zero, violet above."
    )
    if len(facts.filters) > len(shown):
        text += f" The first {len(shown)} of {len(facts.filters)} layers; 'cruciform filters' shows the others."
    ranks = [element("p", element("b", f"{name}: "), meaning) for name, meaning in RANKS.items()]
    articles = [_layer_filters(one) for one in shown]
    return section("Filters", text, element("div", ranks), element("div", articles, class_="filters"))


def _layer_filters(layer: LayerFilters) -> Html:
    sets = [
        element("figure", element("figcaption", label), tiles_svg(tiles, columns=4, label=label))
        for label, tiles in ((f"{shape} filters", tiles) for shape, tiles in basis_tiles(layer, TILES))
    ]
    if len(layer.groups) > 1 and layer.kernel is not None:
        kernels = tiles_svg(kernel_tiles(layer, TILES), columns=4, label="kernels")
        sets.append(element("figure", element("figcaption", "equal dense kernels"), kernels))
    energies = [one for one in layer.groups if one.stage == 0 and one.energy is not None]
    energy = [
        join(element("span", one.shape), bar(one.energy or 0), element("span", f"{one.energy:.0%}")) for one in energies
    ]
    caption = element("p", "Fraction of the energy in each group of filters", class_="quiet caption")
    return element(
        "article",
        element("h3", layer.name),
        element("p", element("code", str(layer.plan)), class_="quiet"),
        element("div", sets, class_="sets"),
        join(caption, element("div", energy, class_="energy")) if len(energies) > 1 else None,
        element("p", _ranks(layer), class_="quiet caption"),
        spectrum_svg(layer.spectrum, layer.effective_rank or 0),
    )


def _ranks(layer: LayerFilters) -> str:
    if layer.effective_rank is None:
        return f"No spectrum: {layer.why_not}"
    text = f"Effective rank {layer.effective_rank:.1f} of {len(layer.spectrum)}"
    if layer.spatial_rank is None:
        return text
    return f"{text}; spatial rank {layer.spatial_rank:.2f} of {min(layer.plan.spec.kernel)}"


def _deployments(facts: Facts) -> Html:
    if not facts.deployments:
        inside = facts.kind != "network"
        command = f"cruciform deploy {facts.given} -o {facts.given + '/onnx' if inside else 'DIR'}"
        advice = element(
            "p",
            "No artifact was found. To make one: ",
            element("code", command),
            ". Artifacts elsewhere are listed with ",
            element("code", "cruciform.report(..., deployments=[DIR])", class_="whole"),
            ".",
        )
        return section("Deployment", "", advice)
    rows = [
        (
            str(one["directory"]),
            str(one.get("target", "?")),
            f"{one.get('batch', '?')} / {one.get('threads', '?')}",
            str(one.get("verdict", "")),
            _number(one.get("milliseconds")),
            _number(one.get("dense_milliseconds")),
            f"{one['largest_error']:.1e}" if isinstance(one.get("largest_error"), int | float) else "–",
        )
        for one in facts.deployments
    ]
    columns = ("directory", "engine", "batch size / threads", "verdict", "ms", "ms, dense", "max abs error")
    return section("Deployment", "Measured when they were deployed.", table(columns, rows, numbers=3))


def _cell(
    label: str, value: float | None, dense: float | None, *, most: float, kind: str, write: Callable[[float], str]
) -> Html:
    """Return a bar with its number, above that of the dense convolution if any."""
    if value is None or most <= 0:
        return element("div", element("div"), element("span", "–"), class_="cell", data_label=label)
    drawn = bar(value / most, of=None if dense is None else dense / most, kind=kind)
    of = None if dense is None else element("small", write(dense))
    return element("div", drawn, element("span", write(value), of), class_="cell", data_label=label)


def _change(now: int, dense: int) -> str:
    return f"{now:,} ({now / dense:.0%})" if dense else f"{now:,}"


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def short(number: float) -> str:
    """Format a count with three digits and k, M or G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}" if number < 999.5 * size else f"{number / size:.0f} {unit}"
    return f"{number:.0f}"


def duration(seconds: float) -> str:
    """Format a time in a suitable unit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
