"""A tiny tokenizer, tiny models and stage folders for the tests of post-training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ingot.optim.config import AdamWConfig
from ingot.post import sft
from ingot.post.sft_config import SftConfig
from ingot.tokens.chat import ChatFormat
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.stage import StageFolder
from tests.making.stages import stage_folder
from tests.once import once
from tests.post.making import SUMS, checkpoint_of, tiny_model, tiny_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return tiny_tokenizer()


@pytest.fixture
def chat(tokenizer: Tokenizer) -> ChatFormat:
    return ChatFormat(tokenizer)


@pytest.fixture(scope="session")
def schooled(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> StageFolder:
    """The folder of a finished SFT stage whose model gets about two fifths of the small world's sums right."""
    path = once(tmp_path_factory, "schooled", lambda place: school(tokenizer, place))
    return stage_folder(path)


def school(tokenizer: Tokenizer, place: Path) -> Path:
    """Run the stage below `place`."""
    base = checkpoint_of(tiny_model(tokenizer, std=0.05), place / "base")
    folder = stage_folder(place / "sft")
    config = SftConfig(
        steps=110,
        sequence_length=64,
        tasks=SUMS,
        task_conversations=200,
        follow_ups=0.0,  # the tests ask single questions
        optimizer=AdamWConfig(lr=1e-2),
        precision="float32",
        device="cpu",
    )
    sft.run(config, {"checkpoint": base}, folder)
    return folder.path


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[[str], StageFolder]:
    """Stage folders by name below the test's own folder."""
    return lambda name: stage_folder(tmp_path / name)
