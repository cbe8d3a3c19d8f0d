"""Files that others may have put are read through ``cruciform.files`` alone: a pipe in their place would hang us."""

import ast
from pathlib import Path

import cruciform

PACKAGE = Path(cruciform.__file__).parent
READS = {"read_text", "read_bytes"}
LOADS = {"fromfile": "np", "memmap": "np", "load": "np", "load_file": None, "load_model": None, "safe_open": None}
CHECKS = {"check_regular", "need_path", "is_file", "read_manifest", "open_regular", "_read_card"}
# What is read in another way, and why it may be.
OTHERS = {
    "files.py": "it is the way",
    "store/recognize.py": "four bytes, of what it has seen to be a regular file",
    "models/model_card.py": "part of the package",
    "sources/network_names.py": "part of the package",
    "paper/published.py": "part of the package",
    "reports/document.py": "part of the package",
    "training/recipe/cookbook.py": "recipes that are part of the package; others by read_text",
    "measure/record.py": "/proc",
    "machine/processor.py": "/proc",
}


def is_opened_to_read(call: ast.Call) -> bool:
    modes = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    texts = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
    return not any(set(text) & set("wa") and len(text) < 4 for text in texts)


def unguarded(text: str) -> list[str]:
    """Returns the calls that read a file by themselves, in functions that nowhere look what kind of file it is."""
    found = []
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        names = [getattr(call.func, "attr", getattr(call.func, "id", "")) for call in calls]
        for call, name in zip(calls, names, strict=True):
            owner = getattr(getattr(call.func, "value", None), "id", None)
            is_method = isinstance(call.func, ast.Attribute)
            reads = is_method and name in READS and owner != "storage"
            opens = name == "open" and owner not in ("os", "Pillow", "zipfile") and is_opened_to_read(call)
            loads = name in LOADS and LOADS[name] in (None, owner)
            if reads or ((opens or loads) and not CHECKS & set(names)):
                found.append(f"line {call.lineno}: {name}")
    return found


def test_every_file_is_read_by_what_refuses_pipes_and_devices() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name not in OTHERS and (lines := unguarded(path.read_text("utf-8"))):
            found[name] = lines
    assert found == {}


def test_a_file_that_is_read_by_itself_is_found() -> None:
    for text in ('path.read_text("utf-8")', "path.open()", 'open(path, "rb")', "np.load(path)", "safe_open(path, 1)"):
        assert unguarded(f"def f(path):\n    return {text}")
    for text in ('path.open("wb")', "read_text(path)", "np.load(check_regular(path))", 'open(path, "a")'):
        assert not unguarded(f"def f(path):\n    return {text}")


def test_every_exception_is_needed() -> None:
    assert [name for name in OTHERS if not unguarded((PACKAGE / name).read_text("utf-8"))] in ([], ["files.py"])
