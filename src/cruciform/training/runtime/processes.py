"""How many processes a run has, on what, and started by which backend."""

from dataclasses import dataclass

from cruciform.errors import RunError


@dataclass(frozen=True)
class Processes:
    """The processes of a run.

    Attributes:
        backend: How they are started: ``local``, ``ddp`` or ``ray``.
        workers: Number of processes.
        device: The device of each: ``cpu``, ``cuda``, or ``auto``: a GPU where there is one.
        min_workers: Number of processes that the run may continue with while machines are missing; None: all. Only
            for ``ray``.
    """

    backend: str = "local"
    workers: int = 1
    device: str = "auto"
    min_workers: int | None = None

    def __post_init__(self) -> None:
        if self.min_workers is not None and self.min_workers > self.workers:
            raise RunError(f"min_workers={self.min_workers} is more than workers={self.workers}")
        if self.min_workers is not None and self.backend != "ray":
            raise RunError(
                f"min_workers={self.min_workers} needs the backend ray; {self.backend} runs with all processes or none"
            )
