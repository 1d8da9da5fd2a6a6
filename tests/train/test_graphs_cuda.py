"""Recorded passes compute what passes compute one kernel at a time: on a GPU."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.batch import TokenSequence as Text
from ingot.tokens.packing import make_batch
from ingot.train.batches import split_rows
from ingot.train.graphs import MOST, WARM, Graphs
from ingot.train.loop import Trainer
from ingot.train.losses.policy_gradient import PolicyGradient
from ingot.train.losses.terms import CrossEntropy, LossTerm
from ingot.train.source import Source
from tests.making.stages import Listener, stage_folder
from tests.model.minis import MINIS
from tests.model.tiny import random_model
from tests.train.toy import training_config

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

VOCABULARY, LENGTH, STEPS = 96, 64, 9


class Rows(Source):
    """Rows of one document (`documents` 1) or of several, whose numbers and lengths change from step to step."""

    def __init__(self, documents: int, varies: bool = False) -> None:
        self.documents, self.varies = documents, varies

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        rng, texts = random.Random(step % 4), list[Text]()
        for _ in range(8):
            cuts = sorted(rng.sample(range(2, LENGTH - 1, 2), self.documents - 1))
            for start, end in zip([0, *cuts], [*cuts, LENGTH], strict=True):
                tokens = [rng.randrange(VOCABULARY) for _ in range(end - start)]
                texts.append(Text(tokens, streams_of(rng, len(tokens))))
        return split_rows(make_batch(texts, LENGTH), 4), {}


def streams_of(rng: random.Random, length: int) -> dict[str, list[float]]:
    """What each of the losses below reads; an answer of half of the tokens."""
    answer = [float(place >= length // 2) for place in range(length)]
    return {
        "weight": [1.0] * length,
        "response_mask": answer,
        "advantage": [rng.choice((-1.0, 1.0))] * length,
        "sampled_logprob": [rng.uniform(-5.0, -4.0) * each for each in answer],
    }


def train(
    model: Transformer,
    path: Path,
    documents: int,
    term: LossTerm | None = None,
    varies: bool = False,
    **options: Any,
) -> tuple[list[float], Transformer, Trainer, list[str]]:
    heard = Listener()
    config = training_config(steps=STEPS, sequence_length=LENGTH, device="cuda", precision="bfloat16", **options)
    model = copy.deepcopy(model)
    trainer = Trainer(model, [term or CrossEntropy()], Rows(documents, varies), config, stage_folder(path, heard))
    trainer.run()
    losses = [line["loss"] for line in trainer.folder.metrics.read()]
    return losses, model, trainer, heard.lines


@pytest.mark.parametrize("documents", [1, 5])
@pytest.mark.parametrize("compiled", ["off", "blocks"])
@pytest.mark.parametrize("name", ["smollm2-135m-mini", "deepseek-v2-lite-mini", "olmoe-1b-7b-mini"])
def test_recorded_steps_are_the_steps(name: str, compiled: str, documents: int, tmp_path: Path) -> None:
    compare(name, tmp_path, documents, compile=compiled)


@pytest.mark.parametrize("name", ["smollm2-135m-mini", "olmoe-1b-7b-mini"])
@pytest.mark.parametrize("old", ["sampled_logprob", None])
def test_recorded_policy_gradients_are_the_policy_gradients(name: str, old: str | None, tmp_path: Path) -> None:
    """Their factors depend on the log-probabilities; sizes vary as those of samples."""
    compare(name, tmp_path, 5, PolicyGradient(old=old), varies=True, compile="blocks")


def compare(name: str, folder: Path, documents: int, term: LossTerm | None = None, **options: Any) -> None:
    """Train with and without graphs."""
    model = random_model(MINIS[name].model_copy(update={"vocabulary_size": VOCABULARY}), scale=0.05)
    plain, expected, _, _ = train(model, folder / "plain", documents, term, graphs="off", **options)
    losses, found, trainer, lines = train(model, folder / "graphs", documents, term, graphs="on", **options)
    assert not any("no CUDA graphs" in line for line in lines), lines
    graphs = trainer.run_passes.__self__  # type: ignore[attr-defined]
    assert isinstance(graphs, Graphs)
    assert 0 < len(graphs.captured) <= MOST
    assert graphs.watched and all(times <= WARM + 1 for times in graphs.seen.values()) and STEPS > 2 * WARM
    assert losses == pytest.approx(
        plain, rel=2e-3, abs=2e-4
    )  # backward passes of attention add up in any order, in bfloat16
    for (parameter, mine), other in zip(found.named_parameters(), expected.parameters(), strict=True):
        assert float((mine - other).detach().norm() / other.detach().norm().clamp_min(1e-6)) < 2e-2, parameter
