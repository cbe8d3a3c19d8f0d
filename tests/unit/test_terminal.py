"""Nothing that a command prints gives orders to the terminal."""

import io
import json
from pathlib import Path

import pytest
from rich.progress import Progress
from typer.testing import CliRunner

from cruciform.cli import main
from cruciform.cli.shared.run_progress import BarObserver
from cruciform.cli.shared.tables import print_json, print_table
from cruciform.cli.shared.terminal import SafeConsole, console, echo
from cruciform.errors import DataError
from cruciform.training.run.journal import Journal
from cruciform.training.run.run import Run

NAME = "cat\x1b[2J\nerror: disk full\u202e"
SHOWN = r"cat\x1b[2J\nerror: disk full\u202e"


def test_a_name_is_escaped_in_every_cell_and_keeps_to_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(NAME, (NAME, "samples"), [(NAME, "3"), ("dog", NAME)])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert out.count(SHOWN) == 4
    assert not [line for line in out.splitlines() if line.startswith("error:")]


def test_a_name_is_escaped_in_lines_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(f"the class {NAME}")
    console(error=True).print(NAME, style="yellow")
    echo(NAME)
    said = capsys.readouterr()
    assert said.out == f"the class {SHOWN}\n{SHOWN}\n"
    assert said.err == f"{SHOWN}\n"
    print_json({NAME: [NAME]})
    out = capsys.readouterr().out
    assert json.loads(out) == {NAME: [NAME]}
    assert out.replace("\n", "").isprintable()


def test_marks_of_rich_in_a_name_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("[red]:skull:[/]")
    assert capsys.readouterr().out == "[red]:skull:[/]\n"


def test_a_bar_escapes_what_it_describes() -> None:
    file = io.StringIO()
    with Progress(console=SafeConsole(file=file, force_terminal=False)) as bar:
        bar.add_task("evaluating \x1b]0;x\x07", total=1)
    assert r"\x1b" in file.getvalue()
    assert "\x1b" not in file.getvalue()


def test_a_notice_of_training_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr("cruciform.cli.shared.run_progress.console", lambda error: SafeConsole(file=file, markup=False))
    BarObserver().on_notice(f"the data has one class, {NAME}[/]", 1)
    assert SHOWN in file.getvalue()
    assert "\x1b" not in file.getvalue()


def test_an_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise DataError(f"{NAME} has no images")

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit):
        main.run()
    assert capsys.readouterr().err == f"error: {SHOWN} has no images\n"


def test_runs_are_listed_by_escaped_names(tmp_path: Path) -> None:
    from cruciform.training.recipe.cookbook import load_recipe

    run = Run(tmp_path / "\x1b[31mred")
    run.directory.mkdir()
    (run.directory / "recipe.json").write_text(load_recipe("nin_cifar10").model_dump_json())
    journal = Journal(run.log)
    journal.write("end", step=0, state="failed", reason=NAME)
    journal.close()
    assert "\u202e" not in run.log.read_text("utf-8")
    out = CliRunner().invoke(main.app, ["runs", str(tmp_path)], catch_exceptions=False).output
    assert "\x1b" not in out
    assert out.count(r"[2J\nerror") == 1  # in its row, folded


def test_brackets_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("written to art[draft]; not tried: [/usr/lib/libfoo.so]")
    assert capsys.readouterr().out == "written to art[draft]; not tried: [/usr/lib/libfoo.so]\n"
