"""Each option, set to another value, changes what the stage leaves behind, or the recipe is refused.

Reading is not yet using: `test_no_option_is_ignored` sees that something looks at an option, this that it matters. A mode is run
twice as it is, to know what no two runs share (times above all), then once for each other value until one makes a difference.
Options in `Config.how` say how the work is done; that they change no result is what other tests show. What every training stage
has is tried in pre-training alone: they run in one loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ingot.recipe.flow import run_recipe
from ingot.train.config import TrainingConfig
from ingot.workspace.config import Config
from ingot.workspace.errors import IngotError, RecipeError
from tests.recipe.options.modes import LATE, MODES, WITHOUT_OCCASION, Mode, stands_in
from tests.recipe.options.outcome import differs, outcome
from tests.recipe.options.reads import options_of, other_values

Changes = Mapping[str, object]
Outcome = dict[str, Any]
pytestmark = pytest.mark.slow


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", MODES)
def test_every_option_changes_the_result_or_is_refused(name: str, world: Path, tmp_path: Path) -> None:
    mode = MODES[name]
    recipe = mode.load(world)
    usual, again = (_run(mode, world, tmp_path / place) for place in ("usual", "again"))
    idle = []
    for place, config, field, declared in options_of(recipe.stages[0].config):
        key = ".".join(map(str, place))
        stage = recipe.stages[0]
        shared = place[0] in TrainingConfig.model_fields and stage.kind != "pretrain"
        is_how = field in type(config).how or place[0] in type(stage.config).how
        if is_how or shared or stands_in(key, LATE | WITHOUT_OCCASION) or isinstance(config.__dict__[field], Config):
            continue
        values = [
            value for value in other_values(config.__dict__[field], declared) if _is_taken(mode, world, key, value)
        ]
        if values and not any(
            _matters(mode, world, tmp_path / f"{key}-{number}", {key: value}, usual, again)
            for number, value in enumerate(values)
        ):
            idle.append(key)
    assert not idle, "\n".join(idle)


def _is_taken(mode: Mode, world: Path, key: str, value: object) -> bool:
    try:
        mode.load(world, {key: value})
    except RecipeError:
        return False
    return True


def _matters(mode: Mode, world: Path, runs: Path, changes: Changes, usual: Outcome, again: Outcome) -> bool:
    try:
        return differs(_run(mode, world, runs, changes), usual, again)
    except IngotError:
        return True  # it stopped the run with a message: it was not ignored


def _run(mode: Mode, world: Path, runs: Path, changes: Changes | None = None) -> Outcome:
    run_recipe(mode.load(world, changes), runs)
    return outcome(next(runs.glob("*/it-*")))
