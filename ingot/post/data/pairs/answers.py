"""Several answers of the model itself to each task of a stage of preferences."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ingot.envs.episode import Episode
from ingot.envs.mix import TaskMix
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.rollout import Drawing
from ingot.envs.tools.find import find_tools
from ingot.envs.tools.tool import Tool
from ingot.inference.checksum import weights_checksum
from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.post.policy import chat_format
from ingot.post.prefer_config import PreferConfig
from ingot.post.processes import ALONE, Processes
from ingot.post.sampled_answers import SLOTS, AnswerSampler, describe_model
from ingot.train.device import choose_sampling_precision
from ingot.workspace.stage import StageFolder


def sample_answers(
    model: Transformer,
    config: PreferConfig,
    seed: int,
    processes: Processes = ALONE,
    folder: StageFolder | None = None,
) -> list[Episode]:
    """`config.samples` scored answers to each of `config.prompts` tasks, in order; those saved in `folder` are not sampled again.

    The model is whole. Each of several processes samples a part of the answers, and all get all.
    """
    mix, tools = TaskMix(config.tasks), find_tools(config.tools)
    sampler = answer_sampler(model, mix, tools, config, seed, lambda: make_engine(model, config, processes))
    saved = None
    if folder is not None:
        made_from = {
            **describe_model(model),
            "weights": weights_checksum(model),
            "scoring": config.tasks.model_dump(mode="json"),
            "slots": SLOTS,
        }
        saved = sampler.saved(folder.path / "answers", made_from, folder.progress.say, together=config.samples)
    return processes.share(len(sampler.tasks), sampler.sample, saved)


def answer_sampler(
    model: Transformer,
    mix: TaskMix,
    tools: Mapping[str, Tool],
    config: PreferConfig,
    seed: int,
    make_policy: Callable[[], Engine],
) -> AnswerSampler:
    """What samples `config.samples` answers to each of the tasks that follow from a seed."""
    return AnswerSampler(
        [task for task in mix.generate(seed, config.prompts, "train") for _ in range(config.samples)],
        make_policy,
        chat_format(model),
        mix.kinds,
        Drawing(config.temperature, seed=seed),
        Limits(config.max_new_tokens, config.sequence_length),
        tools,
    )


def make_engine(model: Transformer, config: PreferConfig, processes: Processes) -> Engine:
    """The engine of a process. Several processes sample from the whole copy that each has: a further one in another
    precision would not fit where that hardly does."""
    dtype = choose_sampling_precision("auto", model.embedding.weight.device) if processes.size == 1 else None
    return Engine(model, slots=SLOTS, length=config.sequence_length, dtype=dtype)
