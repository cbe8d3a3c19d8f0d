"""Describe what was given as a network, and what to give instead; needs no torch."""

import stat
from pathlib import Path

CARD, WEIGHTS, RUN_RECIPE, ARTIFACT = "model.json", "model.safetensors", "recipe.json", "deploy.json"
SAVED = {CARD: "a model directory", RUN_RECIPE: "a run of 'cruciform train'"}
"""Files that mark a directory from which a network can be read."""

OWN_CODE = (
    "load it in a function of your own that returns the network, with {how}, and give that as package.module:function"
)
PICKLES = frozenset({".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".bin", ".tar", ".t7"})
FOREIGN_ENDINGS = {
    ".safetensors": "has weights but no architecture; "
    + OWN_CODE.format(how="model.load_state_dict(safetensors.torch.load_file(...))"),
    ".onnx": "is an exported ONNX network already; give the network that it was exported from",
    ".pt2": "is an exported PyTorch program already; give the network that it was exported from",
    ".toml": "is a recipe; train it with 'cruciform train', and give the run",
    ".py": "is Python code; give a function in it that returns the network, as package.module:function",
}
PICKLE = "is a pickle, which may run any code when loaded, so it is never loaded; " + OWN_CODE.format(
    how="torch.load(..., weights_only=True)"
)
MAGIC = {b"PK\x03\x04": PICKLE, b"\x80": PICKLE, b"\x08": FOREIGN_ENDINGS[".onnx"]}
"""How files begin that have other names than usual: torch's archives, older pickles, ONNX."""


def is_saved(path: Path) -> bool:
    """Return whether a network can be read from a directory."""
    return any((path / file).is_file() for file in SAVED)


def describe_path(path: Path) -> str:
    """Return a sentence about what a path is, and what to give instead."""
    if not path.exists():
        return f"{path}: there is no such file or directory."
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return f"{path} can't be accessed: {error.strerror}."
    if stat.S_ISDIR(mode):
        return _describe_directory(path)
    if not stat.S_ISREG(mode):
        return f"{path} is not a regular file, but a pipe, a device or a socket."
    if path.name in (CARD, WEIGHTS, RUN_RECIPE, ARTIFACT) and (is_saved(path.parent) or path.name == ARTIFACT):
        return f"{path} is one file of a directory; give the directory: {path.parent}."
    suffix = path.suffix.lower()
    description = PICKLE if suffix in PICKLES else FOREIGN_ENDINGS.get(suffix) or _by_magic(path)
    return f"{path} {description}."


def _by_magic(path: Path) -> str:
    try:
        with path.open("rb") as file:  # it is a regular file
            head = file.read(4)
    except OSError as error:
        return f"can't be read ({error.strerror})"
    known = [what for magic, what in MAGIC.items() if head.startswith(magic)]
    return known[0] if known else "is a file, not a network"


def _describe_directory(path: Path) -> str:
    if is_saved(path):
        kind = next(what for file, what in SAVED.items() if (path / file).is_file())
        return f"{path} is {kind}."
    if (path / ARTIFACT).is_file():
        return (
            f"{path} is an artifact of 'cruciform deploy'; give the network that it was made from, or predict with it."
        )
    if (path / WEIGHTS).is_file():
        return f"{path} has {WEIGHTS} but no {CARD}, so the network of the weights is unknown."
    inside = "is empty" if not any(path.iterdir()) else f"contains neither {CARD} nor {RUN_RECIPE}"
    return f"{path} is a directory that {inside}: it is neither a model directory nor a run."
