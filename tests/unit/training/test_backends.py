import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cruciform.errors import RunError
from cruciform.training.backends.backend import BACKENDS, Job, check_end
from cruciform.training.backends.ddp import _end_of, _forwarding_signals
from cruciform.training.backends.ray import _is_loopback, cluster
from cruciform.training.recipe.cookbook import load_recipe
from cruciform.training.run.follow import following
from cruciform.training.run.journal import Journal
from cruciform.training.run.observer import Observer, Plan, StepRecord
from cruciform.training.run.run import Run
from cruciform.training.runtime.processes import Processes
from cruciform.training.start import start


def test_the_backends_are_these() -> None:
    import cruciform.training.start  # noqa: F401

    assert set(BACKENDS.names()) == {"local", "ddp", "ray"}


def test_the_local_backend_is_one_process(tmp_path: object) -> None:
    job = Job(load_recipe("nin_cifar10"), Run(tmp_path), processes=Processes(workers=3))  # type: ignore[arg-type]
    with pytest.raises(RunError, match="one process, not 3; use the backend ddp or ray"):
        start(job)


def test_processes_without_a_gpu_of_their_own_are_refused_before_they_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(RunError, match="workers=3 is more than the 2 GPUs of this machine"):
        start(Job(load_recipe("nin_cifar10"), Run(tmp_path), processes=Processes("ddp", 3)))


def test_a_signal_that_another_thread_is_given_is_passed_on() -> None:
    """The system gives a signal to any thread; Python acts on it when its main thread goes on."""

    def take_it() -> None:
        time.sleep(0.3)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        time.sleep(20)

    threading.Thread(target=take_it, daemon=True).start()
    waiting = [sys.executable, "-c", "import time; time.sleep(20)"]
    with subprocess.Popen(waiting) as agent, _forwarding_signals(agent) as received:
        assert _end_of(agent) == -signal.SIGTERM
    assert received == [signal.SIGTERM]


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:6379", True), ("localhost:6379", True), ("[::1]:6379", True), ("auto", True),
        ("10.0.0.7:6379", False), ("ray://head.example:10001", False), ("0.0.0.0:6379", False), ("cluster", False),
    ],
)  # fmt: skip
def test_what_others_can_reach(address: str, loopback: bool) -> None:
    assert _is_loopback(address) is loopback


def test_a_cluster_that_others_can_reach_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    class NotYet:
        @staticmethod
        def is_initialized() -> bool:
            return False

    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(RunError, match="is not on the loopback interface; set RAY_AUTH_MODE=token"), cluster(NotYet):
        pass


def test_the_error_of_a_run_is_raised_again_where_it_was_started(tmp_path: object) -> None:
    run = Run(tmp_path)  # type: ignore[arg-type]
    journal = Journal(run.log)
    journal.write("end", step=3, state="failed", error="NonFiniteError", reason="the gradient is not finite")
    with pytest.raises(ArithmeticError, match="the gradient is not finite"):
        check_end(run)
    journal.write("end", step=9, state="done")
    journal.close()
    check_end(run)


def test_a_run_can_be_followed_by_its_log(tmp_path: object) -> None:
    run = Run(tmp_path)  # type: ignore[arg-type]
    seen: list[object] = []

    class Look(Observer):
        def on_start(self, plan: Plan) -> None:
            seen.append(plan)

        def on_step(self, record: StepRecord) -> None:
            seen.append((record.step, record.samples))

        def on_epoch(self, epoch: int, step: int, figures: dict[str, object]) -> None:
            seen.append((epoch, figures["train_loss"]))

        def on_notice(self, what: str, step: int) -> None:
            seen.append(what)

    journal = Journal(run.log)
    journal.write("notice", step=0, what="long ago")
    with following(run, Look()):
        journal.write("start", step=4, steps=20, steps_per_epoch=10, samples=80, world=2)
        journal.write("step", step=8, loss=2.0, rate=0.1, norm=1.0)
        journal.write("epoch", step=10, epoch=1, train_loss=1.5)
        journal.write("notice", step=10, what="something")
    journal.close()
    assert seen == [Plan(run.directory, 4, 20, 10, 80, 2), (8, 32), (1, 1.5), "something"]


def test_only_ray_continues_with_fewer_workers() -> None:
    with pytest.raises(RunError, match="min_workers=3 is more than workers=2"):
        Processes("ray", 2, min_workers=3)
    with pytest.raises(RunError, match="min_workers=1 needs the backend ray; ddp runs with all processes or none"):
        Processes("ddp", 2, min_workers=1)


def test_a_log_can_name_no_error_of_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path)
    journal = Journal(run.log)
    journal.write("end", step=3, state="failed", error="__doc__", reason="something")
    journal.close()
    with pytest.raises(RunError, match="something"):
        check_end(run)
