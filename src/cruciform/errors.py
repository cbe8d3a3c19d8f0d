"""The exception tree. Every message says what was given, what is allowed and what to type.

::

    CruciformError
    ├── SpecError             a convolution that can't exist                    (ValueError)
    ├── PlanError             a plan that can't exist, or can't be built        (ValueError)
    │   └── NotLinearError    a plan with no equal single kernel
    ├── ShapeError            an input that does not fit a network              (ValueError)
    ├── OptionError           an option that a network does not take            (ValueError)
    ├── ConversionError       a network or layer that can't be converted        (ValueError)
    ├── StoreError            a model directory that can't be written or read   (ValueError)
    ├── DamagedError          a directory that is not what was written          (ValueError)
    ├── RecipeError           a recipe with a wrong key or value           3    (ValueError)
    ├── DataError             data that is missing, or not what it claims  4    (ValueError)
    │   ├── AbsentError       a file that is not there
    │   └── BadSampleError    a sample that can't be read; others can
    ├── CheckpointError       a checkpoint that can't be written or read   5
    ├── NonFiniteError        a loss or weight that is no number any more  6    (ArithmeticError)
    ├── RunError              a run that can't be started or gone on with  7
    ├── DeployError           a network that can't be shipped as asked     8
    ├── BudgetError           a budget that can't be met                   9
    ├── UnknownNameError      a name that no registry knows                     (LookupError)
    ├── CountError            two counts of one network that disagree
    ├── DiagnosisError        a network in which no gradient can be measured
    └── MissingExtraError     an optional package that is not installed         (ImportError)

    UnverifiedWarning         a converted network that could not be run         (UserWarning)
    PluginWarning             an entry point of another package that can't be loaded (UserWarning)

The number is the exit code of the command line; 2 where there is none.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


def first_line(error: BaseException) -> str:
    """Returns what an error says in one line, or its kind where it says nothing; a heading with what stands below."""
    lines = str(error).splitlines() or [type(error).__name__]
    return f"{lines[0]} {lines[1].strip()}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]


@contextmanager
def reraise_as(kind: "type[CruciformError]", say: Callable[[Exception], str]) -> Iterator[None]:
    """Tells what others' code raises, each its own errors, as an error of ours; ours go through as they are."""
    try:
        yield
    except CruciformError:
        raise
    except Exception as error:
        raise kind(say(error)) from error


class CruciformError(Exception):
    """Base of all errors that this library raises on purpose.

    Attributes:
        exit_code: What the command line ends with.
    """

    exit_code = 2


class SpecError(CruciformError, ValueError):
    """A convolution was described that can't exist."""


class PlanError(CruciformError, ValueError):
    """A plan was described that can't exist, or a scheme can't be applied to a convolution."""


class NotLinearError(PlanError):
    """A plan has no exactly equal single kernel."""


class ShapeError(CruciformError, ValueError):
    """An input does not fit the layer or network that it was given to."""


class OptionError(CruciformError, ValueError):
    """A network was asked for with an option, or a value of it, that it does not take."""


class ConversionError(CruciformError, ValueError):
    """A network, or a layer of it, can't be converted as asked."""


class StoreError(CruciformError, ValueError):
    """A model directory can't be written, or is not what was saved."""


class DamagedError(CruciformError, ValueError):
    """A directory is not what was written into it."""


class RecipeError(CruciformError, ValueError):
    """A recipe has a key that no recipe has, or a value that it can't take."""

    exit_code = 3


class DataError(CruciformError, ValueError):
    """Data is missing, or is not what it claims to be."""

    exit_code = 4


class AbsentError(DataError):
    """A file of a data set is not there: not the same as one that can't be read."""


class BadSampleError(DataError):
    """A sample can't be read, though others can.

    Attributes:
        number: Of the sample in its source.
    """

    def __init__(self, number: int, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.number, self._told = number, (number, where, why)

    def __reduce__(self) -> tuple[type["BadSampleError"], tuple[int, str, str]]:  # it travels between processes
        return BadSampleError, self._told


class CheckpointError(CruciformError):
    """A checkpoint can't be written, or none can be read."""

    exit_code = 5


class NonFiniteError(CruciformError, ArithmeticError):
    """A loss, a gradient or a weight is not a finite number any more."""

    exit_code = 6


class RunError(CruciformError):
    """A run can't be started, or not be gone on with, as asked."""

    exit_code = 7


class DeployError(CruciformError):
    """A network can't be brought into an engine, or gives other results there."""

    exit_code = 8


class BudgetError(CruciformError):
    """No choice of basis filters fits a budget."""

    exit_code = 9


class UnknownNameError(CruciformError, LookupError):
    """A name was asked for that the registry does not hold."""


class CountError(CruciformError):
    """Two independent counts of the same layer disagree, so no total is given."""


class DiagnosisError(CruciformError):
    """The doctor could not measure a gradient in this network."""


class MissingExtraError(CruciformError, ImportError):
    """An optional package is needed that is not installed."""


class UnverifiedWarning(UserWarning):
    """A network was converted, but could not be run to verify that it still does what it did."""


class PluginWarning(UserWarning):
    """An entry point of another package can't be loaded; what it adds is not available."""
