"""The miniature of every family learns: one step of each in `make test`, two hundred in `make test-all`."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.batch import Sequence as Text
from ingot.tokens.packing import make_batch
from ingot.train.config import PretrainConfig
from ingot.train.language import language_terms
from ingot.train.pretrain import STAGE
from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder
from tests.model.minis import MINIS, Corpus, mini, shakespeare, write_corpus
from tests.train.toy import FixedSource, make_trainer, stage_folder

VOCABULARY = 512
ROW = 128  # longer than every window, chunk and selection of keys of the miniatures


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Small products are slower on more threads where cores are shared."""
    torch.set_num_threads(1)


def packed_batch() -> Batch:
    """Documents of 2 to 120 random tokens in rows of at most `ROW`, with padding."""
    rng = random.Random(0)
    texts = [[rng.randrange(VOCABULARY) for _ in range(length)] for length in (120, 77, 2, 40, 9)]
    batch = make_batch([Text(tokens, {"weight": [1.0] * len(tokens)}) for tokens in texts], ROW)
    assert (batch.documents == -1).any() and len(batch.tokens) == 2
    return batch


def with_indexer_loss(config: ModelConfig) -> ModelConfig:
    """Sparse attention with the loss that trains its indexers: no other reaches them."""

    def changed(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {key: changed(inner) for key, inner in value.items()} | ({"loss": 0.1} if "keep" in value else {})

    return ModelConfig.model_validate(changed(config.model_dump()))


def one_step(model: Transformer, folder: Path) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of a real step of the trainer."""
    config = PretrainConfig.model_validate(training())
    trainer = make_trainer(
        stage_folder(folder),
        source=FixedSource([packed_batch()]),
        terms=language_terms(model, config),
        model=model,
        steps=1,
        optimizer={"clip": 1e12},
    )
    gradients: dict[str, Tensor] = {}

    def keep(*_: object) -> None:
        gradients.update({n: p.grad.double() for n, p in trainer.model.named_parameters() if p.grad is not None})

    trainer.optimizer.register_step_pre_hook(keep)
    return trainer.run()["loss"], gradients


def training(**changes: Any) -> dict[str, Any]:
    """Options of a pre-training stage on the CPU."""
    return {
        "steps": STEPS,
        "sequence_length": ROW,
        "batch_tokens": 2 * ROW,
        "precision": "float32",
        "device": "cpu",
        "optimizer": {"lr": 3e-3},
        "checkpoint_every": STEPS,
        "validate_every": STEPS,
        "validation_rows": 8,
        "phases": [{"until": 1.0, "weights": {"text": 1.0}}],
        **changes,
    }


@pytest.mark.parametrize("name", MINIS)
def test_a_step_reaches_every_parameter_and_equals_float64(name: str, tmp_path: Path) -> None:
    model = Transformer(with_indexer_loss(mini(name, VOCABULARY)))
    initialise(model, seed=0)
    precise_loss, precise = one_step(copy.deepcopy(model).double(), tmp_path / "float64")
    loss, found = one_step(model, tmp_path / "float32")
    assert loss == pytest.approx(precise_loss, rel=1e-5)
    assert found.keys() == precise.keys() == dict(model.named_parameters()).keys()
    for key, gradient in precise.items():
        assert gradient.isfinite().all() and gradient.any(), key
        error = float((found[key] - gradient).norm() / gradient.norm())
        assert error < 1e-3, f"{key}: {error:.1e}"


STEPS = 200
BAR: dict[str, float] = {}


@pytest.fixture(scope="module")
def corpus(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return write_corpus(shakespeare(shared_data), VOCABULARY, tmp_path_factory.mktemp("corpus"))


@pytest.mark.slow
@pytest.mark.parametrize("name", MINIS)
def test_two_hundred_steps_of_shakespeare(name: str, corpus: Corpus, tmp_path: Path) -> None:
    config = PretrainConfig.model_validate(training(model=MINIS[name].model_dump()))
    folder = StageFolder(tmp_path, seed=0, progress=Progress())
    STAGE.run(config, corpus.inputs, folder)
