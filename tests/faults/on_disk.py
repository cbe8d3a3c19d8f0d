"""Faults between a run and its disk: killed inside a save, no room, errors of the device, damage at rest."""

import errno
import resource
import shutil
import signal
import subprocess
from pathlib import Path

from fault import Trial, Unable, Violation, fault
from inject import Failpoint, error, kill_after, kill_before, short_write
from work import finish, launch, reason, recipe, wait, weights

from cruciform.files import MANIFEST
from cruciform.training.run.checkpoint import TENSORS, VALUES, Checkpoints
from cruciform.training.run.run import Run

OPERATIONS = 18  # of a save with retention: one make, one chmod, three writes, five syncs, one rename, removals
BEGINNING = 9  # of the making of a run: one make, and four each for its recipe and its id


def strike(trial: Trial, point: Failpoint, threads: int = 1) -> tuple[Run, int]:
    """Starts a run with a failpoint; returns it, and its exit code."""
    run = Run(trial.folder / "run")
    made = recipe(trial.shared, data={"threads": threads})
    return run, wait(launch(made, run, point.arm))


@fault("F2 kill -9 inside a save", 3 * 2 * OPERATIONS + 2 * BEGINNING)
def kill_in_save(trial: Trial) -> int:
    layout, rest = divmod(trial.number, 2 * OPERATIONS)
    number, after = divmod(rest, 2)
    mark = trial.folder / "struck"
    if layout == 3:  # before the first save: when the run is made
        run, code = strike(trial, Failpoint(number, kill_after if after else kill_before, mark, save=None))
        finish(recipe(trial.shared), run, trial.shared)
        return int(code < 0)
    # The save of a start that is first, that has something to remove, that ends an epoch.
    point = Failpoint(number, kill_after if after else kill_before, mark, save=(0, 3, 2)[layout])
    run, code = strike(trial, point, threads=layout)
    if not mark.exists():
        return 0  # a save has fewer operations
    if code != -signal.SIGKILL:
        raise Violation("I5", f"killed, it ended with {code}")
    check_whole(run)
    finish(recipe(trial.shared, data={"threads": layout}), run, trial.shared)
    return 1


def check_whole(run: Run) -> None:
    """All that bears the name of a checkpoint is one."""
    _, problems = run.checkpoints().load_newest()
    if problems:
        raise Violation("I1", "; ".join(problems))


@fault("F3 disk full", 14 + 2 * OPERATIONS)
def no_room(trial: Trial) -> int:
    if trial.number < 14:
        return on_small_disk(trial)
    number, quota = divmod(trial.number - 14, 2)
    mark = trial.folder / "struck"
    code_of = errno.EDQUOT if quota else errno.ENOSPC
    run, code = strike(trial, Failpoint(number, error(code_of), mark, save=3))
    return failed_save(trial, run, code, mark)


def failed_save(trial: Trial, run: Run, code: int, mark: Path) -> int:
    """A save has failed: the run says so, the checkpoint before is whole, and it can be gone on with."""
    if not mark.exists():
        return 0
    if code not in (0, 5):
        raise Violation("I5", f"a save that failed ended the run with {code}, not with 5")
    if code == 5:
        reason(run, "CheckpointError")
    check_whole(run)
    finish(recipe(trial.shared), run, trial.shared)
    return 1


def on_small_disk(trial: Trial) -> int:
    """A real file system that is full, or a real limit on the size of files."""
    disk = trial.folder / "disk"
    disk.mkdir()
    run = Run(disk / "run")
    kilobytes = 60 + 12 * trial.number
    limited = trial.number % 7 == 6

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))

    if not limited:
        mount(disk, kilobytes)
    try:
        code = wait(launch(recipe(trial.shared), run, limit if limited else lambda: None))
        if code not in (0, 5):
            raise Violation("I5", f"a full disk of {kilobytes} kB ended the run with {code}")
        if not limited and code:
            mount(disk, 65_536, again=True)
        if run.exists:
            check_whole(run)
        finish(recipe(trial.shared), run, trial.shared)
    finally:
        if not limited:
            subprocess.run(["/bin/umount", "-l", str(disk)], check=False, capture_output=True)
    return int(code == 5)


def mount(disk: Path, kilobytes: int, *, again: bool = False) -> None:
    options = f"{'remount,' if again else ''}size={kilobytes}k"
    done = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=False, capture_output=True
    )
    if done.returncode:
        raise Unable(f"mount is refused here: {done.stderr.decode().strip()}")


@fault("F4 EIO, short write, fsync error", 3 * OPERATIONS)
def device_error(trial: Trial) -> int:
    how, number = divmod(trial.number, OPERATIONS)
    mark = trial.folder / "struck"
    blow = (error(errno.EIO), short_write, error(errno.EROFS))[how]
    run, code = strike(trial, Failpoint(number, blow, mark, save=3))
    return failed_save(trial, run, code, mark)


@fault("F5 corrupt checkpoint at rest", 270)
def corrupt(trial: Trial) -> int:
    folder = trial.folder / "run"
    shutil.copytree(trial.shared / "whole", folder)
    run, random = Run(folder), trial.random
    before, newest = sorted((folder / "checkpoints").glob("step-*"))[-2:]
    path = newest / random.choice((TENSORS, TENSORS, VALUES, MANIFEST))
    data = bytearray(path.read_bytes())
    how = trial.number % 10
    if how < 7:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        path.write_bytes(data)
    elif how == 7:
        path.write_bytes(data[: random.randrange(len(data))])
    elif how == 8:
        start = random.randrange(len(data))
        filled = bytes(len(data[start : start + 4096]))
        path.write_bytes(bytes([*data[:start], *filled, *data[start + 4096 :]]))
        if path.read_bytes() == bytes(data):
            return 0  # zeros were zeroed
    elif random.random() < 0.5:
        path.unlink()
    else:
        shutil.copy(before / path.name, path)
    found, problems = Checkpoints(folder / "checkpoints").load_newest()
    if found is None or found.path != before or not problems:
        raise Violation("I1", f"{path.name} was damaged, and {found.path.name if found else None} is taken")
    if trial.number % 3 == 0:
        finish(recipe(trial.shared), run, trial.shared)
        if "skipped a damaged checkpoint" not in run.log.read_text():
            raise Violation("I5", "the log does not say that a checkpoint was damaged")
        if weights(run) != (trial.shared / "weights").read_text():
            raise Violation("I2", "the weights differ")
    return 1


@fault("F19 kill -9 inside an export", 2 * 2 * 14)
def kill_in_export(trial: Trial) -> int:
    """A model directory, new or in the place of another: the old one, the new one or none, never half of one."""
    import torch
    from work import spawn

    from cruciform.conversion.convert import Rules, apply_conversion_
    from cruciform.models.zoo import create_model
    from cruciform.store.directory import Base, load, save

    replacing, rest = divmod(trial.number, 2 * 14)
    number, after = divmod(rest, 2)
    options = {"widths": [4, 4, 4]}
    target, mark = trial.folder / "exports" / "model", trial.folder / "struck"

    def export() -> None:
        torch.set_num_threads(1)
        model, report = apply_conversion_(create_model("cifar_fast", **options), Rules("lr", input_size=(3, 32, 32)))
        if replacing:
            save(model, target, report, base=Base("cifar_fast", options))
        Failpoint(number, kill_after if after else kill_before, mark, save=None).arm()
        save(model, target, report, base=Base("cifar_fast", options))

    wait(spawn(export, trial.folder / "stderr"))
    if not mark.exists():
        return 0
    if target.exists():
        load(target)
    elif not replacing and list(target.parent.glob("[!.]*")):
        raise Violation("I1", "half an export lies under another name")
    code = wait(spawn(lambda: (torch.set_num_threads(1), _save_again(target, options)), trial.folder / "stderr"))
    if code:
        raise Violation("I4", f"it can't be exported again: code {code}")
    load(target)
    return 1


def _save_again(target: Path, options: dict[str, list[int]]) -> None:
    from cruciform.conversion.convert import Rules, apply_conversion_
    from cruciform.models.zoo import create_model
    from cruciform.store.directory import Base, save

    model, report = apply_conversion_(create_model("cifar_fast", **options), Rules("lr", input_size=(3, 32, 32)))
    save(model, target, report, base=Base("cifar_fast", options))
