"""Facts as one HTML page: no script, nothing from elsewhere, light or dark as the reader's system is."""

import math
from collections.abc import Sequence
from importlib.resources import files

from cruciform.measure.filters import LayerFilters
from cruciform.measure.tiles import basis_tiles, kernel_tiles
from cruciform.report.charts import Line, bar, definition, line_chart, spectrum_svg, tiles_svg
from cruciform.report.facts import Facts, LayerFact, Training
from cruciform.report.html import Html, element, join
from cruciform.words import plural

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
MOST_FILTERS = 18  # layers whose filters are shown
TILES = 12
VERDICTS = {True: "good", False: "bad", None: "plain"}
"""Classes of the doctor's verdict; None where there is none."""


def render_page(facts: Facts) -> str:
    """Returns the whole page."""
    sections = [
        _summary(facts),
        _ledger(facts),
        _costs(facts),
        _doctor(facts),
        _curves(facts.training) if facts.training else None,
        _filters(facts),
        _deployments(facts),
    ]
    style = Html((files(__package__) / "style.css").read_text("utf-8"))
    head = element(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        element("title", f"{facts.name}: report"),
        element("style", style),
    )
    footer = element("p", f"Written by cruciform report. {facts.circumstances}", class_="quiet")
    body = element("body", element("main", *sections, footer))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _summary(facts: Facts) -> Html:
    pairs = [
        ("parameters", f"{facts.params:,}"),
        ("MACs of one input", f"{facts.macs:,}"),
        ("input", "×".join(map(str, facts.input_size))),
    ]
    replaced = sum(layer.replaced for layer in facts.layers)
    if replaced:
        pairs += [
            ("of dense MACs", f"{facts.macs / facts.dense_macs:.1%}"),
            ("of dense parameters", f"{facts.params / facts.dense_params:.1%}"),
        ]
    pairs.append(("layers of basis filters", f"{replaced} of {sum(layer.dense is not None for layer in facts.layers)}"))
    if facts.diagnosis and not facts.diagnosis.trained:
        pairs.append(("gradient at the start", facts.diagnosis.verdict))
    if facts.training:
        status = facts.training.status
        pairs.append(("state", f"{status['state']}, {status['epochs']} of {plural(status['of'], 'epoch')}"))
        if status["top1"] is not None:
            pairs.append(("right at the end", f"{status['top1']:.2%}"))
        pairs.append(("training", duration(facts.training.seconds)))
    notes = [element("p", f"Note: {note}", class_="quiet") for note in facts.notes]
    return element(
        "header", element("h1", facts.name), element("p", facts.kind, class_="quiet"), definition(pairs), notes
    )


def _ledger(facts: Facts) -> Html:
    rows = []
    for layer in (one for one in facts.layers if one.dense is not None):
        params, macs = layer.dense or (0, 0)
        rows.append(
            (
                layer.name,
                layer.plan,
                "basis filters" if layer.replaced else layer.reason or "dense",
                _change(layer.params, params) if layer.replaced else f"{layer.params:,}",
                _change(layer.macs, macs) if layer.replaced else f"{layer.macs:,}",
            )
        )
    text = "Every convolution: what is computed there, and what share it is of the dense convolution in its place."
    columns = ("layer", "plan", "what it is", "parameters", "MACs")
    return _section("Conversion ledger", text, _table(columns, rows, numbers=2))


def _costs(facts: Facts) -> Html:
    shown = [layer for layer in facts.layers if layer.macs or layer.dense]
    most_macs = max((max(layer.macs, (layer.dense or (0, 0))[1]) for layer in shown), default=1) or 1
    most_params = max((max(layer.params, (layer.dense or (0, 0))[0]) for layer in shown), default=1) or 1
    most_time = max((layer.seconds or 0 for layer in shown), default=0)
    heads = ("layer", "MACs", "parameters", "milliseconds")
    cells = [element("div", head, class_="head") for head in heads]
    for layer in shown:
        cells += [element("div", layer.name, class_="name"), *_bars(layer, most_macs, most_params, most_time)]
    text = "Pale: the dense convolution in its place."
    if most_time:
        text += " Milliseconds: PyTorch on one thread, one input, the shortest time; engines differ."
    else:
        text += " Times were left out; --rounds 5 measures them."
    return _section("What each layer costs", text, element("div", cells, class_="bars"))


def _bars(layer: LayerFact, most_macs: int, most_params: int, most_time: float) -> list[Html]:
    params, macs = layer.dense or (None, None)
    of_macs = None if macs is None or not layer.replaced else macs / most_macs
    of_params = None if params is None or not layer.replaced else params / most_params
    timed = layer.seconds is not None and most_time > 0
    return [
        _cell("MACs", bar(layer.macs / most_macs, of=of_macs), short(layer.macs)),
        _cell("parameters", bar(layer.params / most_params, of=of_params, kind="two"), short(layer.params)),
        _cell("milliseconds", bar((layer.seconds or 0) / most_time, kind="three"), f"{1e3 * (layer.seconds or 0):.3f}")
        if timed
        else _cell("milliseconds", Html(""), "–"),
    ]


def _doctor(facts: Facts) -> Html:
    found = facts.diagnosis
    if found is None:
        return _section("Gradient doctor", f"No diagnosis: {facts.diagnosed}")
    allowed = "" if found.trained else f", trainable from {found.low:.3g} to {found.high:.3g}"
    verdict = element(
        "p",
        element("span", found.verdict, class_=VERDICTS[found.trainable]),
        f". The gradient's energy at the first block is {found.gradient_over_depth:.3g} of that at the last{allowed}. "
        f"Measured on {facts.diagnosed}.",
    )
    advice = element("p", found.advice) if found.advice else None
    note = element("p", found.note, class_="quiet") if found.note else None
    rows = [(block.name, "yes" if block.on_path else "no", *block.ratios) for block in found.blocks]
    path = [block for block in found.blocks if block.on_path]
    level = [
        (float(n), math.log10(block.gradient_level)) for n, block in enumerate(path, 1) if block.gradient_level > 0
    ]
    ratio = [
        (float(n), math.log10(block.gradient_ratio)) for n, block in enumerate(path, 1) if block.gradient_ratio > 0
    ]
    curves: list[Line] = [("at its output / at the last block's", level), ("one block: in / out", ratio)]
    chart = line_chart(
        [line for line in curves if line[1]], x="block on the deepest path", y="gradient's energy, log₁₀"
    )
    columns = ("block", "on path", "gradient in / out", "activation out / in")
    table = _table(columns, rows, numbers=2)
    return _section("Gradient doctor", "", verdict, advice, element("div", chart, class_="charts one"), table, note)


def _curves(training: Training) -> Html:
    def curve(name: str, key: str) -> Line:
        return name, [
            (float(e["epoch"]), float(e[key])) for e in training.epochs if isinstance(e.get(key), int | float)
        ]

    right = [curve("top 1", "top1"), curve("with mirror images", "top1_mirrored")]
    losses = [curve("training", "train_loss"), curve("evaluation", "loss")]
    rates = [(float(s["step"]), float(s["rate"])) for s in training.steps if isinstance(s.get("rate"), int | float)]
    charts = [
        line_chart([line for line in right if line[1]], x="epoch", y="right", percent=True),
        line_chart([line for line in losses if line[1]], x="epoch", y="loss"),
        line_chart([("learning rate", rates)] if rates else [], x="step", y="learning rate"),
    ]
    return _section("Training", "From the run's log.", element("div", charts, class_="charts"))


def _filters(facts: Facts) -> Html:
    shown = facts.filters[:MOST_FILTERS]
    if not shown:
        return _section("Filters", "No layer has a window of more than one tap.")
    text = (
        f"The {TILES} filters of each group with the most energy, of each the slice of the strongest input channel: "
        "brown below zero, violet above. The curve: singular values of the kernels; dashed, their effective rank."
    )
    if len(facts.filters) > len(shown):
        text += f" The first {len(shown)} of {len(facts.filters)} layers; 'cruciform filters --layer' shows others."
    return _section("Filters", text, element("div", [_layer_filters(one) for one in shown], class_="filters"))


def _layer_filters(layer: LayerFilters) -> Html:
    basis = "filters" if layer.plan.is_dense else "basis"
    sets = [
        element(
            "figure", element("figcaption", f"{shape} {basis}"), tiles_svg(tiles, columns=6, label=f"{shape} filters")
        )
        for shape, tiles in basis_tiles(layer, TILES)
    ]
    if len(layer.groups) > 1 and layer.kernel is not None:
        kernels = tiles_svg(kernel_tiles(layer, TILES), columns=6, label="kernels")
        sets.append(element("figure", element("figcaption", "kernels"), kernels))
    energies = [one for one in layer.groups if one.stage == 0 and one.energy is not None]
    energy = [
        join(element("span", one.shape), bar(one.energy or 0), element("span", f"{one.energy:.0%}")) for one in energies
    ]
    ranks = element("p", layer.why_not, class_="quiet")
    if layer.effective_rank is not None:
        spatial = "" if layer.spatial_rank is None else f", spatial rank {layer.spatial_rank:.2f}"
        ranks = element(
            "p", f"effective rank {layer.effective_rank:.1f} of {len(layer.spectrum)}{spatial}", class_="quiet"
        )
    return element(
        "article",
        element("h3", layer.name),
        element("p", element("code", str(layer.plan)), class_="quiet"),
        element("div", sets, class_="sets"),
        element("div", energy, class_="energy") if len(energies) > 1 else None,
        ranks,
        spectrum_svg(layer.spectrum, layer.effective_rank or 0),
    )


def _deployments(facts: Facts) -> Html:
    if not facts.deployments:
        inside = facts.kind != "network"
        command = f"cruciform deploy {facts.given} --target onnxruntime -o {facts.given + '/onnx' if inside else 'DIR'}"
        advice = element(
            "p",
            "None is known here. To make one: ",
            element("code", command),
            ". One elsewhere is shown with ",
            element("code", "--deployment DIR", class_="whole"),
            ".",
        )
        return _section("Deployment", "", advice)
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
    columns = ("directory", "engine", "batch / threads", "verdict", "ms", "ms, dense", "strays from PyTorch")
    return _section("Deployment", "As 'cruciform deploy' measured them.", _table(columns, rows, numbers=3))


def _section(title: str, text: str, *content: Html | None) -> Html:
    quiet = element("p", text, class_="quiet") if text else None
    return element("section", element("h2", title), quiet, *content)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int) -> Html:
    """Returns a table whose last columns are numbers; on a narrow screen each cell says what it is."""
    first = len(columns) - numbers
    kinds = [None if index < first else "n" for index in range(len(columns))]
    head = element("tr", [element("th", text, class_=kind) for text, kind in zip(columns, kinds, strict=True)])
    body = [
        element(
            "tr",
            [
                element("td", element("span", cell), class_=kind, data_label=column)
                for cell, kind, column in zip(row, kinds, columns, strict=True)
            ],
        )
        for row in rows
    ]
    return element("table", element("thead", head), element("tbody", body))


def _cell(label: str, drawn: Html, number: str) -> Html:
    return element("div", drawn or element("div"), element("span", number), class_="cell", data_label=label)


def _change(now: int, dense: int) -> str:
    return f"{now:,} ({now / dense:.0%})" if dense else f"{now:,}"


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


def short(number: float) -> str:
    """Returns a count in thousands, millions or thousands of millions, with three digits."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}" if number < 999.5 * size else f"{number / size:.0f} {unit}"
    return f"{number:.0f}"


def duration(seconds: float) -> str:
    """Returns a time in the largest unit that says something."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
