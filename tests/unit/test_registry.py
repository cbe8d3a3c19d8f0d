import pytest

from cruciform.errors import UnknownNameError
from cruciform.registry import Registry, did_you_mean


def test_a_registry_finds_lists_and_hints() -> None:
    registry: Registry[int] = Registry("number")
    registry.add("one", 1)
    assert registry.register("two")(2) == 2
    assert registry.get("two") == 2
    assert registry.names() == ["one", "two"]
    assert list(registry.items()) == [("one", 1), ("two", 2)]
    assert "one" in registry
    with pytest.raises(UnknownNameError, match=r"unknown number 'tow'. Did you mean 'two'\? Known: one, two."):
        registry.get("tow")


def test_a_name_can_be_taken_once_only() -> None:
    registry: Registry[int] = Registry("number")
    registry.add("one", 1)
    with pytest.raises(ValueError, match="already registered"):
        registry.add("one", 2)


def test_nothing_close_gives_no_hint() -> None:
    assert did_you_mean("xyz", ["one"]) == ""
