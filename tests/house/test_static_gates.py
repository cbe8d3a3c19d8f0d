"""What no line of this library may do, whatever it reads: gates on the syntax, so that a slip is red at once."""

import ast
from functools import cache
from pathlib import Path

import pytest

import cruciform

PACKAGE = Path(cruciform.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

FORBIDDEN_MODULES = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "yaml", "joblib"}
FORBIDDEN_BUILTINS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_METHODS = {"extractall", "extract", "unpack_archive", "popen"}
# Imports by a name that is not written out, and why each is none from data.
IMPORTS_BY_NAME = {
    "__init__.py": "the table of public names",
    "registry.py": "modules of our own packages, and entry points of installed ones",
    "sources/own_code.py": "package.module:function, as python -m would; never of what was read from a file",
    "sources/network_library.py": "the names of the libraries that sources stand for",
}


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"))))


def calls(path: Path) -> list[ast.Call]:
    return [node for node in nodes(path) if isinstance(node, ast.Call)]


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def whole_name(call: ast.Call) -> str:
    return ast.unparse(call.func)


def keyword(call: ast.Call, name: str) -> str:
    return next((ast.unparse(one.value) for one in call.keywords if one.arg == name), "")


def test_no_line_can_run_what_a_file_says() -> None:
    for path in FILES:
        _check(path)


def _check(path: Path) -> None:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            assert not {alias.name.partition(".")[0] for alias in node.names} & FORBIDDEN_MODULES, path
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] not in FORBIDDEN_MODULES, path
    for call in calls(path):
        where = f"{path}:{call.lineno}"
        assert whole_name(call) not in FORBIDDEN_BUILTINS, where
        assert name_of(call) not in FORBIDDEN_METHODS, where
        assert whole_name(call) != "os.system", where
        assert keyword(call, "shell") in ("", "False"), where
        if whole_name(call) in ("torch.load", "torch.jit.load"):
            assert keyword(call, "weights_only") == "True", where
        if whole_name(call) in ("np.load", "numpy.load"):
            assert keyword(call, "allow_pickle") == "False" or _is_of_our_own(path), where


def _is_of_our_own(path: Path) -> bool:
    """numpy refuses pickles unless told otherwise; files of others are read with that written out."""
    return path.name in ("whitening.py", "shard_write.py")


def test_modules_are_imported_by_written_names() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in FILES
        for call in calls(path)
        if name_of(call) == "import_module" and not (call.args and isinstance(call.args[0], ast.Constant))
    }
    assert found == set(IMPORTS_BY_NAME)


def test_numpys_own_default_refuses_pickles(tmp_path: Path) -> None:
    import numpy as np

    path = tmp_path / "evil.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        np.load(path)
