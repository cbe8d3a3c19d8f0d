"""The base of a recipe's tables: typed, checked when made, never changed; unknown keys are refused with a hint."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, TypeVar

from cruciform.errors import MissingExtraError, RecipeError
from cruciform.registry import did_you_mean

try:
    from pydantic import BaseModel, ConfigDict, ValidationError
    from pydantic_core import PydanticSerializationError
except ImportError as error:
    raise MissingExtraError(f"recipes are checked with pydantic ({error}): pip install 'cruciform[train]'") from error


class Table(BaseModel):
    """A table of a recipe.

    Attributes:
        shorthands: Dotted keys that may be given besides, and stand for others.
    """

    shorthands: ClassVar[tuple[str, ...]] = ()

    # Schemas are built when first used, not when this is imported.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


T = TypeVar("T", bound=Table)


def read_table(kind: type[T], data: Mapping[str, Any], what: str) -> T:
    """Checks plain data, and says all that is wrong with it in one error.

    Args:
        kind: What it shall become.
        data: Plain data, as from TOML or JSON.
        what: Where it comes from, for the message.
    """
    try:
        made = kind.model_validate(data)
        made.model_dump_json()  # what can't be written down can't be gone on with: half of a character, for instance
        return made
    except PydanticSerializationError as error:
        raise RecipeError(f"{what} holds something that can't be written down: {error}") from error
    except ValidationError as error:
        known = _known(kind)
        raise RecipeError(f"{what}: " + "; ".join(_say(one, known) for one in error.errors())) from None


@cache
def _known(kind: type[Table]) -> list[str]:
    return sorted({*_paths(kind.model_json_schema()), *kind.shorthands})


def _say(error: Any, known: list[str]) -> str:
    *above, last = _bare([str(part) for part in error["loc"]], known)
    path = ".".join((*above, last))
    siblings = [name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == ".".join(above)]
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        if last in siblings:  # of another kind: the kind stands before the key where a table is one of several
            kind = error["loc"][-2]
            return f"{'.'.join(above)} of the kind {kind!r} has no key {last!r}; drop it with --set {path}=none"
        return f"there is no key {path!r}.{did_you_mean(last, siblings)} There are: {', '.join(siblings)}"
    if error["type"] == "missing":
        return f"the key {path!r} is missing"
    if error["type"] == "union_tag_invalid":
        tag, allowed = error["ctx"]["tag"], error["ctx"]["expected_tags"]
        hint = did_you_mean(tag, allowed.replace("'", "").split(", "))
        return f"{path} has the kind {tag!r}.{hint} It can be {allowed}"
    if error["type"] == "value_error":
        return f"{path}: {error['ctx']['error']}"
    given = error["input"]
    shown = "" if isinstance(given, Mapping) else f", not {given!r}"
    return f"{path} {error['msg'].removeprefix('Input ')}{shown}"


def _bare(parts: list[str], known: list[str]) -> list[str]:
    """Leaves out what pydantic puts into paths and no recipe has: numbers in lists, and the kind of a choice."""
    if not parts:
        return ["the recipe"]
    bare: list[str] = []
    for part in parts[:-1]:
        if ".".join((*bare, part)) in known:
            bare.append(part)
    return bare if parts[-1].isdecimal() and bare else [*bare, parts[-1]]


def _paths(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yields the dotted names of all keys that a schema allows."""

    def walk(node: Mapping[str, Any], path: str) -> Iterator[str]:
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
        for choice in (*node.get("anyOf", ()), *node.get("oneOf", ())):
            yield from walk(choice, path)
        if isinstance(node.get("items"), dict):
            yield from walk(node["items"], path)
        for name, child in node.get("properties", {}).items():
            here = f"{path}.{name}" if path else name
            yield here
            yield from walk(child, here)

    return walk(schema, "")
