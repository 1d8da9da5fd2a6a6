"""The reference of RL: asked once a batch, and in the precision of the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ingot.envs.episode import Episode
from ingot.post.algorithms.rloo import Rloo
from ingot.post.rl.objective import PolicyOptimization
from ingot.post.rl.source import RlSource
from ingot.post.rl.stamping import Rows
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.loop import Trainer
from ingot.workspace.stage import StageFolder
from tests.post.making import tiny_model
from tests.post.rl.test_source import EvenLast, make_config
from tests.train.toy import run_without_final_checkpoint


class EvenRloo(Rloo):
    def reward(self, episode: Episode) -> float:
        return float(episode.tokens()[-1] % 2 == 0)


@pytest.mark.parametrize(
    ("algorithm", "passes", "stamped"),
    [
        pytest.param(EvenLast(), 0, False, id="none"),
        pytest.param(EvenLast(reference_weight=0.1), 1, True, id="in the loss"),
        pytest.param(Rloo(), 1, False, id="in the reward"),
        pytest.param(Rloo(reference_in="loss"), 1, True, id="rloo, in the loss"),
    ],
)
def test_the_reference_is_asked_once_a_batch(
    algorithm: PolicyOptimization,
    passes: int,
    stamped: bool,
    tokenizer: Tokenizer,
    make_folder: Callable[[str], StageFolder],
) -> None:
    """Its stream is there only if a term reads it."""
    config = make_config(algorithm=algorithm, mini_batches=2, measure_start=False)
    source = RlSource(tiny_model(tokenizer), config, make_folder("rl"))
    plain, counted = source.scores.frozen_logprobs, list[int]()

    def frozen_logprobs(episodes: Sequence[Episode], temperature: float) -> Rows:
        counted.append(len(episodes))
        return plain(episodes, temperature)

    source.scores.frozen_logprobs = frozen_logprobs  # type: ignore[method-assign]
    for step in (0, 1):
        sequences, _ = source.update(step)
        assert len(counted) == passes
        assert all(("reference_logprob" in each.streams) == stamped for each in sequences)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")  # of a CPU without bfloat16
@pytest.mark.parametrize("sampling", ["float32", "bfloat16"])
@pytest.mark.parametrize("algorithm", [EvenLast(reference_weight=0.1), EvenRloo()], ids=["loss", "reward"])
def test_a_policy_does_not_diverge_from_itself(
    algorithm: PolicyOptimization, sampling: str, tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """In bfloat16: at step 0 policy and reference are one model, and log π − log reference is 0 for every token, not rounding."""
    folder = make_folder("rl")
    options: dict[str, Any] = {"precision": "bfloat16", "sampling_precision": sampling, "steps": 2}
    source = RlSource(tiny_model(tokenizer), make_config(algorithm=algorithm, **options), folder)
    terms = algorithm.terms(source.model, source.config)
    run_without_final_checkpoint(
        Trainer(source.model, terms, source, source.config, folder, after_step=source.check_ratio)
    )
    first, second = (abs(row["reference_divergence"]) for row in folder.metrics.read())
    assert first == 0.0 and second > 1e-4
