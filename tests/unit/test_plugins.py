"""Items of other packages: a registry loads their entry points, and names those that fail."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cruciform.errors import PluginWarning
from cruciform.registry import Registry

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package where Python finds it, as pip does: code, and the metadata of its entry points."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(code: str, entries: str) -> None:
        (tmp_path / "guest_of_tests.py").write_text(code)
        info = tmp_path / "guest_of_tests-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest-of-tests\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[cruciform.trials]\n{entries}\n")
        monkeypatch.delitem(sys.modules, "guest_of_tests", raising=False)

    return put


def test_an_entry_point_is_found_by_its_name(install: Install) -> None:
    install("def double(x): return 2 * x", "double = guest_of_tests:double")
    registry: Registry[Callable[[int], int]] = Registry("trial", group="cruciform.trials")
    assert registry.get("double")(2) == 4
    assert registry.names() == ["double"]
    assert "double" in registry


def test_one_that_fails_is_named_and_the_others_stay(install: Install) -> None:
    install("good = 1\nraise RuntimeError('no GPU')", "bad = guest_of_tests:good")
    registry: Registry[int] = Registry("trial", group="cruciform.trials")
    registry.add("own", 1)
    with pytest.warns(PluginWarning, match="guest-of-tests adds the trial 'bad', which can't be loaded: no GPU"):
        assert registry.names() == ["own"]
    assert registry.names() == ["own"]  # and warns once


def test_a_module_may_register_several(install: Install) -> None:
    code = "import sys\nregistry = sys.registry_of_tests\nregistry.add('one', 1)\nregistry.add('two', 2)\n"
    install(code, "several = guest_of_tests")
    registry: Registry[int] = Registry("trial", group="cruciform.trials")
    sys.registry_of_tests = registry  # type: ignore[attr-defined]
    try:
        assert registry.names() == ["one", "two"]
    finally:
        del sys.registry_of_tests  # type: ignore[attr-defined]


def test_every_file_of_a_package_registers_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("import sys\n")
    for name in ("first", "second"):
        (package / f"{name}.py").write_text(f"import sys\nsys.registry_of_tests.add({name!r}, {name!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry: Registry[str] = Registry("trial", package="package_of_tests")
    monkeypatch.setattr(sys, "registry_of_tests", registry, raising=False)
    assert registry.names() == ["first", "second"]
