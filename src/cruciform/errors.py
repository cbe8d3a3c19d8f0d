"""The exception tree. Every message names what is wrong, the value, what is allowed and what fixes it.

::

    CruciformError
    ├── SpecError             an invalid convolution                            (ValueError)
    ├── PlanError             an invalid plan, or a scheme that does not apply  (ValueError)
    │   └── NotLinearError    a plan without an equivalent single kernel
    ├── ShapeError            an input that does not fit a network              (ValueError)
    ├── OptionError           an unknown or invalid option                      (ValueError)
    ├── ConversionError       a network or layer that can't be converted        (ValueError)
    ├── StoreError            a model directory that can't be written or read   (ValueError)
    ├── DamagedError          a directory that fails its checksums              (ValueError)
    ├── RecipeError           a recipe with a wrong key or value           3    (ValueError)
    ├── DataError             missing or invalid data                      4    (ValueError)
    │   ├── AbsentError       a missing file
    │   └── BadSampleError    a sample that can't be read; others can
    ├── CheckpointError       a checkpoint that can't be written or read   5
    ├── NonFiniteError        a loss, gradient or weight with NaN or Inf   6    (ArithmeticError)
    ├── RunError              a run that can't be started or resumed       7
    ├── DeployError           a network that can't be deployed as asked    8
    ├── BudgetError           a budget that can't be met                   9
    ├── UnknownNameError      an unknown name                                   (LookupError)
    ├── CountError            two counts of one network that disagree
    ├── DiagnosisError        a network whose gradients can't be measured
    └── MissingExtraError     an optional package that is not installed         (ImportError)

    UnverifiedWarning         a converted network that could not be verified    (UserWarning)
    PluginWarning             an entry point of another package that can't be loaded (UserWarning)

The number is the exit code of the command line; 2 where there is none.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, with the next one after a colon; its class if it has none."""
    lines = str(error).splitlines() or [type(error).__name__]
    return f"{lines[0]} {lines[1].strip()}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]


@contextmanager
def reraise_as(kind: "type[CruciformError]", say: Callable[[Exception], str]) -> Iterator[None]:
    """Reraise errors of other libraries as ``kind`` with the message of ``say``; ours pass unchanged."""
    try:
        yield
    except CruciformError:
        raise
    except Exception as error:
        raise kind(say(error)) from error


class CruciformError(Exception):
    """Base class of all errors that this library raises on purpose.

    Attributes:
        exit_code: The exit code of the command line.
    """

    exit_code = 2


class SpecError(CruciformError, ValueError):
    """A convolution is invalid."""


class PlanError(CruciformError, ValueError):
    """A plan is invalid, or a scheme does not apply to a convolution."""


class NotLinearError(PlanError):
    """A plan has no exactly equivalent single kernel."""


class ShapeError(CruciformError, ValueError):
    """An input does not fit a layer or network."""


class OptionError(CruciformError, ValueError):
    """An option, or its value, is not allowed."""


class ConversionError(CruciformError, ValueError):
    """A network, or a layer of it, can't be converted as asked."""


class StoreError(CruciformError, ValueError):
    """A model directory can't be written or read."""


class DamagedError(CruciformError, ValueError):
    """A directory or file differs from what was written: a checksum fails, or a file is missing."""


class RecipeError(CruciformError, ValueError):
    """A recipe has an unknown key or an invalid value."""

    exit_code = 3


class DataError(CruciformError, ValueError):
    """Data is missing or invalid."""

    exit_code = 4


class AbsentError(DataError):
    """A file of a data set is missing, as opposed to unreadable."""


class BadSampleError(DataError):
    """A sample can't be read, though others can.

    Attributes:
        number: Of the sample in its source.
    """

    def __init__(self, number: int, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.number, self._arguments = number, (number, where, why)

    def __reduce__(self) -> tuple[type["BadSampleError"], tuple[int, str, str]]:  # it travels between processes
        return BadSampleError, self._arguments


class CheckpointError(CruciformError):
    """A checkpoint can't be written, or none can be read."""

    exit_code = 5


class NonFiniteError(CruciformError, ArithmeticError):
    """A loss, a gradient or a weight is NaN or Inf."""

    exit_code = 6


class RunError(CruciformError):
    """A run can't be started or resumed as asked."""

    exit_code = 7


class DeployError(CruciformError):
    """A network can't be deployed to an engine, or its outputs differ there."""

    exit_code = 8


class BudgetError(CruciformError):
    """No choice of schemes fits a budget."""

    exit_code = 9


class UnknownNameError(CruciformError, LookupError):
    """A name is not registered."""


class CountError(CruciformError):
    """Two independent counts of the same layer disagree."""


class DiagnosisError(CruciformError):
    """The gradients of a network can't be measured."""


class MissingExtraError(CruciformError, ImportError):
    """An optional package is needed that is not installed."""


class UnverifiedWarning(UserWarning):
    """A converted network could not be run to verify the conversion."""


class PluginWarning(UserWarning):
    """An entry point of another package can't be loaded; what it adds is not available."""
