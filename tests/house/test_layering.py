"""The layers of ``layers.toml``, enforced on every import, those inside functions and ``python -m`` included."""

import ast
import tomllib
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import cruciform

SOURCE = Path(cruciform.__file__).parent
TABLE = tomllib.loads(Path(__file__).with_name("layers.toml").read_text("utf-8"))
LAYERS: list[set[str]] = [set(layer) for layer in TABLE["layer"]]
FENCES: dict[str, set[str]] = {package: set(users) for package, users in TABLE["fences"].items()}
MAY_IMPORT: dict[str, set[str]] = {
    package: set().union(*LAYERS[:layer]) for layer, packages in enumerate(LAYERS) for package in packages
}
STANDARD_LIBRARY_ONLY = {"errors", "text", "registry", "spec", "plan", "schemes"}
PUBLIC_API = "the public API"
MOST_MODULES = 14


def module_of(path: Path) -> str:
    return ".".join(("cruciform", *path.relative_to(SOURCE).with_suffix("").parts))


MODULES = {module_of(path) for path in SOURCE.rglob("*.py")}


def package_of(module: str) -> str:
    """Returns the package of a module, which stands on a layer; a module beside the packages is its own."""
    parts = module.split(".")[1:]
    if parts[0].startswith("__"):
        return PUBLIC_API
    return ".".join(parts[:-1]) or parts[0]


@cache
def imports() -> list[tuple[Path, str]]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found += [(path, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: write imports in full, from the home module"
                found += [(path, f"{node.module}.{alias.name}") for alias in node.names]
            elif isinstance(node, ast.List | ast.Tuple | ast.Call):
                found += [(path, module) for module in started(node)]
    return found


def started(node: ast.List | ast.Tuple | ast.Call) -> list[str]:
    """Returns the modules of ours that a command line in the code starts: what stands after "-m"."""
    words = [
        word.value if isinstance(word, ast.Constant) else None
        for part in (node.args if isinstance(node, ast.Call) else node.elts)
        for word in (part.value.elts if isinstance(part, ast.Starred) and isinstance(part.value, ast.Tuple) else [part])
    ]
    modules = [after for before, after in pairwise(words) if before == "-m"]
    return [f"{module}.__main__" if module == "cruciform" else str(module) for module in modules if module]


def home_of(name: str) -> str | None:
    """Returns the module of ours that an imported name is in."""
    return next((module for module in (name, name.rpartition(".")[0]) if module in MODULES), None)


def test_imports_lead_downwards_only() -> None:
    wrong = []
    for path, name in imports():
        here, home = package_of(module_of(path)), home_of(name)
        if here == PUBLIC_API or home is None:
            continue
        if package_of(home) not in MAY_IMPORT[here] | {here}:
            wrong.append(f"{path.relative_to(SOURCE)} ({here}) imports {name}")
    assert not wrong


def test_a_started_process_is_an_import() -> None:
    command = ast.parse('run([sys.executable, *("-m", "cruciform.coverage.worker")])').body[0].value  # type: ignore[attr-defined]
    assert started(command.args[0]) == ["cruciform.coverage.worker"]


def test_every_package_has_its_place_in_the_table() -> None:
    packages = {package_of(module) for module in MODULES if not module.endswith("__init__")} | {"api"}
    described = set().union(*LAYERS)
    assert packages - {PUBLIC_API} == described
    assert sum(map(len, LAYERS)) == len(described), "a package stands on two layers"


def test_nobody_imports_the_public_api() -> None:
    # The version is the one name that has no other home.
    names = [name for path, name in imports() if name in {"cruciform"} or name.startswith("cruciform.__")]
    assert set(names) <= {"cruciform.__version__"}


def test_third_party_packages_stay_in_theirs() -> None:
    wrong = [
        f"{path.name} imports {name}"
        for path, name in imports()
        if (package := name.split(".")[0]) in FENCES
        and package_of(module_of(path)).split(".")[0] not in FENCES[package]
    ]
    assert not wrong


def test_plans_know_no_torch() -> None:
    for path, name in imports():
        if package_of(module_of(path)) in STANDARD_LIBRARY_ONLY:
            assert name.split(".")[0] not in FENCES, f"{path.name} imports {name}"


def test_there_are_no_circles_of_modules() -> None:
    graph: dict[str, set[str]] = {}
    for path, name in imports():
        here, home = module_of(path), home_of(name)
        if home and home != here and not here.endswith("__init__"):
            graph.setdefault(here, set()).add(home)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_no_package_is_crowded() -> None:
    modules = Counter(path.parent for path in SOURCE.rglob("*.py") if not path.name.startswith("__"))
    assert {folder.name: count for folder, count in modules.items() if count > MOST_MODULES} == {}


def test_a_file_name_tells_what_it_is_without_its_folder() -> None:
    # A command's file has the command's name, a verb's the verb's, a picture's that of what it shows.
    free = {"api", "cli", "plot"}
    own = [path.stem for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in free]
    twice = {stem for stem, count in Counter(own).items() if count > 1 and not stem.startswith("__")}
    assert twice == set()


def test_the_architecture_names_every_package_with_its_layer() -> None:
    text = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text("utf-8")
    for number, layer in enumerate(TABLE["layer"]):
        (row,) = [line for line in text.splitlines() if line.startswith(f"| {number} | `")]
        assert all(f"`{package}`: {purpose}" in row for package, purpose in layer.items())


def test_the_architecture_fits_on_two_pages() -> None:
    assert len((Path(__file__).parents[2] / "ARCHITECTURE.md").read_text("utf-8").splitlines()) <= 110
