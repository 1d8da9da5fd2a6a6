"""No option is taken and ignored: what a mode of a stage never looks at is refused when the recipe is read.

For each mode (modes.py) the stage is run with every read of a config noted (reads.py). Each option that nothing read is then
written in the recipe with another value: the recipe must be refused. A new option is covered from the moment it is declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingot.recipe.flow import run_recipe
from ingot.workspace.errors import RecipeError
from tests.recipe.options.modes import LATE, MODES, WITHOUT_OCCASION, stands_in
from tests.recipe.options.reads import noted_reads, options_of, other_values

ONE_LOOP = ("checkpoints.", "guards.")
"""All training stages run in one loop; what it reads late, with a full window of steps, is shown by `pretrain`."""


@pytest.mark.parametrize("name", MODES)
def test_what_a_mode_does_not_read_is_refused(name: str, world: Path, tmp_path: Path) -> None:
    unread = list(_unread(name, world, tmp_path))
    taken = {place: _accepted(name, world, place, values) for place, values in unread}
    ignored = [place for place, value in taken.items() if value]
    assert not ignored, "\n".join(ignored)


def _unread(name: str, world: Path, runs: Path) -> Iterator[tuple[str, list[object]]]:
    """Options that a run of the mode does not look at, with other values that each may have."""
    recipe = MODES[name].load(world)
    with noted_reads() as reads:
        run_recipe(recipe, runs)
    for place, config, field, declared in options_of(recipe.stages[0].config):
        key = ".".join(map(str, place))
        if (
            (type(config), field) not in reads
            and not stands_in(key, LATE)
            and not (name != "pretrain" and key.startswith(ONE_LOOP))
        ):
            yield key, list(other_values(config.__dict__[field], declared))


def _accepted(name: str, world: Path, key: str, values: list[object]) -> list[object]:
    """The values with which the recipe is not refused."""
    found = []
    for value in values:
        try:
            MODES[name].load(world, {key: value})
        except RecipeError:
            continue
        found.append(value)
    return found


def test_what_acts_late_is_tested_elsewhere() -> None:
    """The reason names a file of tests in which the option stands."""
    root = Path(__file__).parents[3]
    named = {key: root / reason.rpartition(": ")[2] for key, reason in (LATE | WITHOUT_OCCASION).items()}
    assert not [key for key, path in named.items() if key.split(".")[-1] not in path.read_text(encoding="utf-8")]
