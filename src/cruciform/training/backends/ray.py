"""The backend ``ray``: several processes on a Ray cluster, placed and restarted by Ray Train.

Without RAY_ADDRESS a cluster of this machine alone is started: on the loopback interface, without a dashboard. A
cluster that others can reach is used only with Ray's token authentication: anyone could run code on an open one.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cruciform.errors import CruciformError, MissingExtraError, RunError, first_line
from cruciform.training.backends.backend import BACKENDS, Job, check_end, prepare
from cruciform.training.engine.loop import train
from cruciform.training.recipe.python_objects import PythonObjects
from cruciform.training.recipe.recipe import Recipe
from cruciform.training.run.follow import following
from cruciform.training.run.observer import Observer
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import Distributed
from cruciform.training.tables.table import read_table

FAILURES = 5


@BACKENDS.register("ray")
def run_on_ray(job: Job) -> bool:
    """Train on a Ray cluster."""
    ray = import_ray()
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    from ray.train.v2.api.exceptions import TrainingFailedError

    prepare(job)
    directory = job.run.directory.absolute()
    with cluster(ray), following(job.run, job.observer):
        trainer = TorchTrainer(
            _work,
            train_loop_config={"recipe": job.recipe.to_dict(), "run": str(directory)},
            scaling_config=ScalingConfig(
                num_workers=(least, job.workers) if (least := job.processes.min_workers) else job.workers,
                use_gpu=wants_gpus(ray, job.device),
            ),
            run_config=RunConfig(
                name="ray",
                storage_path=str(directory),
                failure_config=FailureConfig(max_failures=FAILURES),
                checkpoint_config=CheckpointConfig(num_to_keep=job.recipe.checkpoint.keep),
            ),
        )
        try:
            trainer.fit()
        except TrainingFailedError as error:
            raise RunError(f"Ray failed after {FAILURES} restarts: {first_line(error)}") from error
    check_end(job.run)
    return True


@contextmanager
def cluster(ray: Any) -> Iterator[None]:
    """Join the cluster that RAY_ADDRESS names, or start one that only this machine can reach."""
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS")
    if address and not _is_loopback(address) and os.environ.get("RAY_AUTH_MODE") != "token":
        raise RunError(
            f"the Ray cluster at {address} is not on the loopback interface; set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN on the cluster and here"
        )
    if address:
        ray.init(address=address, log_to_driver=False)
    else:
        ray.init(address="local", include_dashboard=False, log_to_driver=False)
    try:
        here = ray.util.get_node_ip_address()
        if not address and not ip_address(here).is_loopback:
            raise RunError(f"Ray was imported earlier and listens at {here}, not at the loopback interface only")
        with redirect_stdout(sys.stderr):  # Ray's messages about dead workers must not mix with JSON output
            yield
    finally:
        ray.shutdown()


class RayObserver(Observer):
    """Reports every checkpoint to Ray."""

    def on_checkpoint(self, step: int, path: Path | None, figures: dict[str, Any]) -> None:
        """Report it; all workers must, but only one has a checkpoint."""
        from ray.train import Checkpoint, report

        report({"step": step, **figures}, checkpoint=Checkpoint.from_directory(path) if path else None)


def _work(config: dict[str, Any]) -> None:
    from ray.train import get_checkpoint
    from ray.train.torch import get_device

    recipe = read_table(Recipe, config["recipe"], "the recipe sent to Ray")
    runtime = Distributed(get_device())
    registered = get_checkpoint()
    with registered.as_directory() if registered else nullcontext() as folder:
        start = Path(folder) if folder else None
        run = Run(Path(config["run"]))
        # Ray would restart a run that can only fail again; the driver reads the error in the log.
        with suppress(CruciformError):
            train(recipe, run, runtime, resume=True, observers=[RayObserver()], inputs=PythonObjects(start=start))


def import_ray() -> Any:
    """Return the module ray, set to listen on the loopback interface unless RAY_ADDRESS is elsewhere."""
    if _is_loopback(os.environ.get("RAY_ADDRESS") or "local"):
        # Despite its name, this makes Ray bind to the loopback interface on every system. It is read on import.
        # Without it, a cluster at 127.0.0.1:PORT is looked for at this machine's external address, and not found.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        import ray
        import ray.train.torch
    except ImportError as error:
        raise MissingExtraError(f"Ray is not installed ({error}): pip install 'cruciform[ray]'") from error
    return ray


def wants_gpus(ray: Any, device: str) -> bool:
    """Return whether each process needs a GPU: where the device is cuda, or auto and the cluster has GPUs."""
    return device.startswith("cuda") or (device == "auto" and ray.cluster_resources().get("GPU", 0) >= 1)


def _is_loopback(address: str) -> bool:
    """Return whether an address, as HOST:PORT, ray://HOST:PORT, auto or local, is on the loopback interface."""
    if address in ("auto", "local"):
        return True
    host = address.removeprefix("ray://").rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
