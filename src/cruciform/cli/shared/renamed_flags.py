"""Old names of flags, each answered with the new one."""

from typing import Any

from typer.core import TyperGroup

from cruciform.errors import OptionError

RENAMED_FLAGS = {
    "train": {"--least-workers": "--min-workers"},
    "bench": {"--patience": "--search-seconds"},
    "deploy": {"--patience": "--search-seconds"},
}
"""By command: the old flag, and what it is called now."""


class FlagChecker(TyperGroup):
    """Rejects flags of earlier versions, naming their successors."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command and raise if one of its arguments is a flag under an old name."""
        renamed = RENAMED_FLAGS.get(args[0], {}) if args else {}
        for word in args[1:]:
            if word == "--":
                break
            flag = word.partition("=")[0]
            if flag in renamed:
                raise OptionError(f"{flag} is now {renamed[flag]}")
        return super().resolve_command(ctx, args)
