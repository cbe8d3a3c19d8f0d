"""Check a reference to a network without importing torch, so that a typo is reported at once."""

from importlib.util import find_spec
from pathlib import Path

from cruciform.errors import OptionError, UnknownNameError
from cruciform.sources.network_names import check_listed, is_listed, list_sources, suggest_source, unknown_network
from cruciform.store.recognize import FOREIGN_ENDINGS, PICKLES, describe_path, is_saved

REFERENCE_FORMS = (
    "A network is given by a name of 'cruciform models', timm:NAME, torchvision:NAME, monai:NAME, "
    "package.module:function, a run, or a model directory"
)
NO_DIRECTORY = (
    "There is no run or model directory of this name either: give a run, for instance runs/modern_cifar10 (list them "
    "with 'cruciform runs'), or a directory that 'cruciform convert' wrote"
)


def check_reference(reference: str) -> str:
    """Return a reference that may name a network; raise where it certainly names none.

    Args:
        reference: A zoo name, ``timm:NAME``, ``torchvision:NAME``, ``monai:NAME``, ``package.module:function``, a model
            directory, or a run.
    """
    path = Path(reference)
    if is_saved(path) or is_listed(reference):
        return reference
    source, colon, _ = reference.partition(":")
    if _looks_like_a_path(reference):
        raise OptionError(f"{describe_path(path)} {REFERENCE_FORMS}")
    if not colon:
        own = "package.module:function for a network of your own"
        raise UnknownNameError(f"{unknown_network(reference)}, or {own}. {NO_DIRECTORY}")
    if source in list_sources():
        check_listed(reference)
    elif (hint := suggest_source(source)) and not _is_importable(source.partition(".")[0]):
        raise UnknownNameError(f"there is neither a library nor a module named {source!r}.{hint}")
    return reference


def _looks_like_a_path(reference: str) -> bool:
    path = Path(reference)
    known_ending = path.suffix.lower() in {*PICKLES, *FOREIGN_ENDINGS}
    return path.exists() or "/" in reference or reference.startswith((".", "~")) or known_ending


def _is_importable(module: str) -> bool:
    here = Path.cwd()
    return any((here / name).exists() for name in (module, f"{module}.py")) or find_spec(module) is not None
