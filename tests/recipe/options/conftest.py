"""What the modes read, written once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.once import once
from tests.recipe.options.modes import write_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "world", write_world)
