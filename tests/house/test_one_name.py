"""One name, one thing: who reads a name need not ask which module it is of."""

import ast
from collections import defaultdict
from pathlib import Path

import cruciform

SOURCE = Path(cruciform.__file__).parent
TREES = {path.relative_to(SOURCE): ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def test_no_class_name_is_defined_in_two_modules() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path))
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_a_constant_that_other_modules_import_is_defined_once() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    imported: set[str] = set()
    for path, tree in TREES.items():
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            for target in targets:
                if isinstance(target, ast.Name) and target.id.isupper() and len(target.id) > 1:
                    homes[target.id].append(str(path))
        for each in ast.walk(tree):
            if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("cruciform."):
                imported |= {alias.name for alias in each.names}
    assert {name: where for name, where in homes.items() if len(where) > 1 and name in imported} == {}
