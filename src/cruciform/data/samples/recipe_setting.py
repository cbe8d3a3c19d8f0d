"""What the settings that a recipe can hold have in common."""

from typing import Any, ClassVar


class RecipeSetting:
    """Base of settings: read from a file, an unknown key is an error and not a silence."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
