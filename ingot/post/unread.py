"""Options that were given though nothing would read them: each is refused when the recipe is read, with the reason."""

from __future__ import annotations

from collections.abc import Iterable

from ingot.workspace.config import Config


def unread(config: Config, names: Iterable[str], reason: str, where: str = "") -> list[str]:
    """The problem in words, if any of these options asks for something else than its default.

    `where` is the place of the config within that of the stage.
    """
    given = config.chosen(*names)
    left = "it" if len(given) == 1 else "them"
    return [f"{', '.join(where + name for name in given)}: {reason}; leave {left} out"] if given else []


def refuse(problems: Iterable[str]) -> None:
    """Raise these problems together, if there are any."""
    if found := list(problems):
        raise ValueError("; ".join(found))
