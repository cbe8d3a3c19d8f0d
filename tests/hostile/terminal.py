"""Names that give orders to a terminal, wherever a name is shown: in tables, lines, bars, errors and JSON."""

import io
import json
import unicodedata
from pathlib import Path

from kind import Silent, Trial, hostile
from mutate import TEXTS
from rich.progress import Progress, TextColumn
from typer.testing import CliRunner

from cruciform.cli.main import app
from cruciform.cli.shared.run_progress import BarObserver, LineObserver
from cruciform.cli.shared.terminal import SafeConsole
from cruciform.errors import CruciformError
from cruciform.text.escapes import printable
from cruciform.training.run.journal import Journal, read_journal
from cruciform.training.run.observer import Plan
from cruciform.training.run.run import Run

ORDERS = (
    "\x1b[2J\x1b[H", "\x1b]0;title\x07", "\x1b]8;;http://127.0.0.1\x1b\\link\x1b]8;;\x1b\\", "\x1b[31m", "\x1bc",
    "\x9b31m", "\x9d0;x\x9c", "\r", "\n", "\r\n", "\x08" * 20, "\x7f", "\x00", "\x07", "\x0b", "\x0c", "\x85",
    "\u2028", "\u2029", "\u202e", "\u202a", "\u2066", "\u2069", "\u200e", "\u200f", "\u061c", "\u200b", "\u200d",
    "\u2060", "\ufeff", "\u00ad", "\U000e0041", "\U000e0001", "\ud800", "\udcff", "[red]", "[/]", ":skull:", "%s",
    "\x1b", "\x1bP", "\x1b^", "\x1b_", "\x1b[6n", "\x1b[200~", "\ufff9", "\U0001d173", "\x1b(0", "\x0e", "\x0f",
)  # fmt: skip
LETTERS = ("cat", "café", "漢字", "مرحبا", "🐈", "a b", "x\u3000y", "Ω", "", "-")


def name_of(trial: Trial) -> str:
    random = trial.random
    parts = [random.choice(ORDERS), random.choice(LETTERS), random.choice((*ORDERS, *LETTERS, *TEXTS))]
    random.shuffle(parts)
    return "".join(parts)[:100]


def check(text: str, name: str) -> None:
    """Only letters, newlines and what rich itself writes to make colors and bars may be left."""
    for char in text:
        if char != "\n" and not char.isprintable() and unicodedata.category(char) != "Zs":
            raise Silent(f"{char!r} of {name!r:.60} reached the terminal")


def on_disk(name: str) -> str | None:
    """Returns a name that a folder can have; None where no folder can have it."""
    plain = name.replace("/", "").replace("\0", "")
    try:
        return plain if 0 < len(plain.encode("utf-8", "surrogateescape")) < 200 and plain not in (".", "..") else None
    except UnicodeEncodeError:
        return None


def show_lines(trial: Trial, name: str) -> None:
    file = io.StringIO()
    console = SafeConsole(file=file, markup=False, emoji=False, width=200)
    console.print(f"the class {name} has 3 images", style="yellow")
    LineObserver(console.print).on_notice(name, 1)
    observer = BarObserver()
    observer._console = observer._bar.live.console = console
    observer.on_start(Plan(Path(name.replace("\0", "")), 0, 2, 1, 1, 1))
    observer.on_notice(name, 1)
    observer.on_end("done", 1, None)
    with Progress(TextColumn("{task.description}", markup=False), console=console) as bar:
        bar.add_task(printable(name), total=3)
    check(file.getvalue(), name)
    if "\n" in name and name in file.getvalue():
        raise Silent(f"{name!r:.60} made a line of its own")


def list_runs(trial: Trial, name: str) -> None:
    """A folder of that name, and a log that says why the run failed."""
    folder = on_disk(name)
    if folder is None:
        return
    run = Run(trial.scratch / folder)
    run.directory.mkdir(parents=True)
    recipe = json.loads((trial.seeds / "recipe.json").read_text())
    recipe["model"]["name"] = name.encode("utf-8", "replace").decode()
    (run.directory / "recipe.json").write_text(json.dumps(recipe))
    journal = Journal(run.log)
    journal.write("end", step=1, state="failed", reason=name)
    journal.close()
    check(run.log.read_text("utf-8"), name)
    if read_journal(run.log)[0]["reason"] != name:
        raise Silent(f"the log has another reason than {name!r:.60}")
    for options in ([], ["--json"]):
        done = CliRunner().invoke(app, ["runs", str(trial.scratch), *options], catch_exceptions=False)
        check(done.output, name)
        if options and json.loads(done.output)[0]["reason"] != name:
            raise Silent("JSON says another name")
        rows = [line for line in done.output.splitlines() if "failed" in line]
        if not options and len(rows) != 1:
            raise Silent(f"{name!r:.60} made {len(rows)} rows of a table of one")


def say_errors(trial: Trial, name: str) -> None:
    """What main prints of an error that names it."""
    try:
        CliRunner().invoke(app, ["models", f"x{name}"], catch_exceptions=False)
    except CruciformError as error:
        check(printable(f"error: {error}"), name)
        raise
    raise Silent("a network of this name is listed")


def prepare(folder: Path) -> None:
    from checkpoints import recipe

    (folder / "recipe.json").write_text(recipe().model_dump_json())


DEEDS = (show_lines, list_runs, say_errors)


@hostile("terminal escapes", 450, prepare)
def attack(trial: Trial) -> None:
    name = name_of(trial)
    DEEDS[trial.number % len(DEEDS)](trial, name)
