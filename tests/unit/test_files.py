import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cruciform import files
from cruciform.errors import DamagedError
from cruciform.files import (
    FORGOTTEN,
    check_regular,
    new_directory,
    open_regular,
    read_bytes,
    read_json,
    read_manifest,
    read_text,
    refuse_own_place,
    sha256,
    sweep,
    write_text,
)


def make(directory: Path, text: str = "hello") -> Path:
    with new_directory(directory, manifest={"step": 3}) as part:
        (part / "a.txt").write_text(text)
        (part / "b.txt").write_text("second")
    return directory


def test_a_directory_appears_whole_with_its_manifest_last(tmp_path: Path) -> None:
    directory = make(tmp_path / "x")
    assert read_manifest(directory)["step"] == 3
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize(("umask", "directory_mode", "file_mode"), [(0o022, 0o755, 0o644), (0o077, 0o700, 0o600)])
def test_others_may_read_what_the_umask_lets_them(
    tmp_path: Path, umask: int, directory_mode: int, file_mode: int
) -> None:
    before = os.umask(umask)
    try:
        with new_directory(tmp_path / "x", manifest={}) as part:
            (part / "a.txt").write_text("written as usual")
            (part / "b.txt").touch(0o600)  # as safetensors does
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == directory_mode
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "x").iterdir()} == {file_mode}


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_directory(tmp_path / "x") as part:
        (part / "a.txt").write_text(f"half, {1 / 0}")
    assert not list(tmp_path.iterdir())


def test_an_old_directory_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    directory = make(tmp_path / "x", "old")
    with pytest.raises(ZeroDivisionError), new_directory(directory) as part:
        (part / "a.txt").write_text(f"new, {1 / 0}")
    assert (directory / "a.txt").read_text() == "old"
    make(directory, "new")
    assert (directory / "a.txt").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_an_old_directory_comes_back_when_the_last_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make(tmp_path / "x", "old")
    rename = Path.replace
    calls = []

    def second_fails(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", second_fails)
    with pytest.raises(OSError, match="Input/output error"):
        make(directory, "new")
    assert (directory / "a.txt").read_text() == "old"


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete", "add", "swap", "manifest", "no manifest"])
def test_any_change_since_is_found(tmp_path: Path, damage: str) -> None:
    directory = make(tmp_path / "x")
    a, b, manifest = directory / "a.txt", directory / "b.txt", directory / "manifest.json"
    if damage == "flip":
        a.write_text("hellp")
    elif damage == "truncate":
        a.write_text("hell")
    elif damage == "delete":
        a.unlink()
    elif damage == "add":
        (directory / "c.txt").write_text("foreign")
    elif damage == "swap":
        texts = a.read_text(), b.read_text()
        a.write_text(texts[1])
        b.write_text(texts[0])
    elif damage == "manifest":
        manifest.write_text(json.dumps({"files": []}))
    else:
        manifest.unlink()
    with pytest.raises(DamagedError):
        read_manifest(directory)


def test_every_file_is_synced_before_the_rename_and_the_parent_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync, rename = files.sync, Path.replace
    monkeypatch.setattr(files, "sync", lambda path: (events.append(f"sync {path.name}"), sync(path))[1])
    monkeypatch.setattr(Path, "replace", lambda self, to: (events.append("rename"), rename(self, to))[1])
    make(tmp_path / "x")
    part = next(event for event in events if ".part-" in event)
    assert events == ["sync a.txt", "sync b.txt", "sync manifest.json", part, "rename", f"sync {tmp_path.name}"]


def test_leftovers_of_killed_processes_are_swept(tmp_path: Path) -> None:
    (tmp_path / ".part-x-abc").mkdir()
    (tmp_path / ".part-x-abc" / "half").write_text("")
    (tmp_path / ".part-recipe.json").write_text("")
    make(tmp_path / "x")
    assert len(sweep(tmp_path)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert sweep(tmp_path / "absent") == []


def test_what_a_killed_process_left_goes_when_its_directory_is_written_a_day_later(tmp_path: Path) -> None:
    names = {"left": ".part-x-0123abcd", "writing": ".part-x-4567abcd", "of_another": ".part-x-y-0123abcd"}
    for name in names.values():
        (tmp_path / name / "within").mkdir(parents=True)
    for name in (names["left"], names["of_another"]):
        os.utime(tmp_path / name, (0, time.time() - FORGOTTEN - 60))
    make(tmp_path / "x")
    assert {path.name for path in tmp_path.iterdir()} == {"x", names["writing"], names["of_another"]}


def test_what_only_lacks_its_name_gets_it(tmp_path: Path) -> None:
    """Killed between two renames, a directory leaves two that are whole and none that has its name."""
    make(tmp_path / "x")
    (tmp_path / "x").rename(tmp_path / ".part-x-aaaa")
    make(tmp_path / "x")
    (tmp_path / "x").rename(tmp_path / ".part-x-bbbb")
    assert [path.name for path in sweep(tmp_path)] == [".part-x-bbbb"]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert read_manifest(tmp_path / "x")


def test_a_text_is_the_old_or_the_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "recipe.json"
    write_text(path, "old")

    def broken(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="No space"):
        write_text(path, "new")
    assert path.read_text() == "old"


@pytest.mark.parametrize("name", ["folder", "missing/file"])
def test_a_file_that_can_not_be_written_is_named_as_it_was_asked_for(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory") as caught:
        write_text(tmp_path / name, "text")
    assert caught.value.filename == str(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_behind_a_link_the_directory_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with new_directory(tmp_path / "link") as part:
        (part / "new").touch()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "new").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


@pytest.mark.parametrize("given", [".", "..", "../here"])
def test_the_place_where_one_stands_is_not_replaced(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(OSError, match="it is the current directory, and would be replaced"):
        refuse_own_place(Path(given))
    refuse_own_place(Path("network"))


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_only_regular_files_are_read(tmp_path: Path, put: Callable[[Path], None]) -> None:
    put(tmp_path / "x")
    for read in (open_regular, check_regular, read_bytes, read_text, sha256):
        with pytest.raises(OSError, match="Not a regular file|Is a directory"):
            read(tmp_path / "x")
    with pytest.raises(DamagedError, match="Not a regular file|Is a directory"):
        read_json(tmp_path / "x")


def test_a_link_to_a_file_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("é")
    (tmp_path / "link").symlink_to("x")
    assert read_text(tmp_path / "link") == "é"


def test_a_file_of_a_terabyte_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(DamagedError, match="Has 1,099,511,627,776 bytes; the limit is 67,108,864"):
        read_json(tmp_path / "x.json")


def test_a_file_that_becomes_a_pipe_while_it_is_opened_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "x")
    monkeypatch.setattr(files, "check_regular", lambda path: path)  # as if it had been a file a moment ago
    with pytest.raises(OSError, match="Not a regular file"):
        open_regular(tmp_path / "x")
