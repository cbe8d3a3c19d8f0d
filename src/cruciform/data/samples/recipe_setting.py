"""Base of settings in recipes."""

from typing import Any, ClassVar


class RecipeSetting:
    """Base of settings in recipes; unknown keys are errors."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}
