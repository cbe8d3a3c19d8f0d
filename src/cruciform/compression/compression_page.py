"""The report of a compression as one HTML page."""

from cruciform.budgets.units.cost_unit import find_unit
from cruciform.compression.compression_report import COMPARISON_COLUMNS, LAYER_COLUMNS, CompressionReport
from cruciform.measure.record import circumstances
from cruciform.reports.charts import Axis, bar, line_chart
from cruciform.reports.document import render_document, section, table
from cruciform.reports.html import Html, element


def compression_page(result: CompressionReport) -> str:
    """Return the report as one HTML page."""
    head = element(
        "header", element("h1", f"{result.about['network']}, compressed"), element("p", result.title, class_="quiet")
    )
    before_after = section("Before and after", "", table(COMPARISON_COLUMNS, result.comparison, numbers=3))
    layers = section(
        "Layers",
        "Time of each layer with its neighbors: the bar is what was chosen, the paler one below it the dense layer.",
        element("div", _bars(result), class_="bars"),
        table(LAYER_COLUMNS, result.rows, numbers=3),
    )
    notes = section("Notes", "", element("ul", [element("li", note) for note in result.notes]))
    sections = [head, before_after, _front(result), layers, notes]
    return render_document(
        f"{result.about['network']}: compression", sections, f"Written by cruciform. {circumstances()}"
    )


def _bars(result: CompressionReport) -> list[Html]:
    rows = result.compressed.plan.layers
    most = max((row.dense_seconds for row in rows), default=1.0)
    cells = [element("div", text, class_="head") for text in ("layer", "becomes", "time", "output error")]
    errors = {layer.name: layer.relative_error for layer in result.compressed.fit.layers}
    for row in rows:
        drawn = bar(row.seconds / most, of=row.dense_seconds / most, kind="one")
        numbers = element("span", f"{1e3 * row.seconds:.2f} ms", element("small", f"{1e3 * row.dense_seconds:.2f}"))
        cells.append(element("div", row.name, class_="name"))
        cells.append(element("div", row.scheme))
        cells.append(element("div", drawn, numbers, class_="cell", data_label="time"))
        error = errors.get(row.name, 0.0)
        shown = element("span", f"{error:.2%}")
        cells.append(element("div", bar(min(1.0, error), kind="two"), shown, class_="cell", data_label="output error"))
    return cells


def _front(result: CompressionReport) -> Html:
    """Draw the least rise for every cost, and the choice."""
    plan = result.compressed.plan
    name = next(iter(plan.budgets))
    unit, layers = find_unit(name), len(plan.layers)
    best = [(unit.factor * cost, -value * layers) for cost, value in plan.front]
    chosen = [(unit.factor * plan.predicted[name], result.compressed.rise)]
    chart = line_chart(
        "the best choice for every cost",
        [("best choices", best), ("chosen", chosen)],
        x=Axis(f"predicted cost of the network ({unit.symbol})"),
        y=Axis("predicted rise of the output error"),
    )
    return section("The front of choices", "", element("div", chart, class_="charts half"))
