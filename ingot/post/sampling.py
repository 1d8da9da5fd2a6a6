"""Training on the policy's own samples: RL and distillation differ only in the advantage they give to each token.

Step s samples tasks drawn with seed (stage seed, s) from the weights of step s, stamps every sampled token with an
advantage, and hands the episodes to the trainer as they are: tokens are never decoded and encoded again. One optimizer
step per batch of samples, so the policy π that is updated is the sampler μ; their ratio is therefore 1 for every token, and
a run where it is not has a sampler that computes something else than the trainer. The mean ratio alone cannot show this:
the expectation of π/μ over what μ samples is 1 for any two distributions. So the divergence of the two is checked as well.

Several processes share the sampling (processes.py); each makes the batches of the whole step and trains on its share of them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ingot.envs.episode import Episode
from ingot.envs.mix import TaskMix
from ingot.envs.play import Limits
from ingot.envs.rollout import Drawing, rollout
from ingot.envs.task import Task
from ingot.envs.tools.find import find_tools
from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.post.algorithm import SampledAlgorithm, Samples, Stamped
from ingot.post.barrier import Between
from ingot.post.config import DistillConfig, RlConfig
from ingot.post.conversations import pack_groups
from ingot.post.policy import chat_format, sequence_logprobs
from ingot.post.processes import ALONE, Processes
from ingot.tokens.batch import Batch, TokenSequence
from ingot.tokens.tokenizer import THINK_START, Tokenizer
from ingot.train.batches import deal
from ingot.train.device import choose_device, choose_precision
from ingot.train.source import Source
from ingot.workspace.errors import CheckFailed
from ingot.workspace.files import write_text
from ingot.workspace.stage import StageFolder

RATIO_TOLERANCE = 0.02
DIVERGENCE_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}  # KL(μ ‖ π) a token, by the trainer's precision
RECORDED = 16  # episodes kept of a recorded step


class SampledSource(Source):
    """Samples a step's tasks and stamps what the algorithm says.

    `whole` is what is sampled from: `model` itself, unless several processes divide that. `frozen` is the teacher; without one it
    is a copy of `whole` where the algorithm wants a reference.
    """

    def __init__(
        self,
        model: Transformer,
        config: RlConfig | DistillConfig,
        folder: StageFolder,
        processes: Processes = ALONE,
        whole: Transformer | None = None,
        frozen: Transformer | None = None,
    ) -> None:
        self.model, self.config, self.group, self.folder = model, config, config.group, folder
        self.algorithm: SampledAlgorithm = config.algorithm
        self.processes, self.whole = processes, whole or model
        self.chat = chat_format(model)
        self.mix, self.tools = TaskMix(config.tasks), find_tools(config.tools)
        slots = -(-config.prompts_per_step * self.group // processes.size)
        self.engine = Engine(self.whole, slots=slots, length=config.sequence_length)
        self._recording = False  # whether this process has written a record yet
        self.frozen = frozen
        if frozen is None and self.algorithm.wants_reference:
            self.frozen = copy.deepcopy(self.whole)
        self.tolerance = DIVERGENCE_TOLERANCE[choose_precision(config.precision, choose_device(config.device))]

    def advantages(self, episodes: Sequence[Episode]) -> Stamped:
        """What the algorithm stamps on every token, and its metrics."""
        if self.algorithm.rewarded:
            _check_reachable(episodes, self.chat.tokenizer)
        samples = Samples(episodes, self.group, lambda: self._frozen_logprobs(episodes))
        return self.algorithm.advantages(samples)

    def _frozen_logprobs(self, episodes: Sequence[Episode]) -> list[list[float]]:
        if self.frozen is None:
            raise CheckFailed(
                f"{self.algorithm.algorithm} asks for the log-probabilities of a reference that it does not want",
                place=str(self.folder.path),
                fix="let its property wants_reference be true",
            )
        sequences = [TokenSequence(segment.tokens()) for each in episodes for segment in each.segments]
        options = self.config.sequence_length, self.config.temperature, self.processes
        rows = iter(sequence_logprobs(self.frozen, sequences, *options))
        return [[value for _ in each.segments for value in next(rows)] for each in episodes]

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[list[Batch], dict[str, float]]:
        self.processes.renew(self.whole, self.model)
        self.engine.update(None, version=step)
        prompts = self.config.prompts_per_step
        tasks = self.mix.generate(step_seed(self.folder.seed, step), prompts, "train", first=step * prompts)
        episodes = self.sample([task for task in tasks for _ in range(self.group)], step)
        _check_room(episodes, self.config.sequence_length)
        advantages, metrics = self.advantages(episodes)
        if step % self.config.record_every == 0:
            self.processes.once(lambda: self._record(step, episodes, advantages))
        sequences = [each for pair in zip(episodes, advantages, strict=True) for each in training_sequences(*pair)]
        if self.algorithm.wants_reference:  # the prompt need not pass through the head: 0 there
            rows = [
                part
                for each, row in zip(episodes, self._frozen_logprobs(episodes), strict=True)
                for part in each.split(row)
            ]
            pairs = zip(sequences, rows, strict=True)
            sequences = [
                s.with_stream("reference_logprob", _masked(row, s.streams["response_mask"])) for s, row in pairs
            ]
        sizes = self.config.sequence_length, self.config.micro_batch_tokens, world
        batches = pack_groups([[s] for s in sequences], *sizes)
        return deal(batches, rank, world), metrics | describe(episodes)

    def sample(self, tasks: Sequence[Task], step: int) -> list[Episode]:
        """Scored episodes of the current policy, one for every task."""

        def sample_run(run: slice, between: Between) -> list[Episode]:
            return rollout(
                tasks,
                self.engine,
                self.chat,
                self.mix.kinds,
                drawing=Drawing(self.config.temperature, seed=step_seed(self.folder.seed, step)),
                limits=Limits(self.config.max_new_tokens, self.config.sequence_length),
                tools=self.tools,
                only=run,
                between=between,
            )

        return self.processes.share(len(tasks), sample_run)

    def _record(self, step: int, episodes: Sequence[Episode], advantages: list[list[float]]) -> None:
        """Append the step's record. The first one of a process replaces those of steps that run again after a resume."""
        assert self.model.tokenizer is not None
        path = self.folder.path / "trajectories.jsonl"
        rows = zip(episodes[:RECORDED], advantages, strict=False)
        made = [json.dumps(each.to_record(step, self.model.tokenizer, row), ensure_ascii=False) for each, row in rows]
        if not self._recording:
            write_text(path, "".join(f"{line}\n" for line in [*_lines_before(path, step), *made]))
        else:
            with path.open("a", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in made))
        self._recording = True

    def check_ratio(self, step: int, metrics: dict[str, Any]) -> dict[str, float]:
        """After a step: the trainer must have seen the probabilities that the sampler reported."""
        if "ratio_mean" not in metrics or "sampler_divergence" not in metrics:
            raise CheckFailed(
                f"no loss term of {self.algorithm.algorithm} logs ratio_mean and sampler_divergence",
                place=str(self.folder.path),
                fix="let a term derive from PolicyGradient (train/terms.py), which logs them",
            )
        ratio, divergence = metrics["ratio_mean"], metrics["sampler_divergence"]
        if abs(ratio - 1) > RATIO_TOLERANCE or divergence > self.tolerance:
            raise CheckFailed(
                f"step {step}: the trainer does not see the probabilities that the sampler reported: their mean ratio is "
                f"{ratio:.4f} (it must be 1), their divergence {divergence:.2g} a token (at most {self.tolerance:g})",
                place=str(self.folder.path),
                fix="the sampler runs other weights, another temperature or another mask than the trainer",
            )
        return {}


def training_sequences(episode: Episode, advantages: Sequence[float]) -> list[TokenSequence]:
    """One sequence for each segment. Of an episode whose environment failed nothing is learnt: its mask is 0."""
    sequences = []
    for segment, row in zip(episode.segments, episode.split(advantages), strict=True):
        mask = [0.0 if episode.failed else float(one) for one in segment.sampled()]
        streams = {"response_mask": mask, "advantage": _masked(row, mask), "sampled_logprob": segment.logprobs()}
        sequences.append(TokenSequence(segment.tokens(), streams))
    return sequences


def _masked(row: list[float], mask: Sequence[float]) -> list[float]:
    return [value * one for value, one in zip(row, mask, strict=True)]


def _check_reachable(episodes: Sequence[Episode], tokenizer: Tokenizer) -> None:
    """Fail if a task asks for a trace of a model that has no token for one: no answer could ever earn anything."""
    asking = next((each.task for each in episodes if each.task.thinking), None)
    if asking is not None and THINK_START not in tokenizer.special:
        raise CheckFailed(
            f"the task asks for thinking, but the model has no token {THINK_START}: every answer would earn 0",
            place=asking.id,
            fix="choose tasks without it (no_think, or calculator with thinking: false), or a model that has the token",
        )


def _check_room(episodes: Sequence[Episode], length: int) -> None:
    """Fail if a prompt leaves no room for an answer."""
    for each in episodes:
        if each.sampled_count == 0:
            raise CheckFailed(
                f"the prompt has {each.length} tokens and leaves no room for an answer in a row of {length}",
                place=each.task.id,
                fix="raise the stage's sequence_length, or leave such tasks out",
            )


def step_seed(seed: int, step: int) -> int:
    """The seed of a step's tasks and samples."""
    return seed * 1_000_003 + step


def _lines_before(path: Path, step: int) -> list[str]:
    """The lines of a record of the steps before this one; a torn last line of a killed process is left out."""
    kept = []
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.split("\n"):
        with suppress(json.JSONDecodeError):
            if json.loads(line)["step"] < step:
                kept.append(line)
    return kept


def describe(episodes: Sequence[Episode]) -> dict[str, float]:
    """What the samples of a step looked like on average, without those whose environment failed; these are counted."""
    known = [each for each in episodes if not each.failed]
    if not known:
        raise CheckFailed(
            f"the environment failed in every episode of the step: {episodes[0].score.error}",
            place=episodes[0].task.kind,
            fix="try it with `ingot env test`",
        )
    count = len(known)
    return {
        "reward": sum(each.score.reward for each in known) / count,
        "correct_share": sum(each.score.correct for each in known) / count,
        "format_share": sum(each.score.format_ok for each in known) / count,
        "response_length": sum(each.sampled_count for each in known) / count,
        "failed_episodes": float(len(episodes) - count),
    }
