"""Context extension in steps, as docs/methods/context-extension.md shows it: rows, rotation, mixture and rates of every stage."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from ingot.model.mixers.attention import AttentionConfig
from ingot.optim.schedule import learning_rate_share
from ingot.recipe.load import load_recipe
from ingot.train.changes import changed_model
from ingot.train.pretrain_config import PretrainConfig

PAGE = Path(__file__).parents[2] / "docs" / "methods" / "context-extension.md"
START = """
name: ladder
inputs: { tokenizer: data/tokenizer, shards: data/shards }
stages:
  pretrain:
    model: { preset: smollm3-3b }
    rope_base: 50_000
    sequence_length: 4096
    tokens: 1T
    batch_tokens: 2Mi
    phases: [{ until: 1, weights: { web: 1 } }]
"""


def stages() -> list[PretrainConfig]:
    """A first stage at 4096 tokens and those of the page."""
    block = re.search(r"^## In steps.*?```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert block is not None
    path = Path("ladder.yaml")
    path.write_text(START + re.sub(r"^(?=.)", "  ", block[1], flags=re.MULTILINE), encoding="utf-8")
    configs = [stage.config for stage in load_recipe(path, absent=True).stages]
    assert all(isinstance(config, PretrainConfig) for config in configs)
    return configs  # type: ignore[return-value]


def test_every_stage_stretches_the_model_of_the_one_before() -> None:
    first, *later = stages()
    assert first.model is not None
    model = changed_model(first.model.model_copy(update={"context": first.sequence_length}), first)
    found = []
    for config in [None, *later]:
        model = model if config is None else changed_model(model, config)
        mixers = [model.block(layer).mixer for layer in range(model.depth)]
        ropes = {mixer.rope for mixer in mixers if isinstance(mixer, AttentionConfig) and mixer.rope is not None}
        assert len(ropes) == 1 and sum(getattr(mixer, "rope", None) is None for mixer in mixers) == 9
        scaling = (rope := ropes.pop()).scaling
        found.append((model.context, rope.base, None if scaling is None else scaling.model_dump()["factor"]))
    assert found == [(4096, 5e4, None), (32768, 2e6, None), (65536, 5e6, None), (131072, 5e6, 2.0)]


def test_every_stage_has_its_rows_its_mixture_and_a_decay_of_its_own() -> None:
    for config in stages()[1:]:
        weights = config.phases[0].weights
        long = {name: weight for name, weight in weights.items() if "@" in name}
        shortest = {int(name.partition("@")[2].rstrip("+")) for name in long}
        assert shortest == {config.sequence_length // 2} and sum(long.values()) == pytest.approx(0.4)
        assert config.packing == "best_fit" and config.batch_tokens % config.sequence_length == 0
        shares = [learning_rate_share(config.schedule, step, config.steps) for step in range(config.steps)]
        top = shares.index(1.0)
        assert top == config.schedule.warmup and shares[0] < 0.03
        last = shares[-1]
        if config.schedule.kind == "cosine":
            assert shares[(top + config.steps) // 2] == pytest.approx(0.55, abs=1e-3) and last == pytest.approx(
                0.1, abs=1e-3
            )
        else:
            decay = round(0.9 * config.steps)
            assert last == pytest.approx(1 - math.sqrt(decay / (decay + 1)), abs=1e-12)
