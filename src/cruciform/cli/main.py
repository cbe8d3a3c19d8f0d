"""The program ``cruciform``: collects the commands and prints our errors as one sentence.

Exit codes: 0 done, 1 the answer is no (a check failed, a network is untrainable), 2 the command can't be
carried out as given, 3 and above what the error's class says (``cruciform.errors``), 129, 130 and 143 interrupted by
SIGHUP, SIGINT or SIGTERM with the state saved.
"""

import io
import sys
from typing import Annotated

import typer

from cruciform import __version__
from cruciform.cli.networks import budget, compress, convert, coverage, doctor, filters, models, profile
from cruciform.cli.shared.renamed_flags import FlagChecker
from cruciform.cli.shared.terminal import echo
from cruciform.cli.shipping import bench, deploy, paper, predict, report
from cruciform.cli.training import evaluate, race, recipes, runs, scale, shard, sweep, train
from cruciform.errors import CheckpointError, CruciformError
from cruciform.files import DISK_FULL

app = typer.Typer(
    cls=FlagChecker,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Convert CNNs to low-rank basis filters: fewer MACs and parameters, correct initialization, exact counts.",
    epilog="Start with: cruciform models, then: cruciform profile vgg11_gmp_lr",
)
app.command("models")(models.models)
app.command("profile")(profile.profile)
app.command("doctor")(doctor.doctor)
app.command("filters")(filters.filters)
app.command("convert")(convert.convert)
app.command("coverage")(coverage.coverage)
app.command("recipes")(recipes.recipes)
app.command("train")(train.train)
app.command("race")(race.race)
app.command("sweep")(sweep.sweep)
app.command("runs")(runs.runs)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("deploy")(deploy.deploy)
app.command("budget")(budget.budget)
app.command("compress")(compress.compress)
app.command("bench")(bench.bench)
app.command("report")(report.report)
app.command("scale")(scale.scale)
app.add_typer(shard.app, name="shard")
app.add_typer(paper.app, name="paper")


def _show_version(value: bool) -> None:
    if value:
        echo(f"cruciform {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the program."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows no × shows a ?, not a traceback
    try:
        app()
    except CruciformError as error:
        echo(f"error: {error}", error=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno in DISK_FULL:
            echo(f"error: the disk is full: {error}", error=True)
            sys.exit(CheckpointError.exit_code)
        if error.filename is None:  # no word of a file: something of ours
            raise
        echo(f"error: {error.filename}: {error.strerror}", error=True)
        sys.exit(CruciformError.exit_code)
