"""The floor table of ARCHITECTURE.md, enforced on every import, those inside functions included."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import cruciform

PACKAGE = Path(cruciform.__file__).parent

# Floors from the ground up; a room may import itself and all floors below, but no neighbour on its own floor: so the
# zoo and the converter, which must not know each other, each check the other.
FLOORS: list[set[str]] = [
    {"errors", "words"},
    {"registry", "spec", "files"},
    {"plan", "data", "scale"},
    {"schemes"},
    {"nn"},
    {"measure"},
    {"conversion", "models"},
    {"sources", "plot"},
    {"store"},
    {"coverage", "train", "deploy"},
    {"predict", "budget", "paper", "report"},
    {"cli"},
]
MAY_IMPORT: dict[str, set[str]] = {
    room: set().union(*FLOORS[:floor]) for floor, rooms in enumerate(FLOORS) for room in rooms
}
# third-party package -> the only rooms that may import it
FENCES: dict[str, set[str]] = {
    "matplotlib": {"plot"},
    "typer": {"cli"},
    "rich": {"cli"},
    "torch": {
        "nn",
        "measure",
        "conversion",
        "models",
        "sources",
        "store",
        "paper",
        "report",
        "coverage",
        "data",
        "train",
        "deploy",
        "predict",
        "budget",
        "cli",
    },
    "numpy": {"cli", "data", "scale", "train", "deploy", "predict", "budget", "paper"},
    "scipy": {"budget"},
    "safetensors": {"store", "train"},
    "pydantic": {"train", "predict"},
    "grain": {"data"},
    "PIL": {"data"},
    "ray": {"train", "predict"},
    "pyarrow": {"predict"},
    "optuna": {"train"},
    "onnxruntime": {"deploy"},
    "onnx": {"deploy"},
    "openvino": {"deploy"},
    "executorch": {"deploy"},
    "nncf": {"deploy"},
    "torchao": {"deploy"},
    "timm": {"sources"},
    "monai": {"sources"},
    "torchvision": {"sources", "coverage"},  # coverage's child declares its missing operators
}
STANDARD_LIBRARY_ONLY = {"errors", "words", "registry", "spec", "plan", "schemes"}


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "front door" if parts[0].startswith("__") else parts[0]


def imports() -> list[tuple[Path, str]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found += [(path, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: write imports in full, from the home module"
                found += [(path, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def test_rooms_import_downwards_only() -> None:
    wrong = []
    for path, name in imports():
        room, parts = room_of(path), name.split(".")
        if parts[0] != "cruciform" or room == "front door" or parts[1] == "__version__":
            continue
        if parts[1] not in MAY_IMPORT[room] | {room}:
            wrong.append(f"{path.name} ({room}) imports {name}")
    assert not wrong


def test_every_room_has_its_place_in_the_table() -> None:
    assert {room_of(path) for path in PACKAGE.rglob("*.py")} == {*MAY_IMPORT, "front door"}


def test_nobody_imports_the_front_door() -> None:
    # The version is the one name that has no other home.
    names = [name for path, name in imports() if name in {"cruciform"} or name.startswith("cruciform.__")]
    assert set(names) <= {"cruciform.__version__"}


def test_third_party_packages_stay_in_their_rooms() -> None:
    wrong = [
        f"{path.name} imports {name}"
        for path, name in imports()
        if (package := name.split(".")[0]) in FENCES and room_of(path) not in FENCES[package]
    ]
    assert not wrong


def test_plans_know_no_torch() -> None:
    for path, name in imports():
        if room_of(path) in STANDARD_LIBRARY_ONLY:
            assert name.split(".")[0] not in FENCES, f"{path.name} imports {name}"


def test_there_are_no_circles_inside_a_room() -> None:
    graph: dict[str, set[str]] = {}
    modules = {
        ".".join(("cruciform", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in PACKAGE.rglob("*.py")
    }
    for path, name in imports():
        here = ".".join(("cruciform", *path.relative_to(PACKAGE).with_suffix("").parts))
        target = name if name in modules else name.rpartition(".")[0]
        if target in modules and target != here and not here.endswith("__init__"):
            graph.setdefault(here, set()).add(target)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle
