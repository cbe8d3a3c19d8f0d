"""Several processes on a Ray cluster: Ray Train places them, starts them again, and keeps the checkpoints.

Without RAY_ADDRESS a cluster of this machine alone is started: on the loopback, without a dashboard. A cluster that
others can reach is used only with Ray's token authentication on: whoever reaches an open one can run any code on it.
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
from cruciform.training.recipe.table import read_table
from cruciform.training.run.follow import following
from cruciform.training.run.observer import Observer
from cruciform.training.run.run import Run
from cruciform.training.runtime.runtime import Distributed

FAILURES = 5


@BACKENDS.register("ray")
def run_on_ray(job: Job) -> bool:
    """Trains on Ray."""
    ray = import_ray()
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    from ray.train.v2.api.exceptions import TrainingFailedError

    prepare(job)
    directory = job.run.directory.absolute()
    with cluster(ray), following(job.run, job.observe()):
        trainer = TorchTrainer(
            _work,
            train_loop_config={"recipe": job.recipe.to_dict(), "run": str(directory)},
            scaling_config=ScalingConfig(
                num_workers=(job.least, job.workers) if job.least else job.workers,
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
            raise RunError(f"Ray gave up after {FAILURES} new starts: {first_line(error)}") from error
    check_end(job.run)
    return True


@contextmanager
def cluster(ray: Any) -> Iterator[None]:
    """Joins the cluster that RAY_ADDRESS names, or starts one that only this machine can reach."""
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS")
    if address and not _is_loopback(address) and os.environ.get("RAY_AUTH_MODE") != "token":
        raise RunError(
            f"the Ray cluster at {address} can be reached by others; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, there "
            "and here"
        )
    if address:
        ray.init(address=address, log_to_driver=False)
    else:
        ray.init(address="local", include_dashboard=False, log_to_driver=False)
    try:
        here = ray.util.get_node_ip_address()
        if not address and not ip_address(here).is_loopback:
            raise RunError(f"Ray was loaded before, and set to listen at {here}, not at the loopback only")
        with redirect_stdout(sys.stderr):  # what Ray has to say of dead workers is for people, not for machines
            yield
    finally:
        ray.shutdown()


class RayObserver(Observer):
    """Hands every checkpoint to Ray."""

    def saved(self, step: int, path: Path | None, figures: dict[str, Any]) -> None:
        """Registers it; all workers must, each time, but only one has something to hand over."""
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
        # Ray would start again what can only fail again. The log says why; the driver reads it there.
        with suppress(CruciformError):
            train(recipe, run, runtime, resume=True, observers=[RayObserver()], inputs=PythonObjects(start=start))


def import_ray() -> Any:
    """Returns the module ray, told to listen on the loopback alone unless a cluster elsewhere is named."""
    if _is_loopback(os.environ.get("RAY_ADDRESS") or "local"):
        # Despite its name, this is what makes Ray bind to the loopback, on every system. Read when ray is imported.
        # Without it a cluster named 127.0.0.1:PORT is looked for at this machine's outer address, and not found.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        import ray
        import ray.train.torch
    except ImportError as error:
        raise MissingExtraError(f"Ray is not installed ({error}): pip install 'cruciform[ray]'") from error
    return ray


def wants_gpus(ray: Any, device: str) -> bool:
    """Tells whether each process is to be given a GPU: where one was asked for, or the cluster has some."""
    return device.startswith("cuda") or (device == "auto" and ray.cluster_resources().get("GPU", 0) >= 1)


def _is_loopback(address: str) -> bool:
    """Tells whether an address, as HOST:PORT, ray://HOST:PORT, auto or local, is one of this machine alone."""
    if address in ("auto", "local"):
        return True
    host = address.removeprefix("ray://").rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
