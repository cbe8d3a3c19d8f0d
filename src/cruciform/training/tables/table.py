"""The base of recipe tables: typed, validated, immutable; unknown keys are refused with a hint."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar, Union

from cruciform.errors import MissingExtraError, RecipeError
from cruciform.registry import Registry, did_you_mean

try:
    from pydantic import BaseModel, ConfigDict, Discriminator, Tag, ValidationError
    from pydantic_core import PydanticSerializationError
except ImportError as error:
    raise MissingExtraError(f"recipes are validated with pydantic ({error}): pip install 'cruciform[train]'") from error


class Table(BaseModel):
    """A table of a recipe.

    Attributes:
        shorthands: Dotted keys that are accepted too and stand for others.
    """

    shorthands: ClassVar[tuple[str, ...]] = ()

    # Schemas are built when first used, not when this is imported.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


T = TypeVar("T", bound=Table)


def one_of(tables: Registry[type[T]], default: str | None = None) -> Any:
    """Return the type of a table that is one of a registry's, chosen by its key ``kind``.

    Args:
        tables: The tables by kind.
        default: The kind of a table that does not give one; None: the key is required.
    """

    def kind_of(value: Any) -> str | None:
        kind = value.get("kind", default) if isinstance(value, Mapping) else getattr(value, "kind", default)
        return None if kind is None else str(kind)

    choices = tuple(Annotated[table, Tag(name)] for name, table in tables.items())
    return Annotated[Union[choices], Discriminator(kind_of)]  # noqa: UP007  (built from data)


def read_table(kind: type[T], data: Mapping[str, Any], what: str) -> T:
    """Validate plain data; report everything that is wrong with it in one error.

    Args:
        kind: The table to make.
        data: Plain data, as from TOML or JSON.
        what: Where it comes from, for the message.
    """
    try:
        made = kind.model_validate(data)
        made.model_dump_json()  # a run must be able to write its recipe: half of a surrogate pair can't be written
        return made
    except PydanticSerializationError as error:
        raise RecipeError(f"{what} holds a value that can't be written as JSON: {error}") from error
    except ValidationError as error:
        known = _known(kind)
        raise RecipeError(f"{what}: " + "; ".join(_describe(one, known) for one in error.errors())) from None


@cache
def _known(kind: type[Table]) -> list[str]:
    return sorted({*_paths(kind.model_json_schema()), *kind.shorthands})


def _describe(error: Any, known: list[str]) -> str:
    *above, last = _bare([str(part) for part in error["loc"]], known)
    path = ".".join((*above, last))
    siblings = [name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == ".".join(above)]
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        if last in siblings:  # a key of another kind; pydantic's path has the kind before the key
            kind = error["loc"][-2]
            return f"{'.'.join(above)} of kind {kind!r} has no key {last!r}; drop it by setting {path}=none"
        return f"there is no key {path!r}.{did_you_mean(last, siblings)} Keys: {', '.join(siblings)}"
    if error["type"] == "missing":
        return f"the key {path!r} is missing"
    if error["type"] == "union_tag_invalid":
        tag, allowed = error["ctx"]["tag"], error["ctx"]["expected_tags"]
        hint = did_you_mean(tag, allowed.replace("'", "").split(", "))
        return f"{path} has the unknown kind {tag!r}.{hint} Known kinds: {allowed}"
    if error["type"] == "value_error":
        return f"{path}: {error['ctx']['error']}"
    if error["type"] == "union_tag_not_found":
        return f"the key '{path}.kind' is missing"
    value = error["input"]
    shown = "" if isinstance(value, Mapping) else f", not {value!r}"
    return f"{path} {error['msg'].removeprefix('Input ')}{shown}"


def _bare(parts: list[str], known: list[str]) -> list[str]:
    """Drop what pydantic adds to paths and recipes don't have: list indices, and the kind of a choice."""
    if not parts:
        return ["the recipe"]
    bare: list[str] = []
    for part in parts[:-1]:
        if ".".join((*bare, part)) in known:
            bare.append(part)
    return bare if parts[-1].isdecimal() and bare else [*bare, parts[-1]]


def _paths(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dotted names of all keys that a schema allows."""

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
