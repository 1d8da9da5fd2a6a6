"""What the tests of this room are made of: models, episodes, and one step of the real training loop."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ingot.checkpoints.checkpoint import save_checkpoint
from ingot.envs.config import TaskMixConfig
from ingot.envs.episode import Episode, Node, Score, Segment
from ingot.envs.mix import TaskMix
from ingot.envs.task import make_task
from ingot.model.config import BlockConfig, InitialConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.initialise import initialise
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.transformer import Transformer
from ingot.optim.config import AdamWConfig, ScheduleConfig
from ingot.post.distill.config import DistillConfig
from ingot.post.rl.async_sampler import AsyncSampler
from ingot.post.rl.engine_sampler import EngineSampler
from ingot.post.rl.pipeline import SampleBatch
from ingot.post.rl.sampling_config import OF_SAMPLES
from ingot.post.rl.source import RlSource
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.train.config import TrainingConfig
from ingot.train.loop import Trainer
from ingot.train.losses.terms import LossTerm
from ingot.train.source import Source
from ingot.workspace.stage import StageFolder
from tests.train.toy import run_without_final_checkpoint

SUMS = TaskMixConfig.model_validate({"weights": {"no_think": 1.0}, "no_think": {"operations": ("sum",), "largest": 5}})
"""A small world: sums of two numbers up to five, answered directly."""
CONTEXT = 128
UNCLIPPED = AdamWConfig(lr=1e-3, weight_decay=0.0, clip=1e9)
CONSTANT = ScheduleConfig(kind="constant", warmup=0.0)


def tiny_tokenizer() -> Tokenizer:
    """A byte-level tokenizer with merges for the words of the smallest world."""
    texts = [task.question for task in TaskMix(SUMS).generate(0, 70, "train")] + ["user\n", "assistant\n"] * 9
    return train_tokenizer(texts, TokenizerConfig(vocabulary_size=300))


def tiny_model(tokenizer: Tokenizer, seed: int = 0, *, width: int = 32, std: float = 0.2) -> Transformer:
    """Two layers with grouped key heads; with the default std its distributions are far from uniform."""
    block = BlockConfig(
        mixer=AttentionConfig(heads=4, key_value_heads=2, head_width=width // 4),
        feed_forward=FeedForwardConfig(width=2 * width),
    )
    config = ModelConfig(
        vocabulary_size=tokenizer.vocabulary_size,
        width=width,
        blocks={"layer": block},
        layers="layer*2",
        context=CONTEXT,
        initial=InitialConfig(std=std),
    )
    model = Transformer(config)
    initialise(model, seed)
    model.tokenizer = tokenizer
    return model


def nudged(model: Transformer, size: float, seed: int) -> Transformer:
    """The same model with noise on every weight: the policy some steps later."""
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.empty(parameter.shape).normal_(0.0, size, generator=generator))
    return other


def checkpoint_of(model: Transformer, folder: Path) -> Path:
    """The model as a checkpoint on disk."""
    save_checkpoint(folder, model)
    return folder


def random_tokens(count: int, size: int, generator: torch.Generator) -> list[int]:
    """`count` ordinary tokens of a vocabulary of `size`."""
    return torch.randint(16, size, (count,), generator=generator).tolist()


def episode(nodes: Sequence[tuple[str, list[int]]], reward: float = 0.0, question: str = "1 + 1?") -> Episode:
    """An episode of given tokens; the assistant's are sampled, with log-probabilities still to be filled in."""
    made = [
        Node(role, tokens, True, [0.0] * len(tokens), [0] * len(tokens))
        if role == "assistant"
        else Node(role, tokens, False)
        for role, tokens in nodes
    ]
    task = make_task("no_think", question, "2", thinking=False)
    return Episode(task, [Segment(made)], [], Score(reward, reward == 1, True))


def with_logprobs(each: Episode, values: Sequence[float]) -> Episode:
    """The episode with the sampler's log-probabilities (aligned with its tokens)."""
    nodes, start = [], 0
    for node in each.nodes:
        end = start + len(node.tokens)
        logprobs = list(values[start:end]) if node.sampled else []
        nodes.append(Node(node.role, node.tokens, node.sampled, logprobs, node.versions))
        start = end
    return Episode(each.task, [Segment(nodes)], each.messages, each.score)


@dataclass
class Step:
    """What the training loop did in one step."""

    metrics: dict[str, Any]
    gradients: dict[str, Tensor]


def one_step(
    model: Transformer, terms: Sequence[LossTerm], source: Source, folder: StageFolder, *, temperature: float = 1.0
) -> Step:
    """Run the real loop for one step without clipping, and keep the gradients that reach the optimizer."""
    config = TrainingConfig(
        steps=1, sequence_length=CONTEXT, optimizer=UNCLIPPED, schedule=CONSTANT, precision="float32", device="cpu"
    )
    trainer = Trainer(model, terms, source, config, folder, temperature=temperature)
    gradients: dict[str, Tensor] = {}

    def keep(optimizer: torch.optim.Optimizer, arguments: object, options: object) -> None:
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            gradients[name] = parameter.grad.clone()

    trainer.optimizer.register_step_pre_hook(keep)
    return Step(run_without_final_checkpoint(trainer), gradients)


def engine_of(source: RlSource) -> EngineSampler:
    """The sampler of a source whose sampling and training take turns."""
    assert isinstance(source.sampler, EngineSampler)
    return source.sampler


def samplers_of(source: RlSource) -> AsyncSampler:
    """That of an asynchronous source."""
    assert isinstance(source.sampler, AsyncSampler)
    return source.sampler


def blank_batch(source: RlSource, step: int) -> SampleBatch:
    """A batch of which nothing is known yet."""
    return SampleBatch(step, source.config.temperature_at(step), source.config.limit_at(step))


def drawn(source: RlSource, step: int) -> SampleBatch:
    """A batch that is drawn and noted; nothing is stamped on it yet."""
    batch = blank_batch(source, step)
    for each in source.pipeline.steps[: source.pipeline.steps.index(source.pipeline.check_prompts)]:
        each(batch)
    return batch


def distill_options(options: Mapping[str, Any]) -> DistillConfig:
    """Options of `distill`, without those of samples where there are none."""
    unread = OF_SAMPLES if options.get("on_policy") == 0 else ()
    return DistillConfig.model_validate({name: value for name, value in options.items() if name not in unread})
